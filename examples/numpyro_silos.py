"""Four repair shops, one NumPyro model: how long a repair takes, by kind of machine; no record leaves its shop.

The model is written as for one table of repairs. Each kind of machine has a level of its own, the logarithm of the
hours at the age of ten. The levels come from one distribution whose mean and spread are learnt too, so that a kind
which is rare everywhere borrows from the others. One line makes it a problem for four shops. From the root of the
repository:

    python examples/numpyro_silos.py
    consilience run examples.numpyro_silos:problem
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import consilience as cs

KINDS = 6
SIZES = (25, 40, 60, 90)
TYPICAL, SPREAD, WEAR, NOISE = 1.2, 0.6, 0.4, 0.5  # what the data are made with


def repairs(age, kind, hours=None):
    """The model: log hours are normal about the level of the machine's kind, and grow with its age."""
    typical = numpyro.sample("typical", dist.Normal(0, 2))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    wear = numpyro.sample("wear", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with numpyro.plate("kinds", KINDS):
        level = numpyro.sample("level", dist.Normal(typical, spread))
    numpyro.deterministic("slowest_over_fastest", jnp.exp(level.max() - level.min()))
    with numpyro.plate("rows", len(age)):
        numpyro.sample("hours", dist.LogNormal(level[kind] + wear * (age - 1), noise), obs=hours)


def records(shop: int) -> dict[str, np.ndarray]:
    """The repairs of one shop: age in decades, kind of machine, hours. Shops see different kinds and ages."""
    levels = TYPICAL + SPREAD * np.random.default_rng(16).normal(size=KINDS)
    rng = np.random.default_rng([16, shop])
    kind = rng.choice(KINDS, SIZES[shop], p=rng.dirichlet(np.ones(KINDS)))
    age = rng.gamma(2.0 + shop, 0.3, SIZES[shop])
    logarithm = levels[kind] + WEAR * (age - 1) + NOISE * rng.normal(size=len(age))
    return {"age": age, "kind": kind, "hours": np.exp(logarithm)}


def shop(num_agents: int, agent: int) -> cs.Problem:
    """One shop's part: as a node, each makes its own and loads nobody else's records."""
    return cs.from_numpyro(repairs, [records(agent)])


problem = cs.from_numpyro(repairs, [records(shop) for shop in range(4)])

if __name__ == "__main__":
    run = cs.sample(problem, cs.graphs.ring(4))
    print(run.summary_table()[["mean", "standard_deviation", "low", "high", "ess", "rhat"]].round(3).to_string())
    print(run.summary["verdict"])
    print("Report:", run.report())
