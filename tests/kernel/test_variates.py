"""Control variates: the right mean over batches, the full gradient at the anchor, and mistakes that must be seen."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience.kernel.gradients import network_gradients
from consilience.kernel.parameters import Parameters
from consilience.kernel.variates import Anchor, corrected
from consilience.models import logistic_regression
from tests.hierarchical import ragged, sites

ROWS = 6


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def logistic():
    rng = np.random.default_rng(0)
    return logistic_regression([(rng.normal(size=(ROWS, 3)), rng.integers(0, 2, ROWS)) for _ in range(3)])


class Setting:
    """A problem whose agents all have six rows, an anchor and a place near it."""

    def __init__(self, problem):
        self.parameters = Parameters.of(problem, jnp.float64)
        self.agents, self.data = problem.num_agents, problem.stacked_shards(jnp.float64)
        self.gradients = network_gradients(problem, self.parameters)
        rng = np.random.default_rng(1)
        self.fixed = jnp.asarray(rng.normal(size=(self.agents, self.parameters.size)))
        self.place = self.fixed + 0.3 * jnp.asarray(rng.normal(size=self.fixed.shape))
        self.anchor = Anchor(self.fixed, self.full(self.fixed))

    def full(self, place):
        return self.gradients(place[None], self.data, None, jnp.ones(self.agents), False)[0]

    def of_batch(self, rows, place, anchor, scale=None):
        """The estimate with the same rows of every agent; two chains, of which the second is at the anchor."""
        used = jax.tree.map(lambda leaf: jnp.stack([leaf[:, list(rows)]] * 2), self.data)
        scales = jnp.full(self.agents, ROWS / len(rows) if scale is None else scale)
        estimate = corrected(lambda w: self.gradients(w, used, None, scales, True), anchor)
        return estimate(jnp.stack([place, self.fixed]))

    def mean(self, anchor, scale=None):
        """Over all batches of two rows."""
        batches = list(itertools.combinations(range(ROWS), 2))
        return np.mean([self.of_batch(rows, self.place, anchor, scale) for rows in batches], 0)


@pytest.fixture(
    scope="module", params=[logistic, lambda: sites((6, 6, 6)), ragged], ids=["shared", "private", "ragged"]
)
def setting(request):
    with jax.enable_x64(True):
        return Setting(request.param())


def test_the_mean_over_batches_is_the_full_gradient(setting):
    found = setting.mean(setting.anchor)
    np.testing.assert_allclose(found[0], setting.full(setting.place), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found[1], setting.anchor.gradient, rtol=1e-9, atol=1e-10)


def test_at_the_anchor_every_batch_has_the_full_gradient(setting):
    for rows in ((0, 3), (5, 2)):
        found = setting.of_batch(rows, setting.place, setting.anchor)
        np.testing.assert_array_equal(found[1], setting.anchor.gradient)
        plain = setting.of_batch(rows, setting.place, None)
        assert np.abs(plain[1] - setting.anchor.gradient).max() > 0.1


def test_a_batch_of_all_rows_has_the_full_gradient_anywhere(setting):
    found = setting.of_batch((3, 1, 0, 5, 2, 4), setting.place, setting.anchor)
    np.testing.assert_allclose(found[0], setting.full(setting.place), rtol=1e-9, atol=1e-10)


def test_the_anchor_of_another_agent_is_seen(setting):
    other = setting.anchor._replace(gradient=jnp.roll(setting.anchor.gradient, 1, 0))
    assert np.abs(setting.mean(other)[0] - setting.full(setting.place)).max() > 0.1


def test_a_missing_scale_is_seen(setting):
    assert np.abs(setting.mean(setting.anchor, scale=1.0)[0] - setting.full(setting.place)).max() > 0.05
