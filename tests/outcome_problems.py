"""Problems that know what they say about outcomes, with names for people, and draws near their posteriors."""

import jax
import jax.numpy as jnp
import numpy as np

import consilience as cs

NAMES = ("Intercept", "age", "stage[III]")
SPREAD = 0.7
"""The standard deviation of a site's own intercept."""


def hospitals(sizes=(40, 25, 60), seed=0):
    """Logistic regression at three sites, each with an intercept of its own."""
    rng = np.random.default_rng(seed)
    shards = []
    for site, size in enumerate(sizes):
        x = np.column_stack([np.ones(size), rng.normal(size=size), rng.random(size) < 0.4])
        chance = 1 / (1 + np.exp(-(x @ [-0.3, 0.8, 1.1] + 0.6 * (site - 1))))
        shards.append({"x": x, "y": (rng.random(size) < chance).astype(float)})

    def chance(p, rows):
        return jax.nn.sigmoid(rows["x"] @ p["coefficients"] + SPREAD * p["site_effect"][0])

    def log_likelihood(p, rows):
        eta = rows["x"] @ p["coefficients"] + SPREAD * p["site_effect"][0]
        return rows["y"] * eta - jax.nn.softplus(eta)

    return cs.Problem(
        log_likelihood=log_likelihood,
        log_prior=lambda p: -0.5 * (p["coefficients"] ** 2).sum() / 6.25,
        init=lambda key: {"coefficients": jnp.zeros(3), "site_effect": jnp.zeros(1)},
        shards=shards,
        name="three hospitals",
        private=("site_effect",),
        log_private=lambda p: -0.5 * (p["site_effect"] ** 2).sum(),
        labels={"coefficients": NAMES, "site_effect": ("Intercept",), "site_difference": ("Intercept",)},
        ratios={"coefficients": "odds ratio"},
        derived=lambda p: {
            "site_difference": SPREAD * p["site_effect"],
            "risk": jax.nn.sigmoid(p["coefficients"][0]),
        },
        outcomes=cs.Outcomes(
            kinds={"died": "binary"},
            expected=lambda p, rows: {"died": chance(p, rows)},
            simulate=lambda key, p, rows: {"died": jax.random.bernoulli(key, chance(p, rows)).astype(float)},
            observed=lambda rows: {"died": rows["y"]},
            draw_private=lambda key, p: {**p, "site_effect": jax.random.normal(key, (1,), p["site_effect"].dtype)},
        ),
    )


def three_hospitals():
    """For plans that name their problem."""
    return hospitals()


def hospital_draws(num_draws=100, num_chains=2, num_agents=3, seed=1):
    """Draws of `hospitals` in unison, as if from a posterior."""
    rng = np.random.default_rng(seed)
    shared = np.array([-0.3, 0.8, 1.1]) + 0.2 * rng.normal(size=(num_chains, num_draws, 3))
    own = (np.arange(num_agents) - 1)[None, :, None, None] + 0.3 * rng.normal(
        size=(num_chains, num_agents, num_draws, 1)
    )
    return {"coefficients": shared, "site_effect": own}


def visits(sizes=(50, 30), kind="count", seed=0):
    """Counts (or numbers) with a rate that depends on one column; nothing is private."""
    rng = np.random.default_rng(seed)
    shards = [{"x": rng.normal(size=size)} for size in sizes]
    for shard in shards:
        mean = 0.5 + 0.4 * shard["x"]
        shard["y"] = (
            rng.poisson(np.exp(mean)).astype(float) if kind == "count" else mean + 0.5 * rng.normal(size=len(mean))
        )

    def mean(p, rows):
        eta = p["w"][0] + p["w"][1] * rows["x"]
        return jnp.exp(eta) if kind == "count" else eta

    def log_likelihood(p, rows):
        found = mean(p, rows)
        if kind == "count":
            return rows["y"] * jnp.log(found) - found - jax.scipy.special.gammaln(rows["y"] + 1)
        return jax.scipy.stats.norm.logpdf(rows["y"], found, 0.5)

    def simulate(key, p, rows):
        found = mean(p, rows)
        if kind == "count":
            counts = jnp.arange(40.0)  # by its distribution function, as JAX's own sampler takes long to compile
            below = jnp.cumsum(jax.scipy.stats.poisson.pmf(counts, found[:, None]), -1)
            return {"y": (jax.random.uniform(key, found.shape)[:, None] > below).sum(-1).astype(found.dtype)}
        return {"y": found + 0.5 * jax.random.normal(key, found.shape, found.dtype)}

    return cs.Problem(
        log_likelihood=log_likelihood,
        log_prior=lambda p: -0.5 * (p["w"] ** 2).sum(),
        init=lambda key: {"w": jnp.zeros(2)},
        shards=shards,
        name="visits",
        ratios={"w": "rate ratio"} if kind == "count" else {},
        outcomes=cs.Outcomes(
            {"y": kind}, lambda p, rows: {"y": mean(p, rows)}, simulate, lambda rows: {"y": rows["y"]}
        ),
    )


def visit_draws(num_draws=100, num_chains=2, seed=1):
    """Draws of `visits` in unison, near the truth."""
    rng = np.random.default_rng(seed)
    return {"w": np.array([0.5, 0.4]) + 0.08 * rng.normal(size=(num_chains, num_draws, 2))}
