"""Several nodes' runs become one: the draws they share, the error between them, and what does not fit is told."""

import json
import shutil

import numpy as np
import pytest
import zarr

import consilience as cs
from consilience.deployment import merging
from consilience.deployment.merging import merge
from consilience.deployment.networks import node_runs
from consilience.diagnostics import consensus_error
from consilience.errors import DataError, RunError
from consilience.experiments import finishing
from consilience.reports import Section
from consilience.runs.summary import flat_draws
from tests.engines.peers.running import sample_by_peers

pytestmark = pytest.mark.slow(reason="a network of three nodes")

PLAN = cs.Plan(
    problem="tests.deployment.test_merging:sensors", graph=cs.graphs.ring(3), num_steps=40, burn_in=8, num_chains=2,
    sampler=cs.dula(step_size=1e-3, consensus=0.2),
)  # fmt: skip


def sensors():
    rng = np.random.default_rng(3)
    return cs.models.linear_regression([(rng.normal(size=(m, 2)), rng.normal(size=m)) for m in (4, 9, 6)])


class Study:
    """An experiment that adds one entry."""

    def analyse(self, run, problem, summary, show):
        summary["rows"] = int(problem.shard_sizes.sum())

    def sections(self, run):
        return [Section("What the study found", f"{run.summary['rows']} rows")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A network whose nodes are done, and `simulate`'s run of the same plan."""
    place = tmp_path_factory.mktemp("merging")
    sample_by_peers(PLAN, place / "network", insecure=True)
    return place / "network", cs.sample(sensors(), PLAN, place / "whole")


@pytest.fixture
def nodes(made, tmp_path):
    """Copies of the nodes' runs, to change."""
    shutil.copytree(made[0] / "runs", tmp_path / "runs")
    return [tmp_path / "runs" / f"agent-{agent}" for agent in range(3)]


def test_a_merged_run_is_that_of_simulate(made, tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "_BLOCK_BYTES", 300)  # several blocks
    for module in (finishing, merging.experiments):
        monkeypatch.setattr(module, "find", lambda name: Study())
    network, simulated = made
    run = merge(list(reversed(node_runs(network))), tmp_path / "run", sensors())
    assert run.draws.sizes == simulated.draws.sizes
    for name in ("w", "step", "weight", "draw", "agent"):
        np.testing.assert_allclose(run.draws[name], simulated.draws[name], atol=2e-5)
    draws, _ = flat_draws(run, np.arange(3))
    np.testing.assert_allclose(run.metrics["consensus_error"], consensus_error(np.moveaxis(draws, 1, 2)), rtol=1e-5)
    assert run.metrics["step"].to_numpy().tolist() == run.draws["step"].to_numpy().tolist()
    assert set(run.summary) == {*simulated.summary, "nodes", "rows", "participation"}
    assert run.summary["agents"][1]["mean"] == pytest.approx(simulated.summary["agents"][1]["mean"], abs=1e-4)
    assert [node["agent"] for node in run.summary["nodes"]] == [0, 1, 2]
    page = cs.Run(run.path).report().read_text()
    assert "The nodes" in page
    assert "19 rows" in page


def test_it_may_be_merged_again_but_replaces_nothing_else(made, tmp_path):
    network, simulated = made
    out = tmp_path / "run"
    cs.Run(merge(node_runs(network), out).path).report()
    assert merge(node_runs(network), out).complete
    assert not (out / merging._DRAFT).exists()
    with pytest.raises(RunError, match="already holds a run"):
        merge(node_runs(network), simulated.path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty"):
        merge(node_runs(network), tmp_path / "notes")


def forget_draws(path, wanted):
    """Leave only some draws in a node's run, as if it had been away meanwhile."""
    group = cs.Run(path).draw_group()
    for array in group._arrays.values():
        if "draw" in (array.metadata.dimension_names or ()):
            axis = array.metadata.dimension_names.index("draw")
            kept = np.take(array[...], wanted, axis)
            place = [slice(None)] * kept.ndim
            place[axis] = slice(0, len(wanted))
            array[tuple(place)] = kept
    group.commit(len(wanted))


def test_only_draws_that_all_nodes_have(made, nodes, tmp_path):
    forget_draws(nodes[1], [0, 1, 2, 7, 8, 9, 30])
    forget_draws(nodes[2], [2, 3, 8, 9, 30, 31])
    run = merge(nodes, tmp_path / "run")
    assert run.draws["draw"].to_numpy().tolist() == [2, 8, 9, 30]
    np.testing.assert_allclose(run.draws["w"], made[1].draws["w"][:, :, [2, 8, 9, 30]], atol=2e-5)
    assert run.draws["step"].to_numpy().tolist() == [11, 17, 18, 39]
    assert run.summary["num_draws"] == 4
    forget_draws(nodes[0], [5])
    with pytest.raises(RunError, match="no draw is there from every node"):
        merge(nodes, tmp_path / "none")


def test_who_took_part_is_kept_for_every_agent(nodes, tmp_path):
    for agent, path in enumerate(nodes):
        place = zarr.open_group(path / "draws.zarr" / "posterior", mode="r+", use_consolidated=False)
        array = place.create_array("participation", shape=(32, 3), dtype="uint8", dimension_names=("draw", "member"))
        array[...] = agent != 2
        cs.Run(path).draw_group().commit(32)
        summary = json.loads((path / "summary.json").read_text())
        (path / "summary.json").write_text(json.dumps({**summary, "participation": [1.0, 1.0, 0.5]}))
    run = merge(nodes, tmp_path / "run")
    assert run.draws["participation"].dims == ("agent", "draw", "member")
    assert run.draws["participation"].to_numpy().mean((1, 2)).tolist() == [1, 1, 0]
    assert run.summary["nodes"][0]["participation"] == [1.0, 1.0, 0.5]
    run.to_arviz()


def test_nodes_that_make_no_network_are_told(made, nodes, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(RunError, match="the run of agent 1 is not given"):
        merge([nodes[0], nodes[2]], out)
    with pytest.raises(RunError, match="agent 0 is given twice"):
        merge([nodes[0], nodes[0], nodes[1]], out)
    with pytest.raises(RunError, match="no node's run"):
        merge([made[1].path, nodes[1]], out)
    cs.Run(nodes[1]).update_status(status="running")
    with pytest.raises(RunError, match=r"agent 1 has not finished .* is running"):
        merge(nodes, out)
    (nodes[2] / "plan.toml").write_text(PLAN.replace(seed=3).to_toml())
    with pytest.raises(RunError, match="differs in seed"):
        merge(nodes, out)
    assert not out.exists()


def test_without_the_data_the_rest_is_reported(nodes, tmp_path, monkeypatch, caplog):
    def missing(plan):
        raise DataError("no data here")

    monkeypatch.setattr(merging.experiments, "load_problem", missing)
    for module in (finishing, merging.experiments):
        monkeypatch.setattr(module, "find", lambda name: Study())
    run = merge(nodes, tmp_path / "run", theory=True, allow=["tests.deployment.test_merging"])
    assert "no data here" in caplog.text
    assert "rows" not in run.summary
    assert cs.Run(run.path).report().exists()
