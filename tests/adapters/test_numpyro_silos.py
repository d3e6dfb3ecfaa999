"""The example with a NumPyro model: what it makes, and that it samples what NumPyro does from pooled rows."""

import jax
import numpy as np
import pytest
from examples.numpyro_silos import problem, records, repairs
from numpyro.infer import MCMC, NUTS
from scipy import stats

import consilience as cs
from consilience.diagnostics.convergence import mean_error
from consilience.experiments import import_problem
from tests.cli.test_commands import call

TARGET = "examples.numpyro_silos:problem"
ALLOWED = 0.1
ENOUGH = 6000
FALSE_ALARM = 1e-6


def test_a_shop_makes_its_own_part():
    own = import_problem("examples.numpyro_silos:shop", 4, [2])
    assert own.fingerprint() == problem.of_agent(2).fingerprint()
    assert (own.num_agents, own.prior_share) == (1, 1 / 4)
    parameters = problem.init(jax.random.key(0))
    np.testing.assert_array_equal(
        own.log_likelihood(parameters, own.shards[0]), problem.log_likelihood(parameters, problem.shards[2])
    )


def pooled_nuts(shops, num_draws):
    """NumPyro's own NUTS on the rows of some shops together: draws `(chains, draws, 10)`, by name as in a summary."""
    with jax.enable_x64(True):
        rows = jax.tree.map(lambda *parts: np.concatenate(parts), *[records(shop) for shop in shops])
        chains = MCMC(
            NUTS(repairs), num_warmup=1000, num_samples=num_draws, num_chains=4, chain_method="vectorized",
            progress_bar=False,
        )  # fmt: skip
        chains.run(jax.random.key(1), **rows)
        found = chains.get_samples(group_by_chain=True)
    names = [*(f"level[{kind}]" for kind in range(6)), "noise", "spread", "typical", "wear"]
    return names, np.concatenate(
        [np.asarray(found["level"]), *(np.asarray(found[name])[..., None] for name in names[6:])], -1
    )


@pytest.mark.slow(reason="two samplers until means are known to a fiftieth of a standard deviation")
def test_means_are_those_of_numpyro_on_pooled_rows(tmp_path):
    """Within 0.1 sd. With means as of 6,000 independent draws each, a correct sampler fails at a rate below 1e-6.

    The negative control is the posterior without the first shop's 25 rows of 215.
    """
    error = np.sqrt(2 / ENOUGH)
    assert 10 * 2 * stats.norm.sf(ALLOWED / error) < FALSE_ALARM

    plan = cs.Plan(graph=cs.graphs.ring(4), sampler=cs.nuts(), num_draws=3000)
    table = cs.sample(problem, plan, tmp_path / "run").summary_table()
    names, draws = pooled_nuts(range(4), 3000)
    scale = draws.std((0, 1))
    for errors in (table.loc[names, "mean_error"], mean_error(draws)):
        assert (errors / scale).max() < 1 / np.sqrt(ENOUGH)
    difference = np.abs(table.loc[names, "mean"].to_numpy() - draws.mean((0, 1))) / scale
    assert difference.max() < ALLOWED, dict(zip(names, difference.round(3), strict=True))
    np.testing.assert_allclose(table.loc[names, "standard_deviation"], scale, rtol=0.1)

    _, fewer = pooled_nuts((1, 2, 3), 1000)
    assert (np.abs(fewer.mean((0, 1)) - draws.mean((0, 1))) / scale).max() > 2 * ALLOWED


@pytest.mark.slow(reason="it samples until converged")
def test_nothing_need_be_said(tmp_path):
    run = cs.sample(problem, cs.graphs.ring(4), tmp_path / "run")
    table = run.summary_table()
    assert run.summary["converged"]
    assert table["rhat"].max() <= 1.01
    assert table["ess"].min() >= 400
    assert len(table) >= 10


@pytest.mark.slow(reason="four nodes are processes of their own")
@pytest.mark.parametrize("engine", ["simulate", "mesh", "peers"])
def test_every_engine_takes_it_from_the_command_line(engine, tmp_path):
    more = ("--devices", 2) if engine == "mesh" else ()
    done = call("run", TARGET, "--engine", engine, *more, "--warmup", 60, "--draws", 20, "--out", tmp_path / "run")
    for name in ("level[5]", "typical", "wear"):
        assert name in done.stdout
    assert cs.Run(tmp_path / "run").plan.num_agents == 4
