"""What step size and exchanges follow from: the largest curvatures of all agents together, and of one of them."""

import numpy as np
import pytest

import consilience as cs
from consilience.errors import DivergedError
from consilience.kernel.whitening import Dense
from consilience.samplers.mixing import contraction
from consilience.warmup.curvature import curvature
from consilience.warmup.derivatives import Derivatives
from consilience.warmup.network import Network

AGENTS, SHARED = 4, 3


class Potentials:
    """Hessians that are the given ones times the first parameter of the first agent."""

    def __init__(self, hessians):
        self.hessians = hessians

    def at(self, positions):
        agents, size = positions.shape
        return Derivatives(np.zeros(agents), np.zeros((agents, size)), positions[0, 0] * self.hessians)


def looked_at(hessians, whitening, factors=(1.0,)):
    """`Λ` and `ℓ` at places at which the Hessians have these factors."""
    agents, size = hessians.shape[:2]
    network = Network(np.arange(agents), agents, lambda values: values.sum(0))
    places = np.broadcast_to(np.asarray(factors)[:, None, None], (len(factors), agents, size))
    return curvature(Potentials(hessians), network, whitening, places)


def matrices(rng, count, size):
    """Positive definite ones, of which some are much larger than others."""
    roots = rng.normal(size=(count, size, size)) * np.geomspace(0.3, 3, count)[:, None, None]
    return roots @ roots.swapaxes(1, 2)


def dense(rng, private=0):
    """Coordinates whose root is not symmetric, with `private` parameters of each agent."""
    roots = 0.3 * rng.normal(size=(AGENTS, private, private)) + np.eye(private)
    shear = rng.normal(size=(AGENTS, private, SHARED))
    root = np.eye(SHARED) + np.triu(rng.normal(size=(SHARED, SHARED)), 1)
    return Dense(np.zeros(SHARED), root, np.zeros((AGENTS, private)), roots, shear)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_they_are_those_of_the_definition_and_numbers_follow(rng):
    """At nine of ten draws curvature is at most `Λ`; `θ ℓ ≤ 0.3` with as few exchanges as that takes."""
    hessians, whitening = matrices(rng, AGENTS, SHARED), dense(rng)
    factors = np.append(np.ones(9), [2.0, 7.0])
    found = looked_at(hessians, whitening, factors)
    inside = whitening.root.T @ hessians @ whitening.root
    largest = 2 * np.linalg.eigvalsh(inside.sum(0))[-1]
    assert found.largest == pytest.approx(largest)
    assert found.excess == pytest.approx(AGENTS * 2 * np.linalg.eigvalsh(inside)[:, -1].max() / largest)
    turned = whitening._replace(root=whitening.root.T)
    assert looked_at(hessians, turned, factors).largest != pytest.approx(largest, rel=0.05)  # the control: S for Sᵀ
    assert cs.kinetic().step_for(found.largest) == pytest.approx(0.45 / largest**0.5)
    assert cs.langevin().step_for(found.largest) == pytest.approx(0.05 / largest)
    graph = cs.graphs.path(AGENTS)
    count = cs.kinetic().exchanges_on(graph, found.excess)
    assert contraction(graph, count) * found.excess <= 0.3 < contraction(graph, count - 1) * found.excess


def test_agents_that_are_alike_have_no_excess():
    same = np.broadcast_to(np.diag([1.0, 0.5, 0.2]) / AGENTS, (AGENTS, SHARED, SHARED))
    plain = Dense(*dense(np.random.default_rng(0)))._replace(root=np.eye(SHARED))
    assert looked_at(same, plain) == pytest.approx((1.0, 1.0))


def test_with_private_parameters_it_bounds_the_whole_networks_hessian(rng):
    """Everybody's blocks in one matrix have no larger eigenvalue; the shared ones' block alone has a smaller one."""
    hessians, whitening = matrices(rng, AGENTS, SHARED + 2), dense(rng, private=2)
    whole = np.zeros((SHARED + 2 * AGENTS,) * 2)
    for agent, hessian in enumerate(hessians):
        change = np.zeros((SHARED + 2, SHARED + 2))
        change[:SHARED, :SHARED] = whitening.root
        change[SHARED:, :SHARED] = whitening.shear[agent] @ whitening.root
        change[SHARED:, SHARED:] = whitening.own_root[agent]
        both = [*range(SHARED), *range(SHARED + 2 * agent, SHARED + 2 * agent + 2)]
        whole[np.ix_(both, both)] += change.T @ hessian @ change
    largest = np.linalg.eigvalsh(whole)[-1]
    assert largest <= looked_at(hessians, whitening).largest < 1.5 * largest
    assert np.linalg.eigvalsh(whole[:SHARED, :SHARED])[-1] < largest


@pytest.mark.parametrize("private", [0, 2])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_no_number_at_one_agent_is_refused_by_all(private, value, rng):
    """In words: an agent that ended in its own arithmetic would leave the others waiting for a sum."""
    hessians, whitening = matrices(rng, AGENTS, SHARED + private), dense(rng, private)
    hessians[2, -1, -1] = value
    with pytest.raises(DivergedError, match="not finite"):
        looked_at(hessians, whitening)
