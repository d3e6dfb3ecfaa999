"""What an effective draw costs: gradients against NumPyro's pooled NUTS, and rounds of messages against D-ULA.

Gradients are those of all chains after the warm-up, effective draws those of the worst parameter (bulk). For
NumPyro the same model is one log-density of all agents' rows, on the same unconstrained coordinates.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.table import Line
from consilience import Plan, Problem, dula, graphs, hmc, nuts
from consilience.diagnostics.convergence import effective_draws
from consilience.engines.unison import OneProcess, Replicas
from consilience.errors import UnstableError
from consilience.graphs.spanning import num_hops
from consilience.models import linear_regression
from consilience.samplers.dula import DULA
from consilience.theory.gaussian import GaussianNetwork

_WARMUP, _DRAWS, _CHAINS, _SEEDS = 1_000, 2_000, 4, range(5)
_MOST_ROUNDS, _NOISE = 20, 0.7
_NEAR, _AS_WIDE = 0.05, 0.07  # of the posterior: the error of the mean in deviations, that of the variance as a share

_EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
_ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def gradients() -> Iterator[Line]:
    """Eight schools, one at each agent, and random intercepts at eight sites: the effects are private."""
    for name, problem in (("eight schools", eight_schools()), ("random intercepts", random_intercepts())):
        ours, theirs = [], []
        with jax.enable_x64(True):
            for seed in _SEEDS:
                draws, leapfrogs = _ours(problem, Plan(
                    graph=graphs.ring(8), sampler=hmc(), num_warmup=_WARMUP, num_draws=_DRAWS, num_chains=_CHAINS,
                    seed=seed,
                ))  # fmt: skip
                ours.append(leapfrogs.sum() / effective_draws(draws).min())
                draws, leapfrogs = _numpyro(problem, seed)
                theirs.append(leapfrogs.sum() / effective_draws(draws).min())
        yield Line(
            f"{name}: gradients an effective draw / NumPyro",
            statistics.median(ours),
            statistics.median(theirs),
            1 / 0.9,
            unit="",
            shown_target="1/0.9",
        )


def rounds() -> Iterator[Line]:
    """Seven unequal silos on a barbell: rounds of messages for an effective draw at the worst agent."""
    graph = graphs.barbell(7)
    theirs = statistics.median(dula_rounds(unequal_silos(seed), graph) for seed in _SEEDS)
    for sampler in (nuts(), hmc()):
        found = []
        with jax.enable_x64(True):
            for seed in _SEEDS:
                plan = Plan(
                    graph=graph, sampler=sampler, num_warmup=_WARMUP, num_draws=_DRAWS, num_chains=_CHAINS, seed=seed
                )
                draws, evaluations = _ours(unequal_silos(seed), plan, "evaluations")
                found.append(evaluations[:, 0].sum() * num_hops(graph) * _CHAINS / effective_draws(draws).min())
        ours, what = statistics.median(found), f"barbell of 7, {sampler.kind}: rounds an effective draw"
        yield Line(f"{what} / limit", ours, _MOST_ROUNDS, 1, unit="")
        yield Line(f"{what} / D-ULA", ours, theirs, 1e-3, unit="")


def _ours(problem: Problem, plan: Plan, measured: str = "leapfrogs") -> tuple[np.ndarray, np.ndarray]:
    """Draws `(chains, draws, size)` of all parameters and agents, and a measurement `(moves, chains)` of them."""
    replicas = Replicas(problem, plan, OneProcess(problem.num_agents), 0)
    state, segments = replicas.initial_state(), []
    step = 0
    while step < plan.num_steps:
        state, segment = replicas.advance(state, step, min(replicas.max_steps, plan.num_steps - step))
        segments.append(segment)
        step = segment.last_step
    draws = np.concatenate([segment.draws for segment in segments])
    return draws.swapaxes(0, 1), np.concatenate([segment.metrics[measured] for segment in segments])[_WARMUP:]


def _numpyro(problem: Problem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of NumPyro's NUTS as it is, on the pooled log-density; the draws are the unconstrained ones."""
    from numpyro.infer import MCMC, NUTS

    private, agents = problem.private, problem.num_agents
    positive = set(problem.constraints)
    start = {
        name: jnp.zeros((_CHAINS, agents) if name in private else (_CHAINS,))
        for name in problem.init(jax.random.key(0))
    }
    rng = np.random.default_rng(seed)
    start = {name: jnp.asarray(rng.uniform(-2, 2, zeros.shape)) for name, zeros in start.items()}
    sampler = MCMC(
        NUTS(potential_fn=lambda free: -_pooled_density(problem, free, positive)), num_warmup=_WARMUP,
        num_samples=_DRAWS, num_chains=_CHAINS, chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.key(seed), init_params=start, extra_fields=("num_steps",))
    found = sampler.get_samples(group_by_chain=True)
    draws = np.concatenate([np.asarray(one).reshape(_CHAINS, _DRAWS, -1) for one in found.values()], -1)
    return draws, np.asarray(sampler.get_extra_fields(group_by_chain=True)["num_steps"])


def _pooled_density(problem: Problem, free: dict[str, Any], positive: set[str]) -> Any:
    """The log-density of all agents' rows; what must be positive is an exponential, with its Jacobian."""
    values = {name: jnp.exp(one) if name in positive else one for name, one in free.items()}
    density = problem.log_prior(values) + sum(free[name] for name in positive)
    for agent, shard in enumerate(problem.shards):
        own = {name: one[agent] if name in problem.private else one for name, one in values.items()}
        density += problem.log_likelihood(own, jax.tree.map(jnp.asarray, shard)).sum() + problem.log_private(own)
    return density


def eight_schools() -> Problem:
    """One school at each agent, non-centred."""
    return Problem(
        lambda p, rows: -0.5 * ((rows[0] - p["mean"] - p["spread"] * p["effect"]) / rows[1]) ** 2,
        lambda p: -0.5 * (p["mean"] / 5) ** 2 - jnp.log1p((p["spread"] / 5) ** 2),
        _first("mean", "effect", positive=("spread",)),
        [(np.array([effect]), np.array([error])) for effect, error in zip(_EFFECTS, _ERRORS, strict=True)],
        private=("effect",),
        log_private=lambda p: -0.5 * p["effect"] ** 2,
        constraints={"spread": "positive"},
    )


def random_intercepts() -> Problem:
    """Eight sites with 4 to 30 rows, a mean of each around a common one."""
    rng = np.random.default_rng(5)
    return Problem(
        lambda p, y: -0.5 * ((y - p["mean"] - p["spread"] * p["effect"]) / p["noise"]) ** 2 - jnp.log(p["noise"]),
        lambda p: -0.5 * (p["mean"] / 3) ** 2 - p["noise"] - 0.5 * p["spread"] ** 2,
        _first("mean", "effect", positive=("spread", "noise")),
        [1.5 + rng.normal() + 2 * rng.normal(size=size) for size in (5, 20, 9, 14, 7, 30, 11, 4)],
        private=("effect",),
        log_private=lambda p: -0.5 * p["effect"] ** 2,
        constraints={"spread": "positive", "noise": "positive"},
    )


def _first(*names: str, positive: tuple[str, ...]) -> Callable[[Any], dict[str, Any]]:
    return lambda key: {**{name: jnp.zeros(()) for name in names}, **{name: jnp.ones(()) for name in positive}}


def unequal_silos(seed: int) -> Problem:
    """Linear regression with 6 weights; a silo has 3 to 200 rows, and its features are two of the six."""
    rng = np.random.default_rng(seed)
    truth, shards = rng.normal(size=6), []
    sizes = rng.permutation(np.geomspace(3, 200, 7).round().astype(int))
    for silo, num_rows in enumerate(sizes):
        features = np.zeros((num_rows, 6))
        features[:, [silo % 6, (silo + 2) % 6]] = rng.normal(size=(num_rows, 2)) * (1 + silo % 3)
        shards.append((features, features @ truth + _NOISE * rng.normal(size=num_rows)))
    return linear_regression(shards, noise_variance=_NOISE**2)


def dula_rounds(problem: Problem, graph: graphs.Graph) -> float:
    """Rounds of D-ULA for an effective draw at the worst agent, by the exact law, with its best constant numbers.

    Numbers are good enough if every agent's stationary law is as near to the posterior as `_NEAR` and `_AS_WIDE` say:
    of each consensus step the largest such step size is taken, and of these the one with the shortest memory.
    """
    network = GaussianNetwork.of(problem, graph)
    largest = graph.largest_eigenvalue
    curvature = problem.num_agents * float(np.linalg.eigvalsh(network.precisions).max())
    best = np.inf
    for share in (0.3, 0.6, 0.9, 1.2, 1.5, 1.8):
        low, high = -20.0, 0.0  # exponents of 2, in units of the largest stable step size
        for _ in range(14):
            middle = (low + high) / 2
            near = _is_near(network, dula(2**middle / curvature, share / largest))
            low, high = (middle, high) if near else (low, middle)
        sampler = dula(2**low / curvature, share / largest)
        if _is_near(network, sampler):
            best = min(best, memory(network, sampler))
    return best


def _is_near(network: GaussianNetwork, sampler: DULA) -> bool:
    """Whether every agent's stationary law is near the posterior's."""
    try:
        there = network.stationary(sampler, 0)
    except UnstableError:
        return False
    mean, variance = network.posterior.mean, np.diag(network.posterior.covariance)
    shape = network.linear.shape
    far = np.abs(there.mean.reshape(shape) - mean) / np.sqrt(variance)
    wide = np.abs(np.diag(there.covariance).reshape(shape) / variance - 1)
    return bool(far.max() <= _NEAR and wide.max() <= _AS_WIDE)


def memory(network: GaussianNetwork, sampler: DULA) -> float:
    """The integrated autocorrelation time of the worst parameter at the worst agent: `Σ_l corr(x_0, x_l)`."""
    (n, d), covariance = network.linear.shape, network.stationary(sampler, 0).covariance
    pull = float(sampler.consensus(0)) * np.kron(network.graph.laplacian.toarray(), np.eye(d))
    transition = np.eye(n * d) - pull - n * float(sampler.step_size(0)) * network.hessian
    later = np.linalg.solve(np.eye(n * d) - transition, transition @ covariance)
    return float((1 + 2 * np.diag(later) / np.diag(covariance)).max())
