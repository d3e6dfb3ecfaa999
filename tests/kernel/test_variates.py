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
PAIRS = list(itertools.combinations(range(ROWS), 2))


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
        self.gradients = jax.jit(network_gradients(problem, self.parameters), static_argnums=4)
        rng = np.random.default_rng(1)
        self.fixed = jnp.asarray(rng.normal(size=(self.agents, self.parameters.size)))
        self.place = self.fixed + 0.3 * jnp.asarray(rng.normal(size=self.fixed.shape))
        self.anchor = Anchor(self.fixed, self.full(self.fixed))

    def full(self, place):
        return self.gradients(place[None], self.data, None, jnp.ones(self.agents), False)[0]

    def of_batches(self, batches, place, anchor, scale=None):
        """The estimates with the same rows of every agent, `(batches, agents, size)`."""
        chosen = np.array(batches)
        used = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:, chosen], 1, 0), self.data)
        scales = jnp.full(self.agents, ROWS / chosen.shape[1] if scale is None else scale)
        estimate = corrected(lambda w: self.gradients(w, used, None, scales, True), anchor)
        return np.asarray(estimate(jnp.broadcast_to(place, (len(chosen), *place.shape))))

    def mean(self, anchor, scale=None):
        """Over all batches of two rows."""
        return self.of_batches(PAIRS, self.place, anchor, scale).mean(0)


@pytest.fixture(
    scope="module", params=[logistic, lambda: sites((6, 6, 6)), ragged], ids=["shared", "private", "ragged"]
)
def setting(request):
    with jax.enable_x64(True):
        return Setting(request.param())


def test_the_mean_over_batches_is_the_full_gradient(setting):
    np.testing.assert_allclose(setting.mean(setting.anchor), setting.full(setting.place), rtol=1e-9, atol=1e-10)


def test_at_the_anchor_every_batch_has_the_full_gradient(setting):
    expected = setting.anchor.gradient
    for estimate in setting.of_batches(PAIRS, setting.fixed, setting.anchor):
        np.testing.assert_array_equal(estimate, expected)
    assert np.abs(setting.of_batches(PAIRS, setting.fixed, None) - expected).max() > 0.1


def test_a_batch_of_all_rows_has_the_full_gradient_anywhere(setting):
    found = setting.of_batches([(3, 1, 0, 5, 2, 4)], setting.place, setting.anchor)
    np.testing.assert_allclose(found[0], setting.full(setting.place), rtol=1e-9, atol=1e-10)


def test_the_anchor_of_another_agent_is_seen(setting):
    other = setting.anchor._replace(gradient=jnp.roll(setting.anchor.gradient, 1, 0))
    assert np.abs(setting.mean(other) - setting.full(setting.place)).max() > 0.1


def test_a_missing_scale_is_seen(setting):
    assert np.abs(setting.mean(setting.anchor, scale=1.0) - setting.full(setting.place)).max() > 0.05
