import numpy as np
import pytest

import consilience as cs
from consilience.errors import ProblemError
from consilience.theory import GaussianNetwork, GridPosterior
from tests.gaussian import regression
from tests.statistical import rejects_covariance, rejects_mean


def test_grid_agrees_with_the_exact_gaussian_posterior():
    problem = regression([20, 30])
    exact = GaussianNetwork.of(problem, cs.graphs.path(2)).posterior
    grid = GridPosterior.of(problem, (-3.0, 3.0), (-3.0, 3.0))
    np.testing.assert_allclose(grid.mean, exact.mean, atol=1e-5)
    np.testing.assert_allclose(grid.covariance, exact.covariance, rtol=1e-4)
    cell = (grid.first[1] - grid.first[0]) * (grid.second[1] - grid.second[0])
    assert grid.density.sum() * cell == pytest.approx(1)
    draws = grid.draw(20_000, seed=0)
    assert not rejects_mean(draws, exact.mean)
    assert not rejects_covariance(draws, exact.mean, exact.covariance)
    assert rejects_covariance(1.05 * (draws - exact.mean) + exact.mean, exact.mean, exact.covariance)


def test_a_grid_that_cuts_off_the_posterior_is_refused():
    with pytest.raises(ProblemError, match="widen the ranges"):
        GridPosterior.of(regression([20, 30]), (-0.1, 0.1), (-3.0, 3.0))
    with pytest.raises(ProblemError, match="exactly 2 parameters"):
        GridPosterior.of(regression([20, 30], 3), (-3.0, 3.0), (-3.0, 3.0))
