"""Derived quantities have the dimensions of what they depend on."""

from dataclasses import replace

import numpy as np
import pytest
import xarray

from consilience.errors import InputError
from consilience.predictive import derived_draws
from tests.hierarchical import ragged
from tests.outcome_problems import hospital_draws, hospitals

RNG = np.random.default_rng(0)


def unison(num_draws=50):
    draws = hospital_draws(num_draws)
    return xarray.Dataset(
        {
            "coefficients": (("chain", "draw", "k"), draws["coefficients"]),
            "site_effect": (("chain", "agent", "draw", "e"), draws["site_effect"]),
        },
        {"agent": np.arange(3), "draw": np.arange(num_draws)},
        {"parameters": ["coefficients", "site_effect"], "private": ["site_effect"]},
    )


def test_what_depends_on_private_parameters_is_each_agents_own():
    found = derived_draws(hospitals(), unison())
    assert found["risk"].dims == ("chain", "draw")
    assert found["site_difference"].dims == ("chain", "agent", "draw", "site_difference_dim_0")
    assert found.attrs == {"parameters": ["risk", "site_difference"], "private": ["site_difference"]}
    np.testing.assert_allclose(found["site_difference"], 0.7 * hospital_draws(50)["site_effect"])
    np.testing.assert_allclose(found["risk"], 1 / (1 + np.exp(-hospital_draws(50)["coefficients"][..., 0])))
    own = derived_draws(hospitals(), unison().isel(agent=2))
    assert own["site_difference"].dims == ("chain", "draw", "site_difference_dim_0")
    np.testing.assert_allclose(own["site_difference"], found["site_difference"][:, 2])


def test_pieces_do_not_matter(monkeypatch):
    whole = derived_draws(hospitals(), unison())
    monkeypatch.setattr("consilience.predictive.draws._CHUNK_BYTES", 8 * 4 * 2 * 7)
    assert derived_draws(hospitals(), unison()).equals(whole)


def test_agents_with_fewer_of_their_own_have_fewer_derived():
    problem = replace(ragged((2, 3), rows=4), derived=lambda p: {"twice": 2 * p["own"]["effect"], "m": p["mean"]})
    effect = RNG.normal(size=(1, 2, 5, 3))
    effect[:, 0, :, 2] = np.nan
    shape = (1, 2, 5)
    dims = ("chain", "agent", "draw")
    draws = xarray.Dataset(
        {
            "mean": (dims, RNG.normal(size=shape)), "own.effect": ((*dims, "e"), effect),
            "own.slope": (dims, RNG.random(shape)), "scale": (dims, RNG.random(shape)),
            "shares": ((*dims, "s"), RNG.random((*shape, 3))),
        },
        {"agent": [0, 1], "draw": np.arange(5)},
        {
            "parameters": ["mean", "own.effect", "own.slope", "scale", "shares"],
            "private": ["own.effect", "own.slope"],
        },
    )  # fmt: skip
    found = derived_draws(problem, draws)
    np.testing.assert_allclose(found["twice"], 2 * effect)
    assert found["m"].dims == dims, "by gossip every agent has draws of its own"
    assert found.attrs["private"] == ["twice"]


def test_a_problem_that_derives_nothing_says_so():
    with pytest.raises(InputError, match="derives nothing"):
        derived_draws(replace(hospitals(), derived=None), unison())
