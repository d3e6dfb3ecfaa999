"""Private parameters on every engine: their exact law, the same draws everywhere, and nothing of them in a message.

2,000 independent chains give mean and covariance of all agents. Each comparison has a false-alarm rate of 1e-6
(Bonferroni over entries); seeds are fixed.
"""

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import consilience as cs
from consilience.engines import simulate
from consilience.engines.mesh import engine
from consilience.engines.mesh.engine import MeshSimulation
from consilience.engines.peers import agent_step
from consilience.engines.peers.agent_step import AgentStep
from consilience.engines.peers.messages import Codec
from consilience.engines.peers.node import Node
from consilience.engines.simulate import Simulation
from consilience.errors import InputError, ProblemError
from consilience.kernel.curvature import largest_curvature
from consilience.predictive.draws import parameter_draws
from consilience.theory import Potentials
from tests.engines.final_positions import final_positions
from tests.engines.peers.running import assert_same_draws, sample_by_peers
from tests.hierarchical import PRIOR, quadratics, ragged, sites
from tests.samplers.last_word import LastWord
from tests.statistical import rejects_covariance, rejects_mean

ALPHA, BETA = 0.02, 0.2


def recursion(problem, graph, num_steps, private_factor=1.0, alpha=ALPHA):
    """Moments of all agents' (mean, effect) by D-ULA, with a factor in place of `n` on the private block."""
    n = problem.num_agents
    hessians, linear = quadratics(problem)
    drift = alpha * np.tile([n, private_factor], n)
    hessian = np.zeros((2 * n, 2 * n))
    for i in range(n):
        hessian[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = hessians[i]
    transition = (
        np.eye(2 * n) - BETA * np.kron(graph.laplacian.toarray(), np.diag([1.0, 0.0])) - drift[:, None] * hessian
    )
    noise, push = np.diag(2 * drift), drift * linear.ravel()
    if num_steps is None:
        mean = np.linalg.solve(np.eye(2 * n) - transition, push)
        return mean, solve_discrete_lyapunov(transition, noise)
    mean, covariance = np.zeros(2 * n), np.zeros((2 * n, 2 * n))
    for _ in range(num_steps):
        mean, covariance = transition @ mean + push, transition @ covariance @ transition.T + noise
    return mean, covariance


def test_d_ula_follows_the_exact_recursion_and_no_other():
    """The wrong law, `n` in the private block too, is rejected."""
    problem, graph = sites([3, 9, 5]), cs.graphs.path(3)
    plan = cs.Plan(graph=graph, sampler=cs.dula(ALPHA, BETA), num_steps=25, num_chains=2000)
    found = final_positions(problem, plan)
    exact, wrong = recursion(problem, graph, 25), recursion(problem, graph, 25, private_factor=3.0)
    assert not rejects_mean(found, exact[0])
    assert not rejects_covariance(found, *exact)
    assert rejects_covariance(found, *wrong)


def test_that_recursion_ends_at_the_posterior():
    """For small steps: private effects, and the average of the agents' shared means, have the posterior's moments."""
    problem, graph = sites([3, 9, 5]), cs.graphs.complete(3)
    hessians, linear = quadratics(problem)
    precision = np.zeros((4, 4))  # the common mean, then three effects
    for i, own in enumerate(hessians):
        place = np.ix_([0, 1 + i], [0, 1 + i])
        precision[place] += own
    covariance = np.linalg.inv(precision)
    mean = covariance @ np.array([linear[:, 0].sum(), *linear[:, 1]])
    assert hessians[:, 0, 0].sum() > 1 / PRIOR
    found = recursion(problem, graph, None, alpha=1e-5)
    effects, average = [1, 3, 5], np.tile([1 / 3, 0.0], 3)
    np.testing.assert_allclose(found[0][effects], mean[1:], atol=2e-3)
    np.testing.assert_allclose(np.diag(found[1])[effects], np.diag(covariance)[1:], rtol=5e-3)
    np.testing.assert_allclose(average @ found[1] @ average, covariance[0, 0], rtol=5e-3)


SAMPLERS = {
    "dula": cs.dula(0.004, 0.2),
    "sghmc": cs.sghmc(0.02, 0.2, friction=1.0),
    "speaks last": LastWord(step_size=0.02),
}


def plan_of(sampler, **entries):
    return cs.Plan.model_construct(
        **{**cs.Plan(graph=cs.graphs.path(3), sampler=SAMPLERS["dula"], num_steps=20, **entries).__dict__,
           "sampler": sampler}
    )  # fmt: skip


@pytest.fixture
def usable(monkeypatch):
    """The problem is sound; to check that would compile more programs for each engine and node than the test does."""
    for module in (simulate, engine, agent_step):
        monkeypatch.setattr(module, "require_usable", lambda *arguments: None)
    monkeypatch.setattr(Node, "largest_curvature", lambda self: 1.0)


@pytest.mark.slow(reason="three engines to compile")
@pytest.mark.parametrize("name", ["speaks last", "dula", "sghmc"])
@pytest.mark.usefixtures("usable")
def test_mesh_and_nodes_take_the_steps_of_simulate(name):
    """Bare engines: a device's program, and nodes that hand each other their messages, which hold what is shared."""
    problem, plan = ragged((2, 3, 2)), plan_of(SAMPLERS[name], num_chains=2)
    simulation, mesh = Simulation(problem, plan), MeshSimulation(problem, plan)
    expected = simulation.advance(simulation.initial_state(), 0, 20)[1]
    found = mesh.advance(mesh.initial_state(), 0, 20)[1]
    np.testing.assert_allclose(found.draws[:, :, np.argsort(mesh.agents)], expected.draws, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.metrics["consensus_error"], expected.metrics["consensus_error"], rtol=1e-4)

    neighbours = {0: {1: 1.0}, 1: {0: 1.0, 2: 1.0}, 2: {1: 1.0}}
    nodes = [AgentStep(problem.of_agent(agent), plan, agent, ones) for agent, ones in neighbours.items()]
    assert [node.parameters.size for node in nodes] == [7, 8, 7]
    assert {shape for node in nodes for shape, _ in node.message_shapes} == {(2, 4)}
    states = [node.initial_state() for node in nodes]
    for k in range(20):
        ready = [node.prepare(state, np.int32(k)) for node, state in zip(nodes, states, strict=True)]
        said = [node.message(*both) for node, *both in zip(nodes, states, ready, strict=True)]
        others = [
            tuple(np.stack([said[j][leaf] for j in neighbours[i]]) for leaf in range(len(said[i]))) for i in range(3)
        ]
        states = [nodes[i].finish(states[i], ready[i], said[i], others[i]) for i in range(3)]
    for agent, (node, state) in enumerate(zip(nodes, states, strict=True)):
        last = expected.draws[-1, :, agent, : node.parameters.size]
        np.testing.assert_allclose(node.position(state)[:, 0], last, rtol=1e-4, atol=1e-5)


@pytest.mark.slow(reason="a network of nodes")
@pytest.mark.usefixtures("usable")
def test_a_network_sends_no_private_number_and_stores_what_simulate_does(tmp_path, monkeypatch):
    """All bytes that nodes put on the wire are searched for the bytes of every private number they ever had."""
    sent, encode = [], Codec.encode
    monkeypatch.setattr(Codec, "encode", lambda *arguments: sent.append(encode(*arguments)) or sent[-1])
    problem = ragged((2, 3))
    plan = cs.Plan(graph=cs.graphs.path(2), sampler=cs.dula(0.004, 0.2), num_steps=12)
    run = cs.sample(problem, plan, tmp_path / "simulate")
    simulation = Simulation(problem, plan)
    free = simulation.advance(simulation.initial_state(), 0, 12)[1].draws
    found, runs = sample_by_peers(plan, tmp_path / "network", problem, insecure=True)
    assert_same_draws(found, run)
    assert runs[0].draws["own.effect"].shape[3:] == (2,)
    everything = b"".join(sent)
    stored = [node.draws[name].to_numpy() for node in runs for name in ("own.effect", "own.slope")]
    numbers = np.concatenate([values.ravel() for values in [*stored, free[..., 4:]]])
    assert len(sent) >= 2 * 12
    assert not [one for one in numbers[(numbers != 0) & np.isfinite(numbers)] if one.tobytes() in everything]
    shared = np.concatenate([node.draws["mean"].to_numpy().ravel()[:-1] for node in runs])
    assert all(one.tobytes() in everything for one in shared)


@pytest.mark.slow(reason="a run with its report")
def test_a_run_is_summarised_and_read_back(tmp_path):
    problem = ragged((2, 3))
    plan = cs.Plan(graph=cs.graphs.path(2), sampler=cs.dula(0.004, 0.2), num_steps=40, num_chains=2)
    run = cs.sample(problem, plan, tmp_path / "run")
    assert run.draws.attrs["private"] == ["own.effect", "own.slope"]
    assert set(run.network_average().data_vars) == {"mean", "scale", "shares"}
    summary = run.summary
    place = summary["parameters"].index("own.effect[0]")
    assert summary["network_average"]["mean"][place] is None
    assert summary["rhat_across_agents"][place] is None
    assert summary["agents"][0]["mean"][place] is not None
    assert summary["agents"][0]["mean"][summary["parameters"].index("own.effect[2]")] is None
    assert (run.draws["scale"] > 0).all()
    np.testing.assert_allclose(run.draws["shares"].sum("shares_dim_0"), 1, rtol=1e-5)
    with pytest.raises(InputError, match="there are none of agent 1: name one that is here"):
        next(parameter_draws(run.draws.isel(agent=[0]), 1))  # as at site 0
    tree = next(parameter_draws(run.draws, 1))
    assert tree["own"]["effect"].shape[1:] == (3,)
    assert not np.isnan(tree["own"]["effect"]).any()
    run.report()


def test_curvature_counts_the_private_block_without_n():
    """`n` times it is the largest eigenvalue of what a step multiplies: `n` on shared, 1 on private entries."""
    problem = sites([3, 9, 5])
    hessians, _ = quadratics(problem)
    root = np.sqrt(np.diag([3.0, 1.0]))
    expected = max(np.linalg.eigvalsh(root @ own @ root)[-1] for own in hessians)
    assert 3 * largest_curvature(problem, 0, "float64") == pytest.approx(expected, rel=1e-6)


def test_what_is_not_for_private_parameters_says_so():
    with pytest.raises(ProblemError, match="effect is private"):
        Potentials(sites([3, 4]))
    with pytest.raises(ProblemError, match="scale"):
        Potentials(cs.Problem(
            log_likelihood=lambda p, x: x, log_prior=lambda p: 0.0, shards=[np.ones(2)],
            init=lambda key: {"scale": np.ones(1, np.float32)}, constraints={"scale": "positive"},
        ))  # fmt: skip
