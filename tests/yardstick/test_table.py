"""The table: what is asked for, failures that stay in it, and what is done is not made again."""

import csv
import json

import pytest

from consilience.errors import DivergedError, InputError, Interrupted, RunError
from consilience.yardstick import METHODS, Request, complete_table, start_table, table, write_page
from consilience.yardstick.targets import in_words, targets_met
from tests.cli.test_commands import call, error_of

SCHOOLS, SURVEY = "eight_schools-eight_schools_noncentered", "mesquite-logmesquite"
ROW = {
    "mean_error": 0.02, "mean_error_beyond_noise": 0.0, "worst_parameter": "mu", "sd_ratio_smallest": 0.99,
    "sd_ratio_largest": 1.02, "sd_error_beyond_noise": 0.0, "tail_error": 0.01, "ess_mean": 6000.0,
    "ess_square": 5500.0, "rounds_per_effective_mean": 20.0, "rounds_per_effective_square": 22.0,
    "bytes_per_effective_mean": 800.0, "gradients_per_effective_mean": 5.0, "rounds": 9000, "warmup_rounds": 700,
    "divergences": 0, "converged": True, "verdict": "Converged", "sampler": "a sampler", "chains": 4, "draws": 2000,
    "run": "run",
}  # fmt: skip


def request(**given):
    return Request.of(**{"posteriors": (SURVEY,), "methods": ("nuts", "dula", "one-shot"), **given})


@pytest.fixture
def made(monkeypatch):
    """The cells that were made, by a sampler that takes no time and fails for D-ULA."""
    done = []

    def sampled(posterior, cell, request, where, show):
        done.append(cell)
        if cell.method == "dula":
            raise DivergedError("agent 1 left all bounds")
        return ROW

    monkeypatch.setattr(table, "sampled", sampled)
    monkeypatch.setattr(table, "combined", sampled)
    return done


def complete(path, begun=None):
    def announce(missing):
        return lambda number, cell: None if begun is None else begun(number, cell)

    return complete_table(path, lambda plan: None, announce)


def test_cells_have_a_graph_and_a_split_only_where_these_matter():
    cells = list(request(posteriors=(SCHOOLS,), methods=("pooled", "nuts", "one-shot"), graphs=("ring", "star"),
                         splits=("natural", "random"), num_agents=4).cells())  # fmt: skip
    assert [(cell.method, cell.graph, cell.split, cell.num_agents) for cell in cells] == [
        ("pooled", "none", "none", 1),
        ("nuts", "ring", "natural", 8), ("nuts", "star", "natural", 8),
        ("nuts", "ring", "random", 4), ("nuts", "star", "random", 4),
        ("one-shot", "none", "natural", 8), ("one-shot", "none", "random", 4),
    ]  # fmt: skip
    assert len({cell.directory for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"posteriors": ("arK",)}, "unknown posterior 'arK': did you mean arK-arK"),
        ({"methods": ("kinetics",)}, "unknown method 'kinetics': did you mean kinetic"),
        ({"splits": ("naturally",)}, "unknown split 'naturally': did you mean natural?"),
        ({"graphs": ("wheel",)}, "unknown graph 'wheel': choose one of"),
        ({"num_agents": 4}, "a natural split has its own number"),
    ],
)
def test_unknown_names_are_refused_with_suggestions(given, words):
    with pytest.raises(InputError) as caught:
        request(**given)
    assert words in str(caught.value)


def test_a_failure_stays_in_the_table_and_stops_nothing(made, tmp_path):
    start_table(request(), tmp_path / "table")
    summary = complete(tmp_path / "table")
    assert [cell.method for cell in made] == ["nuts", "dula", "one-shot"]
    by_method = {row["method"]: row for row in summary["results"]}
    assert by_method["dula"]["failed"] == "agent 1 left all bounds"
    assert by_method["nuts"]["failed"] is None
    assert (summary["num_cells"], summary["num_wanted"], summary["num_failed"]) == (3, 3, 1)
    assert "nuts 1 of 1; dula 0 of 1, 1 failed; one-shot 1 of 1." in summary["verdict"]
    assert json.loads((tmp_path / "table" / "summary.json").read_text()) == summary
    with (tmp_path / "table" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["failed"] for row in rows] == ["", "agent 1 left all bounds", ""]


def test_what_is_done_is_not_made_again(made, tmp_path):
    path = tmp_path / "table"
    start_table(request(), path)

    def interrupt(number, cell):
        if number == 1:
            raise Interrupted("stopped by the user")

    with pytest.raises(Interrupted):
        complete(path, interrupt)
    assert len(made) == 1
    complete(path)
    assert [cell.method for cell in made] == ["nuts", "dula", "one-shot"]
    complete(path)
    assert len(made) == 3
    missing = start_table(request(methods=("nuts", "kinetic")), path)
    assert [cell.method for cell in missing] == ["kinetic"]
    assert complete(path)["num_cells"] == 4


def test_cells_of_one_table_are_alike(tmp_path):
    start_table(request(), tmp_path / "table")
    with pytest.raises(RunError, match="begun with a budget of 200,000 rounds"):
        start_table(request(budget=1000), tmp_path / "table")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="holds no table"):
        start_table(request(), tmp_path)


def test_the_page_sorts_and_leads_to_the_runs(made, tmp_path):
    path = tmp_path / "table"
    start_table(request(), path)
    complete(path)
    page = write_page(path).read_text()
    assert "<table data-sorts>" in page
    assert "addEventListener" in page
    assert f'<a href="cells/{SURVEY}/nuts-ring-natural-2/run/">' in page
    assert "agent 1 left all bounds" in page
    assert {file.name for file in (path / "figures").iterdir()} == {"errors.png", "rounds.png"}


def test_targets_are_stricter_in_unison():
    off = {**ROW, "failed": None, "mean_error_beyond_noise": 0.07}
    assert not targets_met({**off, "method": "nuts"})["on_target"]
    assert targets_met({**off, "method": "kinetic"})["on_target"]
    assert not targets_met({**off, "method": "kinetic", "sd_error_beyond_noise": 0.11})["on_target"]
    assert not targets_met({**ROW, "failed": None, "method": "nuts", "converged": False})["on_target"]
    assert not targets_met({"failed": "it diverged", "method": "kinetic"})["on_target"]
    assert not targets_met({**ROW, "failed": None, "method": "dula", "ess_mean": 4.0})["on_target"]
    wrong = {**ROW, "method": "nuts", "failed": None, "on_target": False, "false_verdict": True}
    assert "converged: 1, of which 1 with a mean" in in_words([wrong])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["posteriordb", "--posterior", "kidiq"], "unknown posterior 'kidiq': did you mean"),
        (["posteriordb", "--sampler", "nuts"], "--sampler is not for posteriordb"),
        (["posteriordb", "--draws", "100"], "--draws is not for posteriordb"),
        (["posteriordb", "--engine", "peers"], "--engine is not for posteriordb"),
        (["gmm", "--quick"], "--quick is for posteriordb, not for gmm"),
        (["gmm", "--posterior", "arK-arK"], "--posterior is for posteriordb"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(arguments, words):
    assert words in error_of("run", *arguments)


@pytest.mark.slow(reason="samples a posterior by five methods, with the processes of users")
def test_a_table_from_the_command_line(tmp_path):
    path = tmp_path / "table"
    wanted = ["--posterior", "kidiq-kidscore_momiq", "--method", "nuts,kinetic,dula,one-shot,consensus"]
    done = call("run", "posteriordb", *wanted, "--budget", 20_000, "--out", path)
    assert done.stdout.strip().splitlines()[-1] == f"Report: {path / 'report.html'}"
    rows = {row["method"]: row for row in json.loads((path / "summary.json").read_text())["results"]}
    assert list(rows) == ["nuts", "kinetic", "dula", "one-shot", "consensus"]
    assert rows["nuts"]["on_target"]
    assert rows["nuts"]["ess_mean"] > 5_000
    assert rows["kinetic"]["on_target"]
    (short,) = json.loads((path / "summary.json").read_text())["not_converged"]
    assert short.startswith("cells/kidiq-kidscore_momiq/dula-")
    assert done.stderr.startswith(f"Warning: Not converged: 1 of 5 runs ({short}). What to do: ")
    assert not rows["dula"]["on_target"]  # far too few rounds in coordinates of such units
    assert rows["one-shot"]["failed"] or rows["one-shot"]["converged"] is None
    again = call("run", "posteriordb", *wanted, "--budget", 20_000, "--out", path, "--json")
    assert json.loads(again.stdout)["num_cells"] == len(rows)
    assert set(rows) <= set(METHODS)
