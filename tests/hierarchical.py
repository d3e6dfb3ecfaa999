"""Hierarchical problems, in which every agent has parameters of its own."""

import jax.numpy as jnp
import numpy as np

import consilience as cs

NOISE, SPREAD, PRIOR = 2.0, 0.8, 3.0
"""Variances of a row, of an agent's own effect, and of the common mean."""


def sites(sizes, seed=0):
    """Rows `x ~ N(mean + effect_i, 2)` with a private `effect_i ~ N(0, 0.8)`: normal, so all is known exactly."""
    rng = np.random.default_rng(seed)
    shards = [(rng.normal() + rng.normal(size=size)).astype(np.float32) for size in sizes]
    return cs.Problem(
        log_likelihood=lambda p, x: -0.5 * (x - p["mean"] - p["effect"]) ** 2 / NOISE,
        log_prior=lambda p: -0.5 * p["mean"] ** 2 / PRIOR,
        init=lambda key: {"effect": jnp.zeros(()), "mean": jnp.zeros(())},
        shards=shards,
        private=("effect",),
        log_private=lambda p: -0.5 * p["effect"] ** 2 / SPREAD,
    )


def wards():
    """Three sites, for plans that name their problem."""
    return sites((4, 9, 6))


def quadratics(problem):
    """`(n, 2, 2)` and `(n, 2)`: Hessian and linear part of each potential of `sites`, mean first, then effect."""
    n = problem.num_agents
    rows, sums = problem.shard_sizes / NOISE, np.array([shard.sum() for shard in problem.shards]) / NOISE
    hessians = rows[:, None, None] * np.ones((2, 2)) + np.diag([1 / (n * PRIOR), 1 / SPREAD])
    return hessians, np.stack([sums, sums], 1)


def ragged(groups=(2, 3, 2, 4), rows=6, seed=0):
    """Agents with different numbers of groups, whose effects are private, and parameters with constraints."""
    rng = np.random.default_rng(seed)
    shards = [(rng.integers(0, count, rows), rng.normal(size=rows).astype(np.float32)) for count in groups]

    def log_likelihood(p, rows):
        group, x = rows
        mean = p["mean"] + p["own"]["effect"][group] + p["own"]["slope"]
        return -0.5 * ((x - mean) / p["scale"]) ** 2 - jnp.log(p["scale"])

    def start(count):
        return lambda key: {
            "mean": jnp.full((), 0.3), "own": {"effect": jnp.full(count, 0.1), "slope": jnp.full((), 0.4)},
            "scale": jnp.full((), 1.5), "shares": jnp.array([0.2, 0.5, 0.3]),
        }  # fmt: skip

    return cs.Problem(
        log_likelihood=log_likelihood,
        log_prior=lambda p: -0.5 * p["mean"] ** 2 - p["scale"] + jnp.log(p["shares"]).sum(),
        init=[start(count) for count in groups],
        shards=shards,
        private=("own",),
        log_private=lambda p: -0.5 * (p["own"]["effect"] ** 2).sum() - 2 * p["own"]["slope"] - p["mean"] ** 2 / 8,
        constraints={"scale": "positive", "shares": "simplex", "own.slope": ("interval", 0.0, 1.0)},
    )
