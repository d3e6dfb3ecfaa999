"""The documentation tells the truth: its code runs, its links lead somewhere, its lists are complete."""

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer

import consilience as cs
from consilience import errors, experiments
from consilience.cli.main import app
from consilience.engines.matching import require_matching
from consilience.planning.assessment_values import described
from consilience.samplers import SAMPLERS
from consilience.theory import comparisons

OPTIMISED = True

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IN_A_SHELL = DOCS / "tutorials" / "three-hospitals.md"
WITH_CODE = [
    ROOT / "README.md",
    *sorted(page for page in (DOCS / "tutorials").glob("*.md") if page != IN_A_SHELL),
    DOCS / "how-to" / "predict-with-uncertainty.md",
    DOCS / "how-to" / "use-a-numpyro-model.md",
    DOCS / "how-to" / "use-a-flax-or-equinox-model.md",
    DOCS / "how-to" / "from-pymc.md",
]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_UNTIL_CONVERGED = re.compile(r"cs\.sample\(\w+, cs\.graphs|cs\.nuts\(|cs\.hmc\(")
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def python_blocks(path):
    """The Python blocks of a page, each padded so that a traceback shows the page's line numbers."""
    text = path.read_text()
    return ["\n" * text[: found.start(1)].count("\n") + found.group(1) for found in _FENCE.finditer(text)]


def run_blocks(path):
    """Run the blocks of a page one after the other, and return the names they define."""
    names = {"__name__": "__main__"}
    for block in python_blocks(path):
        exec(compile(block, str(path), "exec"), names)
    return names


def samples_long(page):
    """Whether a page's code samples until it has converged, or is a tutorial's."""
    return "tutorials" in page.parts or any(_UNTIL_CONVERGED.search(block) for block in python_blocks(page))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow(reason="it samples for long") if samples_long(page) else ())
        for page in WITH_CODE
    ],
    ids=lambda page: page.name,
)
def test_code_on_the_page_runs_and_checks_its_own_results(page, tmp_path, monkeypatch):
    assert any("\nassert " in block for block in python_blocks(page)), "a page with code must assert what it claims"
    monkeypatch.chdir(tmp_path)
    run_blocks(page)


def shell_blocks(path):
    """The commands of a page for the shell; those that this version does not have yet are left out."""
    known = set(typer.main.get_command(app).commands)
    called = re.compile(r"^consilience (\w+)", re.MULTILINE)
    blocks = re.findall(r"^```sh\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if set(called.findall(block)) <= known]


@pytest.mark.slow(reason="three nodes of real processes, one of which is killed")
def test_the_commands_of_the_three_hospitals_work(tmp_path):
    """In a shell that stops at the first command that fails; the hospitals then agree, and with the truth."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "consilience").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m consilience.cli.main "$@"\n')
    (place / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for path in place.iterdir():
        path.chmod(0o755)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths}
    script = "set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + "\n".join(shell_blocks(IN_A_SHELL))
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "stage: unknown level 'IV'" in done.stdout
    assert "age: centre 64 years, from 1,550 values at 3 sites" in done.stdout
    runs = [cs.Run(tmp_path / "NET" / "runs" / f"agent-{agent}") for agent in range(3)]
    assert len({run.summary["draws_digest"] for run in runs}) == 1
    assert runs[1].summary["restarts"] == 1
    labels = cs.studies.of_run(runs[0].path).coefficients
    draws = dict(zip(labels, runs[0].draws["coefficients"].to_numpy().reshape(-1, len(labels)).T, strict=True))
    for label, ratio in {"age": 1.8, "stage[III]": 3.0, "treatment[new]": 0.5}.items():
        assert abs(draws[label].mean() - np.log(ratio)) < 5 * draws[label].std(), label


@pytest.mark.parametrize(("claim", "holds"), [("value == 1", True), ("value == 2", False)])
def test_a_wrong_claim_on_a_page_is_noticed(tmp_path, claim, holds):
    page = tmp_path / "page.md"
    page.write_text(f"Words\n\n```python\nvalue = 1\n```\n\n```python\nassert {claim}\n```\n")
    if holds:
        assert run_blocks(page)["value"] == 1
    else:
        with pytest.raises(AssertionError):
            run_blocks(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    targets = [link for link in _LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("plan_file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_example_plans_fit_their_problems(plan_file, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    plan = cs.Plan.load(plan_file)
    problem = experiments.load_problem(plan)
    require_matching(problem, plan)
    assert {finding.level for finding in cs.check(plan, problem)} == {"ok"}


@pytest.mark.slow(reason="a run of the mixture with its comparisons")
def test_every_entry_of_a_summary_is_documented(tmp_path):
    gmm = experiments.EXPERIMENTS["gmm"]
    plan = gmm.plan(2, num_steps=3000).replace(store_every=1)
    with pytest.warns(errors.PlanWarning):
        summary = cs.sample(gmm.problem(2), plan, tmp_path / "run").summary
    summary |= gmm.series_results({"agents-2": summary})
    text = (DOCS / "reference" / "summary.md").read_text()
    assert sorted(name for name in entries(summary) if f"`{name}`" not in text) == []


@pytest.mark.slow(reason="an assessment of a plan")
def test_every_entry_of_a_theory_file_is_documented():
    problem = cs.models.linear_regression([([[1.0], [2.0]], [1.0, 2.0])] * 3)
    plan = cs.Plan(graph=cs.graphs.ring(3), sampler=cs.dula(1e-3, 0.2), num_steps=100)
    compared = comparisons.compare(problem, plan, {}, 0.1)
    values = described(cs.assess(problem, plan), 0.1, compared)
    text = (DOCS / "reference" / "theory.md").read_text()
    parts = [values, values["plans"][0], *values["plans"][0].values(), *values["comparisons"]]
    parts += [*values["problem_constants"], *values["theorem_constants"]]
    names = set().union(*(part for part in parts if isinstance(part, dict)))
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def entries(value, *, named=("graph", "timing", "consensus_rate", "agents", "network_average", "results")):
    """The names of all entries, and of the entries of those that have a table of their own."""
    if isinstance(value, list):
        return set().union(*(entries(item) for item in value))
    names = set(value)
    for name in named:
        if name in value:
            names |= entries(value[name])
    return names


def test_the_readme_names_every_guide_part_and_extra():
    text = (ROOT / "README.md").read_text()
    pages = [page for folder in ("tutorials", "how-to", "explanation") for page in (DOCS / folder).glob("*.md")]
    pages += (DOCS / "reference").glob("*.md")
    assert [page.name for page in pages if f"({page.relative_to(ROOT).as_posix()})" not in text] == []
    layout = text.partition("## How it is laid out")[2].partition("## ")[0]
    parts = [one.parent.name for one in (ROOT / "src" / "consilience").glob("*/__init__.py")]
    assert [name for name in parts if f"  {name}/ " not in layout] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name for found in re.findall(r"'\.\[([\w,]+)\]'", text) for name in found.split(",")}
    assert {"glm", "page", "peers"} <= named <= set(extras)
    assert "consilience[" not in text


def test_every_error_is_documented():
    text = (DOCS / "reference" / "errors.md").read_text()
    classes = [name for name, _ in inspect.getmembers(errors, inspect.isclass)]
    assert classes
    assert [name for name in classes if f"`{name}`" not in text] == []


def commands_of(group, words=()):
    """All commands below a group, by the words that call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def test_every_command_and_option_is_documented():
    text = (DOCS / "reference" / "command-line.md").read_text()
    commands = dict(commands_of(typer.main.get_command(app)))
    assert "network init" in commands
    missing = {name for name in commands if f"consilience {name}" not in text}
    for command in commands.values():
        missing |= {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert sorted(word for word in missing if word not in text and word != "--help") == []


def test_every_entry_of_a_plan_is_documented():
    text = (DOCS / "reference" / "plan.md").read_text()
    kinds = [cs.Plan, *SAMPLERS.values(), cs.Constant, cs.Polynomial, cs.FromTo]
    entries = {name for kind in kinds for name in kind.model_fields} | set(cs.graphs.FAMILIES)
    assert sorted(name for name in entries if f"`{name}`" not in text and f"[{name}]" not in text) == []
