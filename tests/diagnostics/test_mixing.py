"""R-hat, effective draws and the error of a mean, held against ArviZ's."""

import itertools

import arviz
import numpy as np
import pytest

from consilience.diagnostics.convergence import effective_draws, mean_error, rhat


def drawn(kind, chains, length):
    """Draws `(chains, length)` of one quantity."""
    rng = np.random.default_rng(length + chains)
    noise = rng.normal(size=(chains, length))
    walk = np.cumsum(noise, axis=1)
    kept = np.zeros_like(noise)
    for t in range(1, length):
        kept[:, t] = 0.9 * kept[:, t - 1] + noise[:, t]
    return {
        "independent": noise,
        "slow": kept,
        "antithetic": noise - 0.7 * np.roll(noise, 1, axis=1),
        "walk": walk,
        "apart": kept + 3.0 * np.arange(chains)[:, None],
        "heavy": rng.standard_cauchy(size=noise.shape),
        "repeated": np.repeat(noise, 3, axis=1)[:, :length],
        "few values": np.round(noise),
        "single precision": noise.astype(np.float32).astype(float),
        "hardly moves": 1e8 + 1e-3 * noise,
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "independent", "slow", "antithetic", "walk", "apart", "heavy", "repeated", "few values", "single precision",
        "hardly moves",
    ],
)  # fmt: skip
def test_numbers_are_those_of_arviz(kind):
    for chains, length in itertools.product((1, 2, 4), (4, 5, 6, 7, 50, 1001)):
        draws = drawn(kind, chains, length)
        with np.errstate(all="ignore"):
            theirs = [arviz.ess(draws, method="bulk"), arviz.ess(draws, method="tail"), arviz.mcse(draws)]
            theirs += [arviz.rhat(draws)] if chains > 1 else []
        columns = draws[..., None]
        ours = [effective_draws(columns), effective_draws(columns, "tail"), mean_error(columns), rhat(columns)]
        found = np.concatenate(ours)[: len(theirs)].tolist()
        assert found == pytest.approx(theirs, rel=1e-9, nan_ok=True), (chains, length)


@pytest.mark.parametrize("still", [np.zeros((4, 10)), np.tile(np.arange(4.0)[:, None], 10)])
def test_chains_that_stand_still_have_the_numbers_of_arviz(still):
    with np.errstate(all="ignore"):
        theirs = [arviz.rhat(still), arviz.ess(still), arviz.ess(still, method="tail")]
    columns = still[..., None]
    ours = [rhat(columns)[0], effective_draws(columns)[0], effective_draws(columns, "tail")[0]]
    assert ours == pytest.approx(theirs, rel=1e-9, nan_ok=True)


def test_what_cannot_be_told_is_no_number():
    draws = np.random.default_rng(0).normal(size=(2, 10, 2))
    draws[0, 3, 1] = np.nan
    assert np.isnan(rhat(draws)).tolist() == np.isnan(effective_draws(draws)).tolist() == [False, True]
    assert np.isnan(mean_error(draws[:, :3])).all()
