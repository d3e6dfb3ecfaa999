"""The flat vector: shared parameters first, agents of different lengths, and what is stored of it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.errors import ProblemError
from consilience.kernel.parameters import Parameters, initial_positions
from tests.gaussian import regression
from tests.hierarchical import ragged, sites


def test_shared_entries_come_first_and_names_keep_the_model_s_order():
    parameters = Parameters.of(sites([3, 4]), jnp.float32)
    assert parameters.names == ("effect", "mean")
    assert (parameters.size, parameters.num_shared, parameters.private_start) == (2, 1, 1)
    tree = parameters.unravel(jnp.array([5.0, 7.0]))
    assert (float(tree["mean"]), float(tree["effect"])) == (5.0, 7.0)
    assert parameters.ravel(tree).tolist() == [5.0, 7.0]


def test_a_plain_problem_has_neither():
    parameters = Parameters.of(regression([3, 4]), jnp.float32)
    assert parameters.is_plain
    assert (parameters.private_start, parameters.num_shared, parameters.entries) == (None, 2, None)
    draws = np.zeros((3, 2, 2), np.float32)
    assert np.shares_memory(parameters.variables(draws)["w"], draws)


def test_agents_of_different_lengths_are_filled_up_at_the_end():
    parameters = Parameters.of(ragged(), jnp.float32)
    assert parameters.num_shared == 4  # mean, scale, two of three shares
    assert parameters.size == 4 + 4 + 1
    assert parameters.shapes == ((), (4,), (), (), (3,))
    assert parameters.entries.sum(1).tolist() == [7, 8, 7, 9]
    assert [group.places for group in parameters.groups] == [(0, 2), (1,), (3,)]
    with pytest.raises(ValueError, match="differ in length"):
        parameters.unravel(jnp.zeros(9))


def test_draws_are_stored_constrained_and_nan_where_an_agent_has_nothing():
    problem = ragged()
    parameters = Parameters.of(problem, jnp.float32)
    keys = jax.random.split(jax.random.key(0), (2, 4))
    start = np.asarray(initial_positions(problem, parameters, keys, jnp.float32))
    found = parameters.variables(np.stack([start] * 3, 2), agent_axis=1)  # chains, agents, draws
    assert {name: values.shape[3:] for name, values in found.items()} == dict(
        zip(parameters.names, parameters.shapes, strict=True)
    )
    np.testing.assert_allclose(found["scale"], 1.5, rtol=1e-5)
    np.testing.assert_allclose(found["own.slope"], 0.4, rtol=1e-5)
    np.testing.assert_allclose(found["shares"][0, 0, 0], [0.2, 0.5, 0.3], rtol=1e-5)
    assert (~np.isnan(found["own.effect"])).sum(-1)[0, :, 0].tolist() == [2, 3, 2, 4]


def test_starts_of_agents_depend_on_their_own_keys():
    problem = dataclasses.replace(
        sites([3, 3]), init=[lambda key: {"effect": jax.random.normal(key), "mean": jnp.zeros(())}] * 2
    )
    one = dataclasses.replace(problem, init=problem.init[0])
    keys = jax.random.split(jax.random.key(0), (3, 2))
    parameters = Parameters.of(problem, jnp.float32)
    found, expected = (initial_positions(given, parameters, keys, jnp.float32) for given in (problem, one))
    np.testing.assert_array_equal(found, expected)


def start(**arrays):
    return lambda key: {name: jnp.asarray(value, jnp.float32) for name, value in arrays.items()}


BROKEN = {
    "no such private name": ({"private": ("effcet",)}, "the parameters are effect, mean"),
    "no such constrained name": ({"constraints": {"sd": "positive"}}, "the parameters are effect, mean"),
    "everything private": ({"private": ("effect", "mean")}, "nothing to agree on"),
    "a start outside": ({"constraints": {"mean": "positive"}}, "breaks its constraint"),
    "other names": ({"init": [start(effect=0.0, mean=0.0), start(effect=0.0, mu=0.0)]}, "all must return the same"),
    "other shared shapes": (
        {"init": [start(effect=0.0, mean=0.0), start(effect=0.0, mean=[0.0])]},
        "must have the same",
    ),
    "other private axes": (
        {"init": [start(effect=0.0, mean=0.0), start(effect=[0.0], mean=0.0)]},
        "leading axis only",
    ),
}


@pytest.mark.parametrize(("changes", "words"), BROKEN.values(), ids=BROKEN)
def test_what_does_not_fit_is_refused(changes, words):
    with pytest.raises(ProblemError, match=words):
        Parameters.of(dataclasses.replace(sites([3, 4]), **changes), jnp.float32)


def test_a_start_outside_is_found_at_any_agent_and_chain():
    problem = cs.Problem(
        log_likelihood=lambda w, x: x * w, log_prior=lambda w: -w, init=lambda key: 1 + 2 * jax.random.normal(key),
        shards=[np.ones(2, np.float32)] * 2, constraints={"w": "positive"},
    )  # fmt: skip
    parameters = Parameters.of(dataclasses.replace(problem, init=lambda key: jnp.ones(())), jnp.float32)
    with pytest.raises(ProblemError, match="breaks its constraint"):
        initial_positions(problem, parameters, jax.random.split(jax.random.key(0), (20, 2)), jnp.float32)
