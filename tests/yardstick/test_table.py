"""The table: what is asked for, failures that stay in it, and what is done is not made again."""

import csv
import json
import time
from types import SimpleNamespace

import pytest

import consilience as cs
from consilience import posteriors
from consilience.errors import InputError, Interrupted, RunError
from consilience.yardstick import limits, start_table, table
from tests.yardstick.made_up import ROW, SCHOOLS, SURVEY, complete, request


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
        ({"graphs": ("rign",)}, "unknown graph 'rign': did you mean ring"),
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
    assert "nuts 1 of 1; dula 0 of 1, 1 failed; one-shot 1 of 1. Targets" in summary["verdict"]
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


def test_cells_with_the_same_draws_are_one_run(made, tmp_path):
    """In unison draws are the same over every graph, and a sum takes other hops; by gossip, over equal graphs."""
    path, regression = tmp_path / "table", "kidiq-kidscore_momiq"
    graphs = ("complete", "ring", "path", "star")
    start_table(request(posteriors=(regression, SCHOOLS), methods=("nuts", "kinetic"), graphs=graphs), path)
    summary = complete(path)
    assert [(cell.posterior, cell.method, cell.graph) for cell in made] == [
        (regression, "nuts", "complete"), *((regression, "kinetic", graph) for graph in ("complete", "path", "star")),
        (SCHOOLS, "nuts", "complete"), *((SCHOOLS, "kinetic", graph) for graph in graphs),
    ]  # fmt: skip
    assert summary["num_cells"] == 16
    rows = {(row["posterior"], row["method"], row["graph"]): row for row in summary["results"]}
    of_eight = [rows[SCHOOLS, "nuts", graph] for graph in graphs]  # sums take 2, 8, 8 and 2 hops
    assert [row["rounds"] for row in of_eight] == [9000, 36_000, 36_000, 9000]
    assert [row["warmup_rounds"] for row in of_eight] == [700, 2800, 2800, 700]
    assert [row["rounds_per_effective_square"] for row in of_eight] == [22, 88, 88, 22]
    assert {row["bytes_per_effective_mean"] for row in of_eight} == {800}
    assert {row["directory"] for row in of_eight} == {f"cells/{SCHOOLS}/nuts-complete-natural-8"}
    start_table(request(posteriors=(SCHOOLS,), methods=("nuts",), graphs=("barbell",)), path)
    assert complete(path)["num_cells"] == 17
    assert len(made) == 9


def test_a_family_that_has_no_graph_of_so_few_agents_stops_nothing(made, tmp_path):
    start_table(request(methods=("nuts", "kinetic"), graphs=("ring", "watts-strogatz")), tmp_path / "table")
    rows = {(row["method"], row["graph"]): row["failed"] for row in complete(tmp_path / "table")["results"]}
    assert [cell.graph for cell in made] == ["ring", "ring"]
    for method in ("nuts", "kinetic"):
        assert rows[method, "ring"] is None
        assert "needs fewer neighbours than agents" in rows[method, "watts-strogatz"]


def test_what_failed_is_made_again_if_its_result_is_deleted_though_other_graphs_failed_alike(made, tmp_path):
    path, cells = tmp_path / "table", f"cells/{SURVEY}"
    start_table(request(methods=("dula",), graphs=("ring", "path")), path)
    assert [row["failed"] is None for row in complete(path)["results"]] == [False, False]
    assert len(made) == 1  # with two agents they are the same graph
    (path / cells / "dula-ring-natural-2" / "result.json").unlink()
    complete(path)
    assert [cell.graph for cell in made] == ["ring", "ring"]


def test_a_cell_that_takes_too_long_has_failed_and_the_others_are_made(made, monkeypatch, tmp_path):
    def endless(posterior, cell, request, where, show):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.01)
        return ROW

    monkeypatch.setattr(table, "sampled", endless)
    start_table(request(methods=("nuts", "one-shot"), minutes=0.002), tmp_path / "table")
    first, second = complete(tmp_path / "table")["results"]
    assert (first["failed"], first["error"]) == ("it took more than 0.002 minutes (--minutes)", "OverdueError")
    assert second["failed"] is None
    monkeypatch.setattr(table, "sampled", lambda *_: ROW)
    for minutes, left in ((0.001, []), (0.002, []), (1, ["nuts"])):
        missing = start_table(request(methods=("nuts", "one-shot"), minutes=minutes), tmp_path / "table")
        assert [cell.method for cell in missing] == left
    assert [row["failed"] for row in complete(tmp_path / "table")["results"]] == [None, None]


def test_seconds_are_those_of_all_attempts_and_draws_for_several_methods_count_at_each(made, monkeypatch, tmp_path):
    clock, attempts, regression = SimpleNamespace(now=0.0), [], "kidiq-kidscore_momiq"
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def passes(seconds, row):
        clock.now += seconds
        return row

    def interrupted_first(posterior, cell, request, where, show):
        attempts.append(cell)
        passes(100, None)
        if len(attempts) == 1:
            raise Interrupted("stopped by the user")
        return ROW

    monkeypatch.setattr(table, "sampled", interrupted_first)
    monkeypatch.setattr(table, "alone", lambda *_: passes(0 if clock.now > 1000 else 1000, []))
    monkeypatch.setattr(table, "combined", lambda *_: passes(7, ROW))
    wanted = request(posteriors=(regression,), methods=("nuts", "consensus", "parametric", "one-shot"))
    start_table(wanted, tmp_path / "table")
    with pytest.raises(Interrupted):
        complete(tmp_path / "table")
    rows = complete(tmp_path / "table")["results"]
    assert {row["method"]: row["seconds"] for row in rows} == {
        "nuts": 200, "consensus": 1007, "parametric": 1007, "one-shot": 7,
    }  # fmt: skip


def test_a_cell_whose_process_is_killed_twice_has_failed_and_the_others_are_made(made, monkeypatch, tmp_path):
    path, dying = tmp_path / "table", []

    class Killed(BaseException):
        """Stands for the end of a process."""

    def deadly(posterior, cell, request, where, show):
        dying.append((where / "attempts.json").read_text())
        raise Killed

    start_table(request(methods=("nuts", "one-shot")), path)
    with monkeypatch.context() as patch:
        patch.setattr(table, "sampled", deadly)
        for _ in range(2):
            with pytest.raises(Killed):
                complete(path)
            (path / f"cells/{SURVEY}/nuts-ring-natural-2/attempts.json").write_text(dying[-1])  # as a kill leaves it
    assert [json.loads(one) for one in dying] == [{"not_ended": 1}, {"not_ended": 2}]
    first, second = complete(path)["results"]
    assert "its process was killed 2 times; is memory short?" in first["failed"]
    assert second["failed"] is None
    assert [cell.method for cell in made] == ["one-shot"]


def test_cells_of_one_table_are_alike(tmp_path):
    start_table(request(), tmp_path / "table")
    with pytest.raises(RunError, match="begun with a budget of 200,000 rounds"):
        start_table(request(budget=1000), tmp_path / "table")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="holds no table"):
        start_table(request(), tmp_path)


@pytest.mark.slow(reason="samples the same problem over two graphs")
def test_in_unison_draws_are_the_same_over_every_graph(tmp_path):
    """What one run for all graphs rests on; their centres, whose word counts, are other agents."""
    problem = posteriors.load("arK-arK").problem()
    plan = cs.Plan(graph=cs.graphs.path(5), sampler=cs.nuts(), num_warmup=60, num_draws=20, num_chains=2)
    over_path, over_star = (
        cs.sample(problem, plan.replace(graph=graph), tmp_path / graph.name).summary
        for graph in (plan.graph, cs.graphs.star(5))
    )
    assert over_path["draws_digest"] == over_star["draws_digest"]
    assert over_path["rounds"] == 2 * over_star["rounds"]
