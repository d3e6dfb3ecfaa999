"""The law of `kinetic` and `langevin` written down once more, with NumPy and from their formulas alone.

`ExactLaw` linearises the very step that engines make. It would follow a wrong step as truly as a right one, so its
matrices are compared here with matrices that share no code with them.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.engines.simulate import Simulation
from consilience.errors import UnstableError
from consilience.samplers import Kinetic
from consilience.theory import ExactLaw, GaussianNetwork
from tests.engines.final_positions import final_positions
from tests.gaussian import regression
from tests.statistical import rejects_covariance, rejects_mean

STEPS = 40
SIZES = (3, 9, 14, 2, 17, 6)
GRAPHS = {
    "ring": cs.graphs.ring(5), "star": cs.graphs.star(5), "barbell": cs.graphs.barbell(6), "path": cs.graphs.path(4),
    "random": cs.graphs.erdos_renyi(6, 0.5, seed=3), "complete": cs.graphs.complete(3),
}  # fmt: skip
NUMBERS = {"kinetic": {"step_size": 0.05, "friction": 1.5}, "langevin": {"step_size": 0.003}}
MADE = {"kinetic": cs.kinetic, "langevin": cs.langevin}
QUICK = [
    ("ring", "kinetic", 1, "own"), ("star", "langevin", 5, "own"), ("barbell", "kinetic", 5, "common"),
    ("random", "langevin", 1, "common"),
]  # fmt: skip


class Affine(NamedTuple):
    """`x⁺ = A x + b + B ξ`; the positions come first."""

    transition: np.ndarray
    push: np.ndarray
    noise: np.ndarray


def mixing(laplacian, exchanges):
    """`Q` by Chebyshev's recurrence, or `(Q + θI)/(1 + θ)` where `θ` is above a half."""
    spectrum, identity = np.linalg.eigvalsh(laplacian), np.eye(len(laplacian))
    middle, half = (spectrum[-1] + spectrum[1]) / 2, (spectrum[-1] - spectrum[1]) / 2
    toward = middle * identity - laplacian
    if half < 1e-12:
        return toward / middle
    ratio = middle / half
    sizes, before, now = [1.0, ratio], identity, toward / (half * ratio)
    for k in range(1, exchanges):
        sizes.append(2 * ratio * sizes[k] - sizes[k - 1])
        following = 2 * sizes[k] / sizes[k + 1] * toward @ now / half - sizes[k - 1] / sizes[k + 1] * before
        before, now = now, following
    theta = 1 / sizes[exchanges]
    return now if theta <= 0.5 else (now + theta * identity) / (1 + theta)


def by_hand(network, kind, exchanges, noise, *, numbers=None, half=0.5, noise_agents=None):
    """A step of all agents; `half` and `noise_agents` are there to be wrong in controls."""
    n, d = network.linear.shape
    one, nothing = np.eye(n * d), np.zeros((n * d, n * d))
    q = np.kron(mixing(network.graph.laplacian.toarray(), exchanges), np.eye(d))
    hessian = np.zeros((n * d, n * d))
    for i in range(n):
        hessian[i * d : (i + 1) * d, i * d : (i + 1) * d] = n * network.precisions[i]
    linear = n * network.linear.ravel()
    spread = one if noise == "own" else np.kron(np.ones((n, 1)), np.eye(d))
    agents = (n if noise == "own" else 1) if noise_agents is None else noise_agents
    numbers = numbers or NUMBERS[kind]
    step = numbers["step_size"]
    if kind == "langevin":  # of (u, s)
        z = Affine(np.hstack([one - step * hessian, -one]), step * linear, np.sqrt(2 * step * agents) * spread)
        y, rest = z, np.hstack([nothing, one])
    else:  # of (u, v, s)
        kept = np.exp(-numbers["friction"] * step)
        pushed = Affine(np.hstack([-step * hessian, one, -one]), step * linear, nothing)
        z = Affine(kept * pushed.transition, kept * pushed.push, np.sqrt((1 - kept**2) * agents) * spread)
        y = Affine(
            np.hstack([one, nothing, nothing]) + step / 2 * (pushed.transition + z.transition),
            step / 2 * (pushed.push + z.push),
            step / 2 * z.noise,
        )
        rest = np.hstack([nothing, nothing, one])
    moved = half * (one - q)
    rows = [[q @ part for part in y], *([[q @ part for part in z]] if kind == "kinetic" else [])]
    rows.append([rest + moved @ z.transition, moved @ z.push, moved @ z.noise])
    return Affine(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))


def moments(step, size, num_steps=STEPS):
    """Mean and covariance of the positions after so many steps from 0."""
    mean, covariance = np.zeros(len(step.push)), np.zeros((len(step.push), len(step.push)))
    for _ in range(num_steps):
        mean = step.transition @ mean + step.push
        covariance = step.transition @ covariance @ step.transition.T + step.noise @ step.noise.T
    return mean[:size], covariance[:size, :size]


@functools.cache
def network_on(graph):
    """Agents with unequal shards, each about a centre of its own."""
    return GaussianNetwork.of(regression(SIZES[: graph.num_agents], noise_variance=4.0), graph)


def sampler_of(kind, exchanges, noise):
    return MADE[kind](**NUMBERS[kind], exchanges=exchanges, noise=noise, whitening="none")


def by_linearising(network, sampler):
    """What `ExactLaw` makes of a sampler's step, whose numbers are the same in every step.

    Without a program for each law: that takes longer to compile than its step takes to make.
    """
    with jax.disable_jit():
        return moments(Affine(*ExactLaw(network, sampler).step(0)[:3]), network.linear.size)


def difference(found, formulas):
    """How far two laws are apart, as a share of the largest entries."""
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, formulas, strict=True))


@pytest.mark.parametrize(("graph", "kind", "exchanges", "noise"), [
    pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow(reason="many laws")])
    for graph in GRAPHS for kind in MADE for exchanges in (1, 2, 5) for noise in ("own", "common")
    for case in [(graph, kind, exchanges, noise)]
])  # fmt: skip
def test_the_law_is_that_of_the_formulas(graph, kind, exchanges, noise):
    network = network_on(GRAPHS[graph])
    formulas = moments(by_hand(network, kind, exchanges, noise), network.linear.size)
    assert difference(by_linearising(network, sampler_of(kind, exchanges, noise)), formulas) < 1e-10


class MomentaOnly(Kinetic):
    """Mixes only the momenta: positions are not pulled together."""

    def step(self, state, gradient, message, mixed, coefficients, noise):
        found = super().step(state, gradient, message, mixed, coefficients, noise)
        return found._replace(position=message[0])


def test_momenta_only_and_wrong_factors_are_caught():
    """A law by linearising follows a wrong step as well. It is not the law of the formulas: that is what catches it.

    Then the contract's test of laws fails for it: 4,000 chains contradict the law of kinetic (false-alarm rate 1e-6).
    """
    graph, problem = cs.graphs.path(4), regression(SIZES[:4], noise_variance=4.0)
    network, right = network_on(graph), sampler_of("kinetic", 2, "own")
    wrong = MomentaOnly(**right.model_dump(exclude={"kind"}))
    formulas = moments(by_hand(network, "kinetic", 2, "own"), network.linear.size)
    followed = by_linearising(network, wrong)
    assert difference(followed, formulas) > 0.05
    for factors in ({"noise_agents": 1}, {"half": 1.0}):  # no `n` in the noise; no ½ in the correction
        mistaken = moments(by_hand(network, "kinetic", 2, "own", **factors), network.linear.size)
        assert difference(mistaken, formulas) > 1e-3
    plan = cs.Plan(graph=graph, sampler=right, num_steps=STEPS, num_chains=4000)
    positions = final_positions(problem, plan, Simulation(problem, plan.model_copy(update={"sampler": wrong})))
    assert rejects_covariance(positions, *formulas)
    assert not rejects_mean(positions, followed[0])
    assert not rejects_covariance(positions, *followed)
    with pytest.raises(UnstableError, match="no stationary law"):
        ExactLaw(network, wrong).stationary()


def test_positions_times_slopes_are_one():
    """`E[(u_k − m_k) ∂_k U] = 1` for every coordinate of every agent, as for any law `exp(−U)`.

    On a complete graph kinetic is exact for normal laws, but for what is left of the start, less than 1e-3. 4,000
    chains, false-alarm rate 1e-6. The control: the same draws as noise of variance 1 instead of `n` would make them.
    """
    problem, numbers = regression((4, 7, 12), noise_variance=4.0), {"step_size": 0.3, "friction": 1.0}
    network = GaussianNetwork.of(problem, cs.graphs.complete(3))
    sampler = cs.kinetic(**numbers, exchanges=1, whitening="none")
    plan = cs.Plan(graph=network.graph, sampler=sampler, num_steps=60, num_chains=4000)
    step = by_hand(network, "kinetic", 1, "own", numbers=numbers)
    assert difference(moments(step, 6, plan.num_steps), moments(step, 6, 5000)) < 1e-3
    away = final_positions(problem, plan).reshape(-1, 3, 2) - network.posterior.mean
    products = (away * (away @ network.precisions.sum(0))).reshape(-1, 6)
    assert not rejects_mean(products, np.ones(6))
    assert rejects_mean(products / 3, np.ones(6))
