"""What the page shows, as numbers and words: read from runs' directories and from what nodes answer, no browser."""

import hashlib
import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.errors import InputError
from consilience.experiments.finishing import finish_run
from consilience.page.agents import Agent, Hearing, all_wait, seen_by
from consilience.page.history import MOST_DRAWS, History
from consilience.page.measures import verdict_of
from consilience.page.places import Place, places, require_watchable
from consilience.page.reader import Reader
from consilience.page.snapshot import headline, network_of, progress_of
from consilience.page.tables import log_of, participation_of
from consilience.runs.convergence import standing
from consilience.runs.directory import RunDirectory
from tests.made_runs import gossip_plan, made_run, unison_plan
from tests.page.runs import HOSTILE, answer, draws, gossip_run, problem, unison_run


def look(path, **wanted):
    ((_, place),) = places(path).items()
    return Reader().snapshot(place, **wanted)


def files_of(path):
    return {
        one.relative_to(path): (one.stat().st_mtime_ns, hashlib.sha256(one.read_bytes()).hexdigest())
        for one in path.rglob("*") if one.is_file()
    }  # fmt: skip


def test_a_complete_run_has_its_summary_s_verdict_and_rows(tmp_path):
    run = gossip_run(tmp_path / "run")
    found = look(run.path)
    assert (found.state, found.num_draws, found.progress.share) == ("complete", 500, 1.0)
    assert found.subtitle.startswith("3 agents on a complete graph, D-ULA, 2 chains")
    assert found.verdict == verdict_of(run.summary)
    assert [row["label"] for row in found.rows] == ["age", "stage", "treatment"]
    assert [row["rhat"] for row in found.rows] == [row["rhat"] for row in run.summary["posterior"]]
    assert {one.state for one in found.agents} == {"done"}
    assert found.reports == []  # none was written
    (run.path / "report.html").write_text("<p>")
    assert look(run.path).reports == [("Open the report", run.path / "report.html")]


@pytest.mark.parametrize(("apart", "words"), [(0.0, "So far: Converged"), (0.5, "agents disagree about")])
def test_a_running_one_is_judged_by_the_same_rule(tmp_path, apart, words):
    """500 independent draws of each of 2 chains; agents half a standard deviation apart are seen to disagree."""
    run = gossip_run(tmp_path / "run", apart=apart, finish=False)
    run.update_status(status="running")
    found = look(run.path)
    assert words in found.verdict.words
    assert found.verdict.kind == ("not" if apart else "converged")
    assert standing(run).is_enough is not bool(apart)
    assert standing(run).fewest_effective > 400  # at every agent by itself
    assert found.state == "running"
    assert headline(found).mark == ("… Not converged yet" if apart else "✓ Converged so far")
    finish_run(run, problem())
    run.update_status(status="complete")
    assert headline(look(run.path)).mark == ("✕ Not converged" if apart else "✓ Converged")


def test_curves_are_the_draws(tmp_path):
    """Normal(agent, 1): the mean under a density within 0.2, which 1,000 draws miss with probability below 1e-9."""
    run = gossip_run(tmp_path / "run", apart=3.0)
    curves = look(run.path).curves["stage"]
    assert [one.name for one in curves.density] == ["agent 0", "agent 1", "agent 2"]
    for agent, one in enumerate(curves.density):
        x, y = np.array(one.points).T
        assert np.trapezoid(y, x) == pytest.approx(1, abs=0.05)
        assert np.trapezoid(x * y, x) == pytest.approx(3 * agent, abs=0.2)
    steps, values = np.array(curves.trace[1].points).T
    own = run.draws["effects"].to_numpy()[0, 1, :, 1]
    np.testing.assert_allclose(values, own[steps.astype(int) - 1], rtol=1e-4)


@pytest.mark.parametrize("name", ["ring", "path", "star"])
def test_a_graph_fills_its_square(name):
    """Drawn from its centre: a triangle that stands on the lower edge would leave half of the picture empty."""
    places = np.array(network_of(cs.Plan(graph=getattr(cs.graphs, name)(3), sampler=cs.nuts())).places)
    np.testing.assert_allclose(places.max(0), -places.min(0), atol=1e-3)
    assert np.abs(places).max() == 1


def test_in_unison_lines_are_chains(tmp_path):
    found = look(unison_run(tmp_path / "run").path)
    assert [one.name for one in found.curves["age"].density] == ["chain 0", "chain 1"]
    assert found.agreement_words.startswith("All agents walk the same chains")
    assert found.warmup.stage == "The warm-up is done"
    assert found.warmup.facts["step size"] == "1"


def test_only_what_is_new_is_read_and_much_is_thinned(tmp_path):
    plan = gossip_plan(3, 3 * MOST_DRAWS)
    run = gossip_run(tmp_path / "run", 3 * MOST_DRAWS, finish=False)
    group, history = run.draw_group(), History(run.path)
    entry = ("effects", (2,))
    for length in (10, 1000, 3 * MOST_DRAWS, 500):
        group.commit(length)  # the last one as when a run is resumed
        history.refresh([entry])
        line = history.lines(entry)[1]
        assert (history.length, line.agent) == (length, 1)
        assert line.values.shape[1] == -(-length // history.every) <= MOST_DRAWS
        expected = draws(2, 3, plan.num_stored)[:, 1, : length : history.every, 2]
        np.testing.assert_allclose(line.values, expected)
    assert History(run.path).lines(entry) == []


def test_any_parameter_can_be_asked_for(tmp_path):
    many = cs.Problem(
        log_likelihood=lambda w, x: -0.5 * ((x - w) ** 2).sum(-1), log_prior=lambda w: -0.5 * (w**2).sum(),
        init=lambda key: jnp.zeros(40), shards=[jnp.ones((2, 40))] * 2,
    )  # fmt: skip
    noise = np.random.default_rng(1).normal(size=(2, 2, 60, 40))
    run = made_run(tmp_path / "run", many, gossip_plan(2, 60), {"w": noise}, finish=False)
    found = look(run.path, wanted=["w[38]", "no such thing"])
    assert len(found.labels) == 40
    assert "w[38]" in found.curves
    assert (len(found.rows), found.num_parameters, found.left_out) == (25, 40, "")
    assert "w[38]" in [row["label"] for row in found.rows]
    assert found.verdict.words.endswith("Looked at: 25 of 40 parameters at every agent.")
    values = np.array(found.curves["w[38]"].trace[1].points)[:, 1]
    np.testing.assert_allclose(values, noise[0, 1, :, 38], rtol=1e-4)


def test_what_cannot_be_looked_at_is_said(tmp_path):
    big = cs.Problem(
        log_likelihood=lambda w, x: -0.5 * ((x - w) ** 2).sum(-1), log_prior=lambda w: -0.5 * (w**2).sum(),
        init=lambda key: jnp.zeros(5001), shards=[jnp.ones((2, 1))] * 33,
    )  # fmt: skip
    noise = np.random.default_rng(2).normal(size=(1, 33, 9, 5001)).astype(np.float32)
    found = look(made_run(tmp_path / "run", big, gossip_plan(33, 9, num_chains=1), {"w": noise}, finish=False).path)
    assert found.left_out == (
        "The first 5,000 of 5,001 parameters can be chosen. Of 33 agents 32 are shown, evenly chosen."
    )
    assert "24 of 5,001 parameters at 32 of 33 agents" in found.verdict.words


def test_nothing_in_the_directory_is_changed(tmp_path):
    for run in (gossip_run(tmp_path / "one"), unison_run(tmp_path / "two")):
        before = files_of(run.path)
        for _ in range(2):
            look(run.path)
        assert files_of(run.path) == before


def summary_of_node(agent):
    return {
        "agent": agent, "messages": {"sent": 7, "received": 8, "rejected": 2}, "rejections": {HOSTILE: 2},
        "traffic": {"bytes_sent": 70, "bytes_received": 80, "asked_for": 0},
    }  # fmt: skip


def test_a_network_is_read_from_its_nodes(tmp_path):
    """Three nodes that walk chains of their own, one of which has not begun, and then has."""
    plan = gossip_plan(3, 100)
    runs = {agent: tmp_path / f"agent-{agent}" for agent in range(3)}
    for agent in (0, 1):
        own = {"effects": draws(2, 3, 100, apart=3.0)[:, [agent]]}
        made_run(runs[agent], problem(), plan, own, agents=[agent], finish=False, engine="peers")
    place = Place(tmp_path, runs[0] / "plan.toml", nodes={n: runs[n] for n in (0, 1)}, network=tmp_path)
    reader = Reader()
    reader.hearing.take([answer(0), answer(1, 90), answer(2, here=False)], 10.0)
    found = reader.snapshot(place)
    assert found.state == "running"
    assert [one.name for one in found.curves["age"].density] == ["agent 0", "agent 1"]
    assert [one.state for one in found.agents] == ["sampling", "sampling", "not here yet"]
    assert [(row["agent"], row["sent"]) for row in found.messages] == [(0, 100), (1, 90)]
    assert "step 90 of 100" in found.progress.words
    for agent in (0, 1):
        (runs[agent] / "summary.json").write_text(json.dumps(summary_of_node(agent)))
        (runs[agent] / "report.html").write_text("<p>")
    late = Reader()  # of somebody who looks when the nodes are gone
    late.hearing.take([answer(agent, here=False) for agent in range(3)], 20.0)
    found = late.snapshot(place)
    assert [(one.state, one.round, one.rate) for one in found.agents[:2]] == [("done", 100, 1.0)] * 2
    assert found.messages[1] == {
        "agent": 1, "sent": 7, "received": 8, "rejected": 2, "bytes_sent": 70, "bytes_received": 80, "asked_for": 0,
        "why": f"{HOSTILE} (2)",
    }  # fmt: skip
    assert found.reports == [(f"Report of agent {n}", runs[n] / "report.html") for n in (0, 1)]


def test_states_of_nodes_follow_what_they_answer():
    """One goes, the others wait for it and say for whom; it comes back behind, and all are done."""
    hearing = Hearing()
    hearing.take([answer(0), answer(1), answer(2)], 0.0)
    hearing.take([answer(0, 200), answer(1, 200), answer(2, 195)], 2.0)
    assert [one.state for one in hearing.agents({})] == ["sampling"] * 3
    assert hearing.rate(0) == pytest.approx(50)
    gone = {"neighbours": {"1": True, "2": False}}
    hearing.take(
        [answer(0, 201, **gone), answer(1, 201, neighbours={"0": True, "2": False}), answer(2, here=False)], 3
    )
    hearing.take(
        [answer(0, 201, **gone), answer(1, 201, neighbours={"0": True, "2": False}), answer(2, here=False)], 8
    )
    found = hearing.agents({2: "running"})
    assert [one.state for one in found] == ["waiting", "waiting", "lost"]
    assert found[0].detail == "for agent 2"
    assert found[2].round == 195
    assert all_wait(found)
    hearing.take([answer(0, 2000), answer(1, 2000), answer(2, 150)], 20.0)
    assert [one.state for one in hearing.agents({})] == ["sampling", "sampling", "behind"]
    hearing.take([answer(0, 3000, done=True), answer(1, 3000, done=True), answer(2, here=False)], 40.0)
    assert [one.state for one in hearing.agents({2: "complete"})] == ["done"] * 3


def test_a_site_sees_its_neighbours_only():
    others = seen_by(1, answer(1, neighbours={"0": True, "2": False}), 4)
    assert others == [Agent(0, "here"), Agent(2, "lost"), Agent(3, "unknown")]


def test_hostile_words_come_through_as_they_are(tmp_path):
    """They are values like others; that browsers take them for text is tested in a browser."""
    run = gossip_run(tmp_path / "run", model=problem(HOSTILE, (HOSTILE, "b", "c")))
    assert look(run.path).labels[0] == HOSTILE
    log = tmp_path / "agent-0.log"
    said = [f"2026-01-01 10:00:00,000 {HOSTILE}\x1b[2J", json.dumps({"time": "2026-01-01T09:00", "message": HOSTILE})]
    log.write_text("\n".join([*said, "{not JSON", "x" * 10_000]))
    found = log_of({"agent 0": log})
    assert [one.words[:5] for one in found] == [
        "2026-",
        "{not ",
        "xxxxx",
        "2026-",
    ]
    assert any(HOSTILE in one.words for one in found)
    assert all(len(one.words) <= 500 and one.words.isprintable() for one in found)


def test_a_run_by_nodes_is_watched_from_its_first_moment(tmp_path):
    """`run --engine peers` makes its network inside the run's directory, before there is a run."""
    make_network(gossip_plan(3, 100, problem="tests.page.runs:problem"), tmp_path / "run" / "network", insecure=True)
    ((name, place),) = places(tmp_path / "run").items()
    assert (name, place.run, place.network) == ("run", None, tmp_path / "run" / "network")
    found = Reader().snapshot(place)
    assert (found.state, found.progress.words) == ("waiting", "waiting for the first node")
    assert [one.state for one in found.agents] == ["unknown"] * 3  # nobody was asked yet
    whole = gossip_run(tmp_path / "whole", finish=False, engine="peers")
    shutil.copytree(whole.path, tmp_path / "run", dirs_exist_ok=True)
    ((_, place),) = places(tmp_path / "run").items()
    found = Reader().snapshot(place)
    assert place.run == tmp_path / "run"
    assert found.subtitle.endswith("nodes of a network")


def test_a_run_on_a_mesh_says_so(tmp_path):
    found = look(gossip_run(tmp_path / "run", finish=False, engine="mesh").path)
    assert found.subtitle.endswith("on a mesh of devices")
    assert found.messages_words.startswith("All agents are in one program, so nothing is sent.")


def test_whose_data_counts_is_told_in_shares():
    members = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]])
    assert participation_of(members, [0, 1], 3) == [
        {"agent": 0, "share": 1.0, "now": True}, {"agent": 1, "share": 0.75, "now": True},
        {"agent": 2, "share": 0.25, "now": False},
    ]  # fmt: skip
    assert participation_of(members, None, 3)[2] == {"agent": 2, "share": 0.25, "now": None}
    assert participation_of(None, [0, 1], 3) == []


def test_accuracy_and_calibration_are_those_that_were_stored(tmp_path):
    """Two agents, two draws: half and all of four rows right; calibration bin by bin."""
    run = gossip_run(tmp_path / "run", finish=False)
    assert look(run.path).classified is None
    accuracy = np.array([[[0.5, 0.5], [1.0, 0.5]]])
    run.store_beside("accuracy", {"accuracy": (("chain", "agent", "draw"), accuracy), "step": ("draw", [10, 20])})
    bins = ("agent", "bin")
    predictions = {
        "predicted": (("agent", "row"), [[0, 1, 1, 1], [0, 1, 1, 0]]), "label": ("row", [0, 1, 1, 0]),
        "bin_confidence": (bins, [[0.6, 0.9], [0.7, np.nan]]), "bin_accuracy": (bins, [[0.5, 1.0], [1.0, np.nan]]),
    }  # fmt: skip
    run.store_beside("predictions", predictions, {"agent": [0, 1]})
    found = look(run.path).classified
    assert [(one.name, one.points) for one in found.accuracy] == [
        ("agent 0", [(10, 50), (20, 50)]), ("agent 1", [(10, 100), (20, 50)]),
    ]  # fmt: skip
    assert [(one.name, one.points) for one in found.calibration] == [
        ("agent 0", [(0.6, 0.5), (0.9, 1.0)]), ("agent 1", [(0.7, 1.0)]),
    ]  # fmt: skip
    assert found.words == (
        "Accuracy of the last draws: 62.50 %. "
        "Averaged over draws, 87.50 % of the held-out inputs are classified rightly."
    )


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        require_watchable(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no run"):
        require_watchable(tmp_path)


def test_a_series_offers_its_runs(tmp_path):
    first = gossip_run(tmp_path / "agents-1", finish=False)
    shutil.copytree(first.path, tmp_path / "agents-5")
    (tmp_path / "figures").mkdir()
    assert list(places(tmp_path)) == ["agents-1", "agents-5"]
    (tmp_path / "report.html").write_text("<p>")
    (place, _) = places(tmp_path).values()
    assert Reader().snapshot(place).reports == [("Report of the series", tmp_path / "report.html")]


@pytest.mark.parametrize(
    ("plan", "step", "words"),
    [
        (gossip_plan(3, 1000), 250, "step 250 of 1,000"),
        (unison_plan(3, 100), 10, "warming up, move 10 of 20"),
        (unison_plan(3, 100), 60, "40 of 100 draws of a chain"),
    ],
)
def test_progress_is_told_in_the_plan_s_own_units(plan, step, words):
    found = progress_of(plan, step, max(0, step - plan.burn_in), 10.0, [], False)
    assert found.words == words
    assert 0 < found.share < 1


def test_progress_says_how_long_it_takes_and_that_nobody_samples():
    plan = unison_plan(3, 100)  # 20 moves of warm-up
    assert progress_of(plan, 10, 0, 5.0, [], False).left == "2 s of the warm-up left"
    assert progress_of(plan, 60, 40, 5.0, [], False).left == "12 s left"
    waiting = progress_of(plan, 60, 40, 5.0, [], False, waits=True)
    assert (waiting.words, waiting.rate, waiting.left) == (
        "40 of 100 draws of a chain, everybody waits", "", "",
    )  # fmt: skip


def test_a_run_that_was_cut_short_says_so(tmp_path):
    run = gossip_run(tmp_path / "run", finish=False)
    run.update_status(status="failed", message="agent 1 diverged")
    found = look(run.path)
    assert {one.state for one in found.agents} == {"failed"}
    assert found.notes == ["agent 1 diverged"]
    told = headline(found)
    assert told == ("✕ Failed", "agent 1 diverged", "not")
    RunDirectory(run.path).update_status(status="running")
    ((_, place),) = places(run.path).items()
    later = (run.path / "status.json").stat().st_mtime + 100
    assert {one.state for one in Reader().snapshot(place, now=later).agents} == {"silent"}


@pytest.mark.slow(reason="a warm-up of several windows")
def test_what_a_warm_up_found_is_seen_while_it_samples(tmp_path):
    seen = []

    def watching(_):
        found = look(tmp_path / "run").warmup
        seen.append((found.stage, found.facts.get("exchanges in a step, K"), len(found.windows)))

    plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.kinetic(), num_draws=400)
    run = cs.sample(problem(), plan, tmp_path / "run", progress=watching, checkpoint_seconds=0.0)
    windows = [number for _, _, number in seen]
    assert windows == sorted(windows)
    assert 0 < windows[-1] == len(run.summary["adaptation"]["windows"])
    assert seen[-1][1] == str(run.summary["adaptation"]["exchanges"])
