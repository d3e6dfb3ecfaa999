"""R-hat across agents: drift is no disagreement, a shift or another width is.

Draws are normal with fixed seeds. Of `N` independent draws an agent's `D_i²/W` is about chi-square over `N`: the
chance that one of 3 agents and its width exceed 1.01 in 4,000 draws, `D_i² > 0.02 W`, is below 1e-15.
"""

import numpy as np
import pytest

from consilience.diagnostics.agreement import agreement
from consilience.diagnostics.convergence import rhat

CHAINS, AGENTS, DRAWS = 2, 3, 2000


def drawn(seed=0, chains=CHAINS, agents=AGENTS):
    return np.random.default_rng(seed).normal(size=(chains, agents, DRAWS, 1))


def test_agents_that_drift_together_agree():
    drift = np.linspace(0, 6, DRAWS)[None, None, :, None]
    draws = drift + 1e-3 * drawn()
    assert agreement(draws).item() == pytest.approx(1, abs=1e-6)
    assert rhat(draws[0]).item() > 1.5  # what it must not be: split R-hat with agents as sequences


def test_independent_agents_with_one_law_agree():
    assert agreement(drawn()).item() < 1.005


@pytest.mark.parametrize("agents", [3, 20])
def test_a_shift_of_half_a_deviation_of_one_agent_is_flagged(agents):
    draws = drawn(agents=agents)
    assert agreement(draws).item() < 1.01
    draws[:, 1] += 0.5
    assert agreement(draws).item() > 1.03


def test_the_shift_is_seen_through_a_drift():
    """The drift widens what an agent calls its variance; a shift of half of that deviation is still seen."""
    draws = drawn() + np.linspace(0, 3, DRAWS)[None, None, :, None]
    draws[:, 1] += 0.5 * draws.std()
    assert agreement(draws).item() > 1.03


def test_a_wider_agent_is_flagged():
    draws = drawn()
    draws[:, 2] *= 1.5
    assert agreement(draws).item() > 1.03


def test_chains_in_different_places_do_not_hide_disagreement():
    draws = drawn() + np.array([-50.0, 50.0])[:, None, None, None]
    draws[:, 0] += 0.5
    assert agreement(draws).item() > 1.03


def test_what_cannot_be_told_is_no_number():
    draws = drawn()
    draws[0, 0, 5] = np.nan
    assert np.isnan(agreement(draws)).all()
    assert np.isnan(agreement(drawn()[:, :, :3])).all()
    assert np.isnan(agreement(np.ones((2, 3, 10, 1)))).all()
