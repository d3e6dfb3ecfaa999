"""Three hospitals with different numbers of wards: what they have in common, and each ward's own effect.

A patient's stay is `mean + effect of the ward + noise`. The wards' effects are *private*: they are sampled at their
hospital and never leave it. The mean, the spread among wards and the noise are everybody's, and so is what the three
hospitals know of them together. From the root of the repository:

    consilience run examples.hospitals:problem
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import consilience as cs

WARDS = (4, 7, 5)
PATIENTS = (60, 150, 90)
MEAN, SPREAD, NOISE = 6.0, 0.8, 1.5  # what the data are made with


def stays(hospital: int) -> tuple[np.ndarray, np.ndarray]:
    """The ward of each patient of a hospital, and how many days the patient stayed."""
    rng = np.random.default_rng([2024, hospital])
    effects = SPREAD * rng.normal(size=WARDS[hospital])
    ward = rng.integers(0, WARDS[hospital], PATIENTS[hospital])
    return ward, MEAN + effects[ward] + NOISE * rng.normal(size=PATIENTS[hospital])


def log_likelihood(p, shard):
    """Of each patient; a hospital sees the effects of its own wards."""
    ward, days = shard
    return norm.logpdf(days, p["mean"] + p["spread"] * p["ward"][ward], p["noise"])


def log_prior(p):
    """Of what is shared."""
    return norm.logpdf(p["mean"], 5, 5) - p["spread"] - p["noise"]


def log_private(p):
    """Of a hospital's wards, in units of the spread (that is easier to sample where wards have few patients)."""
    return norm.logpdf(p["ward"]).sum()


def start(wards: int):
    """Where a hospital with so many wards starts."""
    return lambda key: {
        "mean": jnp.full((), 5.0), "noise": jnp.ones(()), "spread": jnp.ones(()), "ward": jnp.zeros(wards),
    }  # fmt: skip


def hospital(num_agents: int, agent: int) -> cs.Problem:
    """One hospital's part: as a node, each makes its own and loads nobody else's rows."""
    return cs.Problem(
        log_likelihood,
        log_prior,
        init=start(WARDS[agent]),
        shards=[stays(agent)],
        private=("ward",),
        log_private=log_private,
        constraints={"noise": "positive", "spread": "positive"},
        name="length of stay in three hospitals",
    )


parts = [hospital(3, agent) for agent in range(3)]
problem = replace(parts[0], init=[one.init for one in parts], shards=[one.shards[0] for one in parts])
