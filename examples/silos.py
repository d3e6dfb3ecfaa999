"""Five silos of unequal size estimate one treatment effect; nobody's rows leave their silo.

From the root of the repository: python examples/silos.py
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import consilience as cs

SIZES = (8, 20, 40, 60, 72)
BASELINE, EFFECT, NOISE = 2.0, -0.7, 1.2  # what the data are made with


def rows(silo: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Who was treated, and the outcome, of the patients of one silo."""
    rng = np.random.default_rng([7, silo])
    treated = rng.random(size) < 0.3 + 0.1 * silo
    return treated.astype(float), BASELINE + EFFECT * treated + NOISE * rng.normal(size=size)


def log_likelihood(w, shard):
    """One value for each row."""
    treated, outcome = shard
    return norm.logpdf(outcome, w["baseline"] + w["effect"] * treated, w["noise"])


def log_prior(w):
    """The whole prior; each silo is given its share."""
    return norm.logpdf(w["baseline"], 0, 5) + norm.logpdf(w["effect"], 0, 2) - w["noise"]


problem = cs.Problem(
    log_likelihood,
    log_prior,
    init=lambda key: {"baseline": jnp.zeros(()), "effect": jnp.zeros(()), "noise": jnp.ones(())},
    shards=[rows(silo, size) for silo, size in enumerate(SIZES)],
    constraints={"noise": "positive"},
    name="treatment effect in five silos",
)

if __name__ == "__main__":
    run = cs.sample(problem, cs.graphs.ring(5))
    table = run.summary_table()
    print(table[["mean", "low", "high", "ess", "rhat"]].round(3).to_string())
    print(run.summary["verdict"])
    print("Report:", run.report())
