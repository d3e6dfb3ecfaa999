"""Leave-one-out scores of sites add up to what ArviZ says of the pooled rows; false comparisons are refused."""

import warnings

import arviz
import jax
import numpy as np
import pytest
import xarray
from scipy import stats

from consilience.errors import DivergedError, InputError
from consilience.predictive.comparison import Sums
from consilience.predictive.draws import model_draws
from consilience.predictive.leave_one_out import leave_one_out, likelihood_program, relative_efficiency, trusted_shape
from consilience.predictive.outcomes import Pieces
from tests.outcome_problems import visit_draws, visits


@pytest.fixture(autouse=True)
def _in_double_precision():
    with jax.enable_x64(True):
        yield


def dataset(w):
    variables = {"w": (("chain", "draw", "w_dim_0"), w)}
    return xarray.Dataset(variables, {"draw": np.arange(w.shape[1])}, {"parameters": ["w"]})


def by_site(problem, draws, block=None):
    efficiency, program = relative_efficiency(draws), likelihood_program(problem)
    pieces = Pieces([lambda: model_draws(problem, draws)])
    longest = int(problem.shard_sizes.max())
    return [leave_one_out(program, pieces, rows, block or longest, efficiency) for rows in problem.shards]


def pooled_by_arviz(problem, draws):
    rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *problem.shards)
    w = draws["w"].to_numpy()
    mean = w[..., :1] + w[..., 1:] * rows["x"]
    log_likelihood = stats.norm.logpdf(rows["y"], mean, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = arviz.from_dict(posterior={"w": w}, log_likelihood={"y": log_likelihood})
        return arviz.loo(data, pointwise=True)


@pytest.mark.parametrize("block", [None, 7])
def test_sums_of_sites_are_arvizs_of_the_pooled_rows(block):
    problem, draws = visits(kind="number"), dataset(visit_draws(300, num_chains=4)["w"])
    sites, wanted = by_site(problem, draws, block), pooled_by_arviz(problem, draws)
    limit = trusted_shape(1200)
    parts = [Sums.of_rows([one.elpd], [float(one.lppd.sum())], [int((one.pareto_k > limit).sum())]) for one in sites]
    total = parts[0] + parts[1]
    assert total.rows == wanted.n_data_points == 80
    assert total.elpd[0] == pytest.approx(wanted.elpd_loo, abs=1e-6)
    assert total.error(0) == pytest.approx(wanted.se, abs=1e-6)
    assert total.parameters[0] == pytest.approx(wanted.p_loo, abs=1e-6)
    assert limit == pytest.approx(wanted.good_k)
    np.testing.assert_allclose(np.concatenate([one.elpd for one in sites]), wanted.loo_i, atol=1e-8)
    np.testing.assert_allclose(np.concatenate([one.pareto_k for one in sites]), wanted.pareto_k, atol=1e-8)
    assert abs(parts[0].elpd[0] - wanted.elpd_loo) > 1, "the control: one site is not all of them"


def test_efficiency_is_that_of_shared_parameters():
    rng = np.random.default_rng(2)
    slow = np.cumsum(rng.normal(size=(2, 200, 2)), 1)
    draws = dataset(slow)
    assert relative_efficiency(draws) < 0.2
    assert relative_efficiency(draws.isel(chain=[0])) == 1.0
    both = draws.assign(z=draws["w"]).assign_attrs(parameters=["w", "z"], private=["w"])
    fast = both.assign(z=(both["w"].dims, rng.normal(size=(2, 200, 2))))
    assert relative_efficiency(fast) > 0.7, "private ones do not count, as other sites do not know them"
    assert relative_efficiency(dataset(np.ones((2, 50, 2)))) > 0


def test_a_row_without_likelihood_is_told():
    problem, draws = visits(kind="number"), dataset(visit_draws(50)["w"])
    problem.shards[1]["y"][3] = np.inf
    with pytest.raises(DivergedError, match="the log-likelihood of row 3 is not finite"):
        by_site(problem, draws)


def test_differences_are_those_of_rows():
    rng = np.random.default_rng(0)
    first, second = -rng.random(50), -rng.random(50)
    parts = [
        Sums.of_rows([first[part], second[part]], [-1.0, -1.5], [0, 1]) for part in (slice(0, 20), slice(20, 50))
    ]
    total = parts[0] + parts[1]
    difference = first - second
    assert total.error_of_difference(0, 1) == pytest.approx(np.sqrt(50 * difference.var()))
    assert total.error_of_difference(1, 1) == 0
    assert total.error(1) == pytest.approx(np.sqrt(50 * second.var()))
    assert total.bad.tolist() == [0, 2]
    again = Sums.from_dict(parts[0].to_dict()) + parts[1]
    np.testing.assert_allclose(again.products, total.products)


def test_models_whose_rows_were_not_compared_have_no_error_of_the_difference():
    one = Sums.of_rows([-np.ones(4)], [-3.0], [0])
    beside = Sums.beside([one, one])
    assert np.isnan(beside.error_of_difference(0, 1))
    assert Sums.from_dict(beside.to_dict()).error(0) == 0
    assert np.isnan(Sums.from_dict(beside.to_dict()).products[0, 1])
    with pytest.raises(InputError, match="fitted to 4 and 5 rows"):
        Sums.beside([one, Sums.of_rows([-np.ones(5)], [-3.0], [0])])
    with pytest.raises(InputError, match="no sums of a comparison"):
        Sums.from_dict({"rows": 3})
