"""Posteriors by name, their references, their splits, and draws as references have them."""

from importlib.resources import files

import jax
import numpy as np
import pytest

from consilience import posteriors
from consilience.errors import DataError, InputError
from consilience.posteriors.files import LARGE

SCHOOLS, RADON = "eight_schools-eight_schools_noncentered", "radon_mn-radon_variable_intercept_noncentered"
DRUG = "one_comp_mm_elim_abs-one_comp_mm_elim_abs"
AGENTS = {
    "GLM_Poisson_Data-GLM_Poisson_model": 5, "arK-arK": 5, "diamonds-diamonds": 5, "earnings-earn_height": 2,
    "earnings-logearn_interaction_z": 5, SCHOOLS: 8, "hudson_lynx_hare-lotka_volterra": 3,
    "kidiq-kidscore_interaction": 2, "kidiq-kidscore_momiq": 3, "kidiq_with_mom_work-kidscore_interaction_z": 4,
    "kilpisjarvi_mod-kilpisjarvi": 2, "low_dim_gauss_mix-low_dim_gauss_mix": 2, "mesquite-logmesquite": 2,
    "mesquite-mesquite": 2, "nes2000-nes": 4, DRUG: 2, RADON: 5, "sblrc-blr": 5, "wells_data-wells_dae_model": 5,
}  # fmt: skip


def test_all_are_known_and_the_small_ones_are_inside_the_package():
    inside = {one.name.removesuffix(".json") for one in (files(posteriors) / "data").iterdir()} - {"LICENSE"}
    assert posteriors.names() == sorted(inside | set(LARGE)) == sorted(AGENTS)
    assert inside <= set(posteriors.available())
    assert "Redistribution and use in source and binary forms" in (files(posteriors) / "data" / "LICENSE").read_text()


@pytest.mark.parametrize("name", AGENTS)
def test_references_match_their_own_checks(name, load):
    """What the file says of its exact moments and of its draws is what is read from it."""
    posterior = load(name)
    best, drawn, content = posterior.reference, posterior.drawn_reference, posterior.content
    assert len(best.names) == sum(int(np.prod(one["dims"], dtype=int)) for one in content["parameters"])
    assert (drawn.low < drawn.mean).all()
    assert (drawn.mean < drawn.high).all()
    assert (drawn.mean_error > 0).all()
    assert "BSD-3-Clause" in content["licence"]
    assert posterior.model_in_words
    assert posterior.category
    assert posterior.natural_split
    if not best.exact:
        assert best.mean is drawn.mean or np.array_equal(best.mean, drawn.mean)
        return
    score = abs(drawn.mean - best.mean) / drawn.mean_error
    assert score.max() == pytest.approx(content["exact"]["max_abs_z_of_reference_mean"], abs=0.05)
    ratio = drawn.sd / best.sd
    np.testing.assert_allclose([ratio.min(), ratio.max()], content["exact"]["reference_sd_ratio"], atol=1e-4)
    assert (best.mean_error == 0).all()
    assert (best.sd_error == 0).all()


@pytest.mark.parametrize("name", AGENTS)
def test_every_row_has_one_agent_by_both_splits(name, load):
    posterior = load(name)
    assert posterior.num_agents == AGENTS[name]
    for problem in (posterior.problem(), posterior.problem("random", 3, seed=4)):
        assert problem.shard_sizes.sum() == posterior.num_rows
        for column, values in posterior.rows.items():
            if posterior.recipe.groups is None or column != posterior.recipe.groups.column:
                pooled = np.concatenate([shard[column] for shard in problem.shards])
                np.testing.assert_array_equal(np.sort(pooled, axis=0), np.sort(values, axis=0))
    assert problem.num_agents == 3
    assert problem.name == name


def test_random_splits_follow_their_seed_and_natural_ones_differ_by_design():
    posterior = posteriors.load("kidiq-kidscore_interaction")
    prints = [posterior.problem("random", 4, seed).fingerprint() for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]
    finished = [np.unique(shard["x"][:, 1]).tolist() for shard in posterior.problem().shards]
    assert finished == [[0], [1]]
    assert posterior.problem("random").num_agents == posterior.num_agents


def test_groups_are_counted_from_zero_at_their_agent():
    posterior = posteriors.load(RADON)
    problem = posterior.problem()
    assert problem.private == ("z",)
    assert [sorted(set(shard["county"].tolist())) for shard in problem.shards] == [list(range(17))] * 5
    assert posterior.problem("random").private == ()


def test_draws_of_private_parameters_are_measured_at_their_agent():
    posterior = posteriors.load(SCHOOLS)
    random = np.random.default_rng(0)
    draws = {"mu": random.normal(size=(2, 5)), "tau": random.uniform(size=(2, 5)), "z": random.normal(size=(2, 5, 8))}
    together = posterior.measured(draws, "random")
    names = posterior.reference.names
    assert names == (*(f"theta[{school}]" for school in range(1, 9)), "mu", "tau")
    np.testing.assert_allclose(together[..., 3], draws["mu"] + draws["tau"] * draws["z"][..., 3])
    for agent in range(8):
        own = {**draws, "z": draws["z"][..., agent : agent + 1], "something_else": np.zeros((2, 5))}
        places = posterior.places(agent=agent)
        assert [names[place] for place in places] == [f"theta[{agent + 1}]", "mu", "tau"]
        assert posterior.reference.at(places).names == (f"theta[{agent + 1}]", "mu", "tau")
        np.testing.assert_array_equal(posterior.measured(own, agent=agent), together[..., places])


@pytest.mark.parametrize("name", [name for name in AGENTS if name not in (SCHOOLS, RADON)])
def test_draws_at_the_reference_are_measured_in_its_order(name, load):
    posterior = load(name)
    draws, start = {}, 0
    for one in posterior.content["parameters"]:
        size = int(np.prod(one["dims"], dtype=int))
        entries = posterior.reference.mean[start : start + size].reshape(one["dims"])
        draws[one["name"]], start = np.broadcast_to(entries, (2, 3, *one["dims"])), start + size
    found = posterior.measured(dict(reversed(draws.items())))
    np.testing.assert_array_equal(found, np.broadcast_to(posterior.reference.mean, found.shape))


def test_means_of_the_mixture_are_in_order():
    """By a constraint, so that labels cannot change."""
    problem = posteriors.load("low_dim_gauss_mix-low_dim_gauss_mix").problem()
    starts = np.array([problem.init(jax.random.key(seed))["mu"] for seed in range(20)])
    assert (starts[:, 0] < starts[:, 1]).all()


def test_names_that_are_not_known_are_refused_with_suggestions():
    with pytest.raises(DataError, match="unknown posterior 'eight_schools': did you mean eight_schools-eight"):
        posteriors.load("eight_schools")
    with pytest.raises(DataError, match="choose one of GLM_Poisson_Data"):
        posteriors.load("?")


def test_a_large_file_that_is_not_here_is_an_error_that_says_where_to_put_it(monkeypatch, tmp_path):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    monkeypatch.setattr("consilience.datasets.files.cache_directory", lambda: tmp_path / "cache")
    assert "diamonds-diamonds" not in posteriors.available()
    with pytest.raises(DataError, match=r"put it at .*posteriordb.diamonds-diamonds\.json"):
        posteriors.load("diamonds-diamonds")


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda one: one.problem("naturally"), "expected one of natural, random"),
        (lambda one: one.problem(num_agents=3), "has 8 agents, received 3"),
        (lambda one: one.problem("random", 9), "8 rows cannot be split among 9 agents"),
        (lambda one: one.places(), "say which agent's by a number from 0 to 7"),
        (lambda one: one.places(agent=8), "received 8"),
        (lambda one: one.measured({"mu": np.zeros((1, 2))}, agent=0), "draws lack 'tau'"),
        (
            lambda one: one.measured(
                {"mu": np.zeros((1, 2)), "tau": np.ones((1, 2)), "z": np.ones((1, 2, 8))}, agent=0
            ),
            "have 10 parameters, expected 3 by the natural split",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(ask, words):
    with pytest.raises(InputError, match=words):
        ask(posteriors.load(SCHOOLS))


def test_parameters_with_infinite_variance_say_so():
    reference = posteriors.load(DRUG).reference
    assert dict(zip(reference.names, reference.has_sd.tolist(), strict=True)) == {
        "k_a": True, "K_m": False, "V_m": False, "sigma": True,
    }  # fmt: skip
    assert np.isinf(reference.sd_error[~reference.has_sd]).all()
    assert all(posteriors.load(name).reference.has_sd.all() for name in (SCHOOLS, "sblrc-blr"))
