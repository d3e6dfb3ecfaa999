"""How the table is shown: its page, its figures, the terminal, and the command that makes it."""

import json

import pytest

from consilience.reports.theme import drawn
from consilience.reports.yardstick_figures import rounds_and_errors
from consilience.yardstick import METHODS, start_table, write_page
from consilience.yardstick.page import errors_table
from tests.cli.test_commands import call, error_of
from tests.yardstick.made_up import ROW, SCHOOLS, SURVEY, complete, request


def test_the_page_sorts_and_leads_to_the_runs(made, tmp_path):
    path = tmp_path / "table"
    start_table(request(methods=("pooled", "nuts", "dula", "one-shot"), splits=("natural", "random")), path)
    complete(path)
    cell = f"cells/{SURVEY}/{{}}".format
    for name in ("natural", "random"):
        (path / cell(f"nuts-ring-{name}-2") / "run").mkdir()
        (path / cell(f"nuts-ring-{name}-2") / "run" / "summary.json").write_text("{}")
    (path / cell("nuts-ring-natural-2") / "run" / "report.html").write_text("")
    page = write_page(path).read_text()
    assert "<table data-sorts>" in page
    assert "addEventListener" in page
    links = ["nuts-ring-natural-2/run/report.html", "nuts-ring-random-2/run/summary.json"]
    links += ["pooled-none-none-1/result.json", "dula-ring-natural-2/result.json"]  # which have no run
    assert all(f'<a href="{cell(place)}">' in page for place in links)
    assert "agent 1 left all bounds" in page
    assert ">What failed, and why</h2>" in page
    for heading in (
        "on target",
        "worst parameter",
        "least sd",
        "bytes/square",
        "warm-up rounds",
        "seconds",
        "outcome",
    ):
        assert f">{heading}</th>" in page
    figures = {file.name for file in (path / "figures").iterdir()}
    assert figures == {"errors-natural.png", "errors-random.png", "rounds.png"}


def test_the_terminal_has_the_worst_error_of_each_method_on_each_posterior():
    good = {**ROW, "posterior": SURVEY, "method": "nuts", "failed": None, "on_target": True}
    rows = [
        good, {**good, "graph": "star", "mean_error": 0.031}, {**good, "method": "kinetic"},
        {**good, "method": "kinetic", "mean_error": 12.3, "on_target": False}, {**good, "posterior": SCHOOLS},
        {**good, "posterior": SCHOOLS, "method": "kinetic", "failed": "it diverged", "on_target": False},
    ]  # fmt: skip
    table = errors_table([*rows, {**good, "method": "pooled"}])
    assert table.header == ("posterior", "pooled", "nuts", "kinetic")
    assert table.body == ((SURVEY, "0.02*", "0.03*", "12 "), (SCHOOLS, "–", "0.02*", "failed"))


def test_figures_follow_the_theme_of_the_page():
    row = {**ROW, "posterior": SURVEY, "method": "nuts", "failed": None, "num_agents": 2}
    drawing = drawn(rounds_and_errors([row], list(METHODS)), "rounds")
    assert "var(--ink)" in drawing
    for fixed in ("#ffffff", "#000000"):
        assert fixed not in drawing


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


@pytest.mark.slow(reason="samples a posterior by six methods, with the processes of users")
def test_the_quick_table_of_one_posterior_from_the_command_line(tmp_path):
    """A third of the mothers' scores each: the agents' subposteriors are proper and do not fit together."""
    path = tmp_path / "table"
    wanted = ["--quick", "--posterior", "kidiq-kidscore_momiq", "--graph", "ring,complete", "--out", path]
    done = call("run", "posteriordb", *wanted)
    assert done.stdout.strip().splitlines()[-1] == f"Report: {path / 'report.html'}"
    summary = json.loads((path / "summary.json").read_text())
    assert (summary["budget"], summary["num_failed"], summary["num_false_verdicts"]) == (20_000, 0, 0)
    rows = {(row["method"], row["graph"]): row for row in summary["results"]}
    over_ring = {method: row for (method, graph), row in rows.items() if graph != "complete"}
    assert list(over_ring) == ["pooled", "nuts", "kinetic", "dula", "consensus", "one-shot"]
    for method in ("pooled", "nuts", "kinetic"):
        assert over_ring[method]["on_target"]
        assert over_ring[method]["converged"]
        assert over_ring[method]["ess_mean"] > 5_000
    assert over_ring["kinetic"]["divergences"] is None
    (short,) = summary["not_converged"]
    assert short.startswith("cells/kidiq-kidscore_momiq/dula-")
    assert f"Warning: Not converged: 1 of 6 runs ({short}). What to do: " in done.stderr
    assert not over_ring["dula"]["on_target"]  # far too few rounds in coordinates of such units
    assert (over_ring["dula"]["rounds"], over_ring["dula"]["warmup_rounds"]) == (20_000, 10_000)  # of `suggest`
    for method in ("consensus", "one-shot"):
        assert over_ring[method]["mean_error"] > 0.3
        assert over_ring[method]["converged"] is None
    assert all(row["seconds"] > 0 for row in rows.values())
    for method in ("nuts", "kinetic", "dula"):  # a ring of three is complete: one run
        assert {**rows[method, "complete"], "graph": "ring"} == rows[method, "ring"]
    again = call("run", "posteriordb", *wanted, "--json")
    assert json.loads(again.stdout)["results"] == summary["results"]
    assert set(over_ring) <= set(METHODS)
