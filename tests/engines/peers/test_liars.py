"""A member that lies: what a lie does to the honest ones, how it is noticed, and how clipping bounds it.

The problem is Gaussian, and runs with and without a lie share all their randomness: for a linear sampler the lie
moves every position by what a linear equation says, to rounding. The temperature is low, so that a shift of one
stands out from the noise.
"""

import numpy as np
import pytest

import consilience as cs
from consilience.engines.peers.plausibility import FACTOR, Plausibility, clipped, surely_within
from consilience.errors import DivergedError, NetworkError
from consilience.theory import GaussianNetwork
from tests.engines.peers.test_network import plan_for, ring_of_five

LIAR, FIRST, ROUNDS = 2, 150, 600
STEP, CONSENSUS = 0.004, 0.2
HONEST = [0, 1, 3, 4]
PLAN = plan_for(cs.graphs.ring(5), burn_in=40, num_chains=4).replace(
    sampler=cs.dula(STEP, CONSENSUS, temperature=0.01), num_steps=ROUNDS, dtype="float64"
)


def shift(k, values):
    return tuple(one + 1.0 for one in values) if k >= FIRST else values


def drift(k, values):
    return tuple(one + 0.01 * max(0, k - FIRST) for one in values)


def flip(k, values):
    return tuple(3.0 - one for one in values) if k >= FIRST else values


def huge(k, values):
    return tuple(np.full_like(one, 1e30) for one in values) if k >= FIRST else values


LIES = {"shift": shift, "drift": drift, "flip": flip, "huge": huge}


def moved_by(shift_of_one, graph):
    """By how much a shift of the liar's messages moves every agent's mean, `(agents, size)`."""
    network = GaussianNetwork.of(ring_of_five(), graph)
    n, size = network.precisions.shape[:2]
    laplacian = graph.laplacian.toarray()
    system = CONSENSUS * np.kron(laplacian, np.eye(size))
    for agent, precision in enumerate(network.precisions):
        block = slice(agent * size, (agent + 1) * size)
        system[block, block] += STEP * n * precision
    pulled = CONSENSUS * -laplacian[:, LIAR]
    pulled[LIAR] = 0.0  # it knows its own position
    return np.linalg.solve(system, np.kron(pulled, shift_of_one)).reshape(n, size)


def positions(runs):
    """The last position of each, mean over chains."""
    return np.array([run.draws["w"].to_numpy()[:, 0, -1].mean(0) for run in runs])


class Trial:
    """A network with a liar, or with none, brought to its end."""

    def __init__(self, laboratory, lie=None, **options):
        self.lab = laboratory(PLAN, **options)
        if lie is not None:
            self.lab.lie[LIAR] = lie
        self.lab.start_all()
        self.found = positions(self.lab.runs(range(5)))

    def doubts(self):
        return {agent: dict(node.members.implausible) for agent, node in self.lab.nodes.items()}

    def limit(self, agent):
        node = self.lab.nodes[agent]
        return node.rounds.plausibility.limit(node.rounds.neighbours.index(LIAR), ROUNDS)


@pytest.fixture
def truth(laboratory):
    """The control: nobody lies, and nobody is doubted."""
    trial = Trial(laboratory)
    assert not any(trial.doubts().values())
    return trial.found


@pytest.mark.slow(reason="two networks of five nodes")
def test_a_shift_moves_everybody_by_what_the_arithmetic_says_and_is_noticed(laboratory, truth, caplog):
    trial = Trial(laboratory, shift)
    expected = moved_by(np.ones(3), PLAN.graph)
    np.testing.assert_allclose(trial.found - truth, expected, rtol=0.02)
    assert np.abs(expected[HONEST]).min() > 0.1  # far more than wrong data would do
    told = [record.getMessage() for record in caplog.records if "implausible" in record.getMessage()]
    for agent, said in zip((1, 3), told, strict=False):  # later ones doubt each other too, as all are pulled apart
        assert said.startswith(f"agent {agent}: what agent {LIAR} says in round {FIRST} is implausible")
        assert trial.doubts()[agent][LIAR] == ROUNDS - FIRST


@pytest.mark.slow(reason="six more networks of five nodes")
@pytest.mark.parametrize("name", LIES)
def test_clipping_bounds_every_lie(laboratory, truth, name):
    """What gets through of a lie is at most the limit and the honest distance, in any direction."""
    trial = Trial(laboratory, LIES[name], on_implausible="clip")
    most = max(trial.limit(agent) * (1 + 1 / FACTOR) for agent in (1, 3))
    bound = np.linalg.norm(moved_by(np.array([1.0, 0, 0]), PLAN.graph)[HONEST], axis=1).max() * 3 * most
    assert np.linalg.norm(trial.found - truth, axis=1)[HONEST].max() < bound
    assert trial.doubts()[1][LIAR] > 0
    assert trial.doubts()[3][LIAR] > 0


@pytest.mark.slow(reason="four more networks of five nodes")
@pytest.mark.parametrize("name", LIES)
def test_a_network_may_stop_for_a_lie(laboratory, name):
    lab = laboratory(PLAN, on_implausible="stop")
    lab.lie[LIAR] = LIES[name]
    lab.start_all()
    for agent in range(5):
        error = lab.until_ended(agent)
        assert isinstance(error, NetworkError | DivergedError)
        assert f"what agent {LIAR} says" in str(error)


@pytest.mark.slow(reason="one more network of five nodes")
def test_an_honest_agent_that_was_cut_off_is_not_doubted(laboratory):
    """Agents that were cut off have gone apart: nobody is judged while an edge is not in use, nor soon after."""
    lab = laboratory(PLAN, on_loss="continue", patience=1.0, on_implausible="stop")
    lab.start_all()
    lab.until(lambda: len(lab.nodes) == 5 and min(lab.rounds(*range(5))) > 120, "round 120")
    lab.cut |= {frozenset((1, LIAR)), frozenset((LIAR, 3))}
    lab.until(lambda: min(lab.rounds(*range(5))) > 300, "round 300")
    lab.cut.clear()
    assert all(run.complete for run in lab.runs(range(5)))


def test_both_ends_share_a_limit_and_cut_by_the_same_amount():
    """Clipping is antisymmetric: what one end is moved by, the other is moved by the other way."""
    rng = np.random.default_rng(4)
    first, second = Plausibility(1, PLAN), Plausibility(1, PLAN)
    learned = range(PLAN.burn_in, PLAN.burn_in + first.length)
    for k in learned:
        a, b = (rng.normal(size=(2, 3)).astype(np.float32),), (rng.normal(size=(2, 3)).astype(np.float32),)
        np.testing.assert_array_equal(first.distances(0, k, a, b), second.distances(0, k, b, a))
    k = learned.stop
    assert first.limit(0, k) == second.limit(0, k) < np.inf
    assert first.limit(0, k - 1) == np.inf
    near, far = (np.zeros((2, 3)),), (np.array([[1e30, -1e30, 3.0], [0.1, 0.2, 0.3]]),)
    distances, limit = first.distances(0, k, near, far), first.limit(0, k)
    for scale in (1e-200, 0.1, 1.0, 2.0, 1e200):  # what is quickly found to be within is within
        other = (scale * rng.normal(size=(2, 3)),)
        within = bool(first.distances(0, k, near, other).max() <= limit)
        assert surely_within(limit, near, other) <= within
    assert surely_within(limit, near, (np.full((2, 3), 0.1 * limit),))
    there, back = clipped(near, far, distances, limit), clipped(far, near, distances, limit)
    moved = there[0] - near[0]
    np.testing.assert_allclose(moved, far[0] - back[0], rtol=1e-12, atol=1e14)  # 1e30 has no digits below that
    np.testing.assert_allclose(np.linalg.norm(moved[0]), limit)
    np.testing.assert_array_equal(there[0][1], far[0][1])  # what is plausible is not touched, to the bit
