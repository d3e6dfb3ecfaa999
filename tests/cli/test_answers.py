"""Asking a finished run from the command line: tables, predictions, comparisons."""

import csv
import io
import json
from functools import partial

import numpy as np
import pytest
from rich.console import Console

from consilience.cli import answers_display, display, result_display
from consilience.sampling.comparing import comparison_of
from tests.cli.test_commands import call, error_of
from tests.made_runs import gossip_plan, made_run, unison_plan
from tests.outcome_problems import hospital_draws, hospitals, visit_draws, visits

NAMED = "tests.outcome_problems:three_hospitals"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    plan = unison_plan(3, 100, problem=NAMED)
    return made_run(tmp_path_factory.mktemp("answers") / "run", hospitals(), plan, hospital_draws())


@pytest.fixture
def printed(monkeypatch, capsys):
    """What a terminal of 100 columns shows."""
    terminal = partial(Console, width=100, force_terminal=True, color_system=None)
    monkeypatch.setattr(display, "Console", terminal)

    def lines():
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return lines


def test_a_terminal_of_a_hundred_columns_shows_names_and_ratios(run, printed):
    result_display.print_posterior(run.rows(), run.path)
    shown = printed()
    assert max(map(len, shown)) <= 100
    assert "odds ratio (95 %)" in shown[0]
    (row,) = [line for line in shown if line.startswith(" stage[III]")]
    assert "(" in row
    assert "–" in row
    assert any(line.startswith(" site 2: Intercept") for line in shown)


def test_many_parameters_are_paged(tmp_path, printed):
    rows = [
        {"parameter": f"w[{i}]", "label": f"gene[{i}]", "mean": 0.1, "standard_deviation": 0.2, "low": -1.0,
         "high": 1.0, "rhat": 1.0, "ess": 500.0, "ess_tail": 400.0, "mean_error": 0.01, "between_agents": 0.01,
         "ratio_name": "rate ratio", "ratio": 1.1, "ratio_low": 0.5, "ratio_high": 2.0}
        for i in range(244)
    ]  # fmt: skip
    result_display.print_posterior(rows, tmp_path)
    shown = printed()
    assert len([line for line in shown if line.startswith(" gene[")]) == 30
    assert f"  … and 214 more: consilience report {tmp_path} --all, or {tmp_path / 'summary.csv'}" in "".join(shown)
    assert max(len(line) for line in shown if "gene[" in line) <= 100
    result_display.print_posterior(rows, tmp_path, every=True)
    assert len([line for line in printed() if line.startswith(" gene[")]) == 244


@pytest.mark.slow(reason="each command is a process that loads the library")
def test_report_prints_the_table_for_people_and_programs(run, tmp_path):
    rows = list(csv.DictReader(io.StringIO(call("report", run.path, "--format", "csv").stdout)))
    assert [row["name"] for row in rows] == run.summary_table().index.tolist()
    assert json.loads(call("report", run.path, "--format", "json").stdout) == run.rows()
    done = call("report", run.path, "--all")
    assert "stage[III]" in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("Report: ")
    w = np.stack([visit_draws(40, seed=seed)["w"] for seed in range(2)], 1)
    gossip = made_run(tmp_path / "run", visits(), gossip_plan(2, 40), {"w": w})
    assert call("report", gossip.path, "--by-agent").stdout.count("w[1]") == 2


def test_predictions_of_new_rows(run, tmp_path):
    np.savez(tmp_path / "new.npz", x=np.ones((3, 3)))
    done = call("predict", run.path, tmp_path / "new.npz", "--site", 2, "--out", tmp_path / "predictions.csv")
    assert "has not converged" in done.stderr
    rows = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    found = run.predict({"x": np.ones((3, 3))}, agent=2)
    np.testing.assert_allclose([float(row["mean"]) for row in rows], found["mean"], atol=1e-9)
    assert list(rows[0]) == ["row", "mean", "low", "high"]


@pytest.mark.slow(reason="each command is a process that loads the library")
def test_mistakes_in_predictions_say_what_to_do(run, tmp_path):
    np.savez(tmp_path / "new.npz", x=np.ones((3, 3)))
    assert "--new-site" in error_of("predict", run.path, tmp_path / "new.npz")
    both = error_of("predict", run.path, tmp_path / "new.npz", "--site", 1, "--new-site")
    assert "exclude each other" in both
    assert "there is no file" in error_of("predict", run.path, tmp_path / "none.npz", "--site", 1)
    node = made_run(
        tmp_path / "node", hospitals().of_agent(1), unison_plan(3, 20, problem=NAMED),
        {name: one[:, [1]] if name == "site_effect" else one for name, one in hospital_draws(20).items()},
        agents=[1], engine="peers", agent=1,
    )  # fmt: skip
    assert "add --allow tests.outcome_problems" in error_of("predict", node.path, tmp_path / "new.npz")
    call("predict", node.path, tmp_path / "new.npz", "--allow", "tests.outcome_problems")


@pytest.mark.slow(reason="each command is a process that loads the library")
def test_comparisons_at_sites_and_of_their_sums(tmp_path):
    plan = unison_plan(2, 100)
    paths = [
        made_run(tmp_path / name, visits(), plan, visit_draws(100, seed=seed)).path
        for seed, name in enumerate(("first", "second"))
    ]
    done = call("compare", *paths, "--out", tmp_path / "sums.json", "--by-site")
    assert "site 1" in done.stdout
    assert "elpd" in done.stdout
    again = json.loads(call("compare", tmp_path / "sums.json", "--json").stdout)
    assert {row["model"] for row in again} == {"first", "second"}
    assert "not both" in error_of("compare", paths[0], tmp_path / "sums.json")


def test_a_comparison_in_words(tmp_path, printed, monkeypatch):
    runs = [
        made_run(tmp_path / name, visits(), unison_plan(2, 100), {"w": centre + visit_draws(100)["w"]})
        for name, centre in (("good", 0.0), ("bad", np.array([1.0, -0.5])))
    ]
    found = comparison_of(runs)
    answers_display.print_comparison(found, by_site=True)
    said = " ".join(printed())
    assert "good predicts better than bad" in said
    assert "site 1" in said
    monkeypatch.setattr("consilience.sampling.comparing.row_scores", lambda run: None)
    answers_display.print_comparison(comparison_of(runs), by_site=False)
    assert "How sure that is cannot be said from sums of each model alone" in " ".join(" ".join(printed()).split())
