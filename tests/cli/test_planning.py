"""`theory`, `suggest` and `run --auto` as a user meets them."""

import json

import pytest

import consilience as cs
from consilience.experiments import load_problem
from consilience.planning.checks import check
from consilience.theory import unmet_conditions
from tests.cli.test_commands import call, error_of

MINE = """
import jax.numpy as jnp, numpy as np, consilience as cs

def problem(num_agents):
    rng = np.random.default_rng(0)
    return cs.models.linear_regression([(rng.normal(size=(8, 2)), rng.normal(size=8)) for _ in range(num_agents)])
"""
PLAN = """
problem = "mine:problem"
num_steps = 5000
[graph]
kind = "ring"
num_agents = 4
[sampler]
kind = "dula"
consensus = 0.2
step_size = { kind = "polynomial", scale = 0.002, exponent = 0.6 }
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    path = tmp_path_factory.mktemp("planning")
    (path / "mine.py").write_text(MINE)
    (path / "plan.toml").write_text(PLAN)
    return path


@pytest.mark.slow(reason="a pilot and figures")
@pytest.mark.parametrize("command", ["check", "theory", "suggest", "run"])
def test_a_plan_from_elsewhere_runs_nothing(here, command):
    """Neither a module that is there nor one that would end the process, unless it is allowed."""
    for problem in ("mine:problem", "os:abort"):
        (here / "carried.toml").write_text(PLAN.replace("mine:problem", problem))
        module = problem.partition(":")[0]
        error = error_of(command, "carried.toml", cwd=here)
        assert f"would run the module {module!r}: if you trust it, add --allow {module}" in error


def test_theory_prints_tables_and_writes_figures(here):
    done = call("theory", "plan.toml", "--allow", "mine", "--out", "page", cwd=here)
    for symbol in ("ρ_U", "μ_g", "W_2", "C̄_F2", "k*"):
        assert f"\n {symbol} " in done.stdout
    assert "Theorem 1's rate is δ₂ − 2δ₁ = 0.6" in done.stdout
    assert done.stdout.strip().splitlines()[-1] == "Report: page/report.html"
    assert (here / "page" / "figures" / "theory_divergence.png").stat().st_size > 10_000
    assert "is not empty" in error_of("theory", "plan.toml", "--allow", "mine", "--out", "page", cwd=here)


@pytest.mark.slow(reason="six networks are compared")
def test_theory_compares_graphs_and_agents_for_machines(here):
    words = ["--compare", "graph=ring,complete", "agents=3,6"]
    done = call(
        "theory", "plan.toml", "--allow", "mine", *words, "--tolerance", 0.05, "--out", "other", "--json", cwd=here
    )
    values = json.loads(done.stdout)
    assert done.stderr == ""
    assert [(row["graph"], row["num_agents"]) for row in values["comparisons"]] == [
        ("ring", 3), ("ring", 6), ("complete", 3), ("complete", 6)
    ]  # fmt: skip
    assert values["tolerance"] == 0.05
    assert values["plans"][0]["steps_needed"]["exact"] > 0
    assert (here / "other" / "figures" / "theory_comparisons.png").exists()


@pytest.mark.slow(reason="an analysis of the mixture in a process of its own")
def test_suggest_gives_reasons_and_writes_a_plan_that_checks(here, monkeypatch):
    done = call("suggest", "mine:problem", "--agents", 4, "--steps", 3000, "--out", "good.toml", cwd=here)
    assert "practical: 4 agents on a ring, 3,000 steps" in done.stdout
    assert "proven: 4 agents" in done.stdout
    assert "α_0 n L = 0.5" in done.stdout
    monkeypatch.syspath_prepend(here)
    plan = cs.Plan.load(here / "good.toml")
    assert {finding.level for finding in check(plan, load_problem(plan))} == {"ok"}
    options = ["--proven", "--temperature", 0.5, "--out", "proven.toml", "--json"]
    both = json.loads(call("suggest", "plan.toml", "--allow", "mine", *options, cwd=here).stdout)
    assert set(both) == {"practical", "proven", "warm_up"}
    temperatures = {name: both[name]["plan"]["sampler"]["temperature"] for name in ("practical", "proven")}
    assert temperatures == {"practical": 0.5, "proven": 1.0}  # the theorems are about 1
    proven = cs.Plan.load(here / "proven.toml")
    assert unmet_conditions(proven.graph, proven.sampler) == []


@pytest.mark.slow(reason="a series of several runs")
def test_run_chooses_its_own_step_sizes(here):
    done = call("run", "mine:problem", "--agents", 3, "--steps", 4000, "--auto", "--out", "run", cwd=here)
    assert "3 agents on a ring, 4,000 steps of dula" in done.stdout
    assert "α_0 n L = 0.5" in done.stdout
    plan = cs.Run(here / "run").plan
    assert plan.sampler.step_size.kind == "from_to"
    assert "Theorem 2" in (here / "run" / "report.html").read_text()
    assert json.loads((here / "run" / "theory.json").read_text())["gaussian"]
