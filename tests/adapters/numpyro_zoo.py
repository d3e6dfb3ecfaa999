"""NumPyro models of many kinds that are products over rows, with rows made up for them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

RNG = np.random.default_rng(3)
SIZES = (4, 9, 1)


def linear(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(3))
    numpyro.deterministic("precision", scale**-2)
    numpyro.deterministic("mean_y", y.mean())
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(numpyro.deterministic("line", x @ slope), scale), obs=y)


def logistic(x, label=None):
    """No plate, a distribution that is expanded but no event, and an outcome that may be left out."""
    slope = numpyro.sample("slope", dist.StudentT(3, 0, 1).expand([2]))
    numpyro.sample("label", dist.Bernoulli(logits=x @ slope), obs=label)


def poisson(x, count):
    """An interval, and a factor that belongs to the prior."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    share = numpyro.sample("share", dist.Uniform(0.1, 0.7))
    numpyro.factor("weak", -0.1 * rate)
    with numpyro.plate("rows", len(count)):
        numpyro.sample("count", dist.Poisson(rate * jnp.exp(share * x[:, 0])), obs=count)


def hierarchical(x, y):
    mean, spread = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("spread", dist.HalfCauchy(1))
    with numpyro.plate("wards", 2):
        ward = numpyro.sample("ward", dist.Normal(mean, spread))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(ward[(x[:, 0] > 0).astype(int)], 1.5), obs=y)


def structured(x, y):
    """A simplex, an ordered vector, correlations; a mixture, and several outcomes of which one is a vector."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    base = dist.Normal(0, 2).expand([3]).to_event(1)
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 1.5))
    numpyro.sample("matrix", dist.LKJ(2, 2.0))
    with numpyro.plate("rows", len(y)):
        parts = dist.Normal(cuts, 1.0)
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), scale_tril=factor), obs=x)


def masked(x, y):
    """A mask that depends on rows, a scale, and a factor of each row."""
    slope = numpyro.sample("slope", dist.Laplace(0, 1))
    with numpyro.plate("rows", len(y)), handlers.mask(mask=y > -0.5), handlers.scale(scale=0.3):
        numpyro.sample("y", dist.Normal(slope * x[:, 0], 1), obs=y)
    numpyro.factor("extra", -0.1 * (slope - x[:, 1]) ** 2)


def nested_plates(x, answers):
    """Items and rows; the latent of an item stands on another axis than rows, and rows are not first."""
    with numpyro.plate("items", 3, dim=-2):
        difficulty = numpyro.sample("difficulty", dist.Normal(0, 1))
        with numpyro.plate("rows", len(x), dim=-1):
            numpyro.sample("answers", dist.Bernoulli(logits=x[:, 0] - difficulty), obs=answers.T)


def classes(x, level, kind):
    """Ordinal and categorical outcomes; a parameter with bounds for every entry, and one with no density at all."""
    cuts = numpyro.sample("cuts", dist.Uniform(jnp.array([-3.0, 0.5]), jnp.array([-0.5, 3.0])).to_event(1))
    slope = numpyro.sample("slope", dist.ImproperUniform(dist.constraints.real, (), ()))
    logits = numpyro.sample("logits", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    with numpyro.plate("rows", len(level)):
        numpyro.sample("level", dist.OrderedLogistic(slope * x[:, 0], cuts), obs=level)
        numpyro.sample("kind", dist.Categorical(logits=x @ logits), obs=kind)


def two_parts(x, y, count):
    """A mixture that is summed by hand, counts out of eight, and names of several parts."""
    share = numpyro.sample("share", dist.Beta(2, 2))
    with handlers.scope(prefix="part"):
        scale = numpyro.sample("scale", dist.InverseGamma(3, 2).expand([2]).to_event(1))
        angle = numpyro.sample("angle", dist.VonMises(0.3, 2.0))
    each = dist.Normal(jnp.array([-1.0, 1.0]), scale).log_prob(y[:, None]) + jnp.log(jnp.array([share, 1 - share]))
    with numpyro.plate("rows", len(y)):
        numpyro.factor("mixture", jax.scipy.special.logsumexp(each, axis=-1))
        numpyro.sample("count", dist.Binomial(8, logits=jnp.cos(angle) * x[:, 0]), obs=count)


def centred_effects(x, time, groups):
    spread = numpyro.sample("spread", dist.LogNormal(0, 0.5))
    with numpyro.plate("groups", groups):
        effect = numpyro.sample("effect", dist.Normal(0.2, spread))
    rate = numpyro.sample("rate", dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.ExpTransform()))
    with numpyro.plate("rows", len(time)):
        numpyro.sample("time", dist.Weibull(jnp.exp(effect[0] + effect[1] * x[:, 1]), rate), obs=time)


_reparametrised = {"effect": LocScaleReparam(0), "rate": TransformReparam()}
apart = handlers.reparam(partial(centred_effects, groups=2), config=_reparametrised)


def rows(size, **columns):
    return {"x": RNG.normal(size=(size, 2)), **{name: draw(size) for name, draw in columns.items()}}


def normal(size):
    return RNG.normal(size=size)


def whole(high, *shape):
    return lambda size: RNG.integers(0, high, (size, *shape))


MODELS = {
    "linear": (linear, {"y": normal}),
    "logistic": (logistic, {"label": whole(2)}),
    "poisson": (poisson, {"count": whole(5)}),
    "structured": (structured, {"y": normal}),
    "masked and scaled": (masked, {"y": normal}),
    "nested plates": (nested_plates, {"answers": whole(2, 3)}),
    "classes": (classes, {"level": whole(3), "kind": whole(3)}),
    "two parts": (two_parts, {"y": normal, "count": whole(9)}),
    "reparametrised": (apart, {"time": lambda size: RNG.gamma(2.0, size=size)}),
}
"""By name: the model, and how its columns besides `x` are made."""

NAMES = [
    pytest.param(
        name, marks=pytest.mark.slow(reason="a large model to compile") if name in ("structured", "two parts") else ()
    )
    for name in MODELS
]


def shards_of(name):
    return [rows(size, **MODELS[name][1]) for size in SIZES]
