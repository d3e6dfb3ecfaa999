"""Maps to the unconstrained scale: there and back, and volumes by differentiating them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from consilience.errors import ProblemError
from consilience.kernel.constraints import Constraint, matching

KINDS = {
    "positive": ("positive", (2, 2), (2, 2)),
    "unit interval": ("unit_interval", (), ()),
    "interval": (("interval", -1.0, 2.5), (3,), (3,)),
    "simplex": ("simplex", (4,), (3,)),
    "several simplices": ("simplex", (2, 3), (2, 2)),
    "ordered": ("ordered", (3,), (3,)),
    "correlation": ("correlation", (3, 3), (3,)),
    "its Cholesky factor": ("correlation_cholesky", (3, 3), (3,)),
}


@pytest.mark.parametrize(("kind", "shape", "free_shape"), KINDS.values(), ids=KINDS)
def test_there_and_back_and_the_volume(kind, shape, free_shape):
    """The volume against the map's derivative: `½ log det JᵀJ` on the entries that are free."""
    with jax.enable_x64(True):
        constraint = Constraint("x", kind, shape)
        free = jax.random.normal(jax.random.key(1), free_shape)
        inside = constraint.inside(free)
        assert constraint.free_shape == free_shape
        assert inside.shape == shape
        constraint.require(inside)
        np.testing.assert_allclose(constraint.free(inside), free, atol=1e-7)
        size = max(1, free.size)
        matrix = jax.jacfwd(constraint.inside)(free).reshape(-1, size)
        entries = _free_entries(kind, shape)
        expected = np.linalg.slogdet(np.asarray(matrix)[entries])[1]
        np.testing.assert_allclose(constraint.log_jacobian(free), expected, rtol=1e-6, atol=1e-9)


def _free_entries(kind, shape):
    """The entries that determine the others: a density is one with respect to them."""
    places = np.arange(int(np.prod(shape))).reshape(shape)
    if kind == "simplex":
        return places[..., :-1].ravel()
    if kind in ("correlation", "correlation_cholesky"):
        return places[np.tril_indices(shape[0], -1)]
    return places.ravel()


def test_many_at_once_are_those_one_by_one():
    constraint = Constraint("x", "simplex", (3,))
    free = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
    found = constraint.many_inside(free)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found[[0, 4999]], [constraint.inside(free[0]), constraint.inside(free[4999])], rtol=1e-6
    )


def test_numpyro_s_own_constraints_are_taken():
    from numpyro.distributions import constraints

    assert Constraint("x", constraints.greater_than(3.0), ()).inside(jnp.zeros(())) > 3
    assert Constraint("x", constraints.positive_definite, (2, 2)).free_shape == (3,)


@pytest.mark.parametrize(
    ("kind", "shape", "words"),
    [
        ("positiv", (), "take one of positive"),
        (3, (), "take one of positive"),
        (("interval", 2.0, 1.0), (), "lower end first"),
        ("correlation", (2, 3), "cannot have the constraint"),
        ("simplex", (), "cannot have the constraint"),
    ],
)
def test_what_is_no_constraint_is_refused(kind, shape, words):
    with pytest.raises(ProblemError, match=words):
        Constraint("x", kind, shape)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("positive", [1.0, -1.0]), ("positive", [1.0, 0.0]), ("simplex", [0.5, 0.6]), ("ordered", [1.0, 0.5]),
     ("unit_interval", [0.5, 1.5])],
)  # fmt: skip
def test_initial_values_outside_are_refused(kind, value):
    with pytest.raises(ProblemError, match="breaks its constraint"):
        Constraint("x", kind, (2,)).require(value)


def test_names_mean_what_is_below_them_and_nothing_else():
    with pytest.raises(ProblemError, match="the parameters are effects, scale"):
        matching(["effects", "scale"], ["effect"], "private")
    with pytest.raises(ProblemError, match="twice"):
        matching(["effects.a"], ["effects", "effects.a"], "private")
