"""Steps of one length are short enough: held against a solver that adapts its steps, all over the posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from consilience.posteriors.differential_equations import concentrations, populations
from consilience.posteriors.runge_kutta import solve

CLOSE = {"rtol": 1e-10, "atol": 1e-11}
DRUG = {"dose": 30.0, "volume": 2.0, "interval": 0.5, "count": 20}


@pytest.fixture(autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


def logs_of_populations(theta, start):
    def slope(_, logs):
        return [theta[0] - theta[1] * np.exp(logs[1]), -theta[2] + theta[3] * np.exp(logs[0])]

    return solve_ivp(slope, (0, 20), np.log(start), "DOP853", np.arange(21), **CLOSE).y.T


def logs_of_concentrations(absorbed, half, most):
    def slope(time, level):
        return np.exp(-absorbed * time) * 15 * absorbed - most / 2 * level / (half + level)

    return np.log(solve_ivp(slope, (0, 10), [0.0], "LSODA", np.arange(21) / 2, **CLOSE).y[0][1:])


def test_populations(load):
    """Two standard deviations about the reference, in all directions."""
    reference = load("hudson_lynx_hare-lotka_volterra").reference
    spread = 2 * np.random.default_rng(0).normal(size=(20, 6)) * (reference.sd / reference.mean)[:6]
    solver = jax.jit(lambda theta, start: populations(theta, start, 20))
    off = []
    for values in reference.mean[:6] * np.exp(spread):
        off.append(abs(solver(values[:4], values[4:]) - logs_of_populations(values[:4], values[4:])).max())
    assert max(off) < 1e-4


@pytest.mark.parametrize(("halves", "most_off"), [((0.1, 50), 1e-4), ((0.02, 0.1), 1e-3)])
def test_concentrations(halves, most_off):
    """From elimination that is saturated at once to one that hardly ever is."""
    random, off = np.random.default_rng(1), []
    solver = jax.jit(lambda rates: concentrations(rates, **DRUG))
    for half in np.geomspace(*halves, 20):
        absorbed, most = 0.76 * np.exp(0.2 * random.normal()), (1 + half / 9) * np.exp(0.3 * random.normal())
        found = np.log(solver((absorbed, half, most))[1:])
        off.append(abs(found - logs_of_concentrations(absorbed, half, most)).max())
    assert max(off) < most_off


def test_errors_fall_with_the_fourth_power_of_the_step():
    def off(steps):
        return abs(solve(lambda time, x: -time * x, jnp.ones(()), 1.0, 2, steps)[-1] - np.exp(-2.0))

    assert 14 < off(8) / off(16) < 18
