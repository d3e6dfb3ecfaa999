"""Default priors by Bambi's rule with the codebook's scales, and how they are changed."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from consilience.errors import DataError
from consilience.studies.priors import Prior
from tests.studies.patients import book, study


def test_defaults_follow_bambis_rule():
    """Worked out by hand: three equally common levels have p(1 − p) = 2/9, two 1/4."""
    found = study("cost ~ age + stage + treatment + (1 + age | site)", "gaussian").all_priors
    three, two = 2.5 * 20 / np.sqrt(2 / 9), 2.5 * 20 / 0.5
    intercept = np.sqrt(50**2 + 2 * (three / 3) ** 2 + (two / 2) ** 2)
    wanted = {
        "Intercept": (100, intercept), "age": (0, 50), "stage[II]": (0, three), "stage[III]": (0, three),
        "treatment[new]": (0, two), "site_sd[Intercept]": (None, intercept), "site_sd[age]": (None, 50),
    }  # fmt: skip
    for name, (mean, sd) in wanted.items():
        assert found[name].mean == mean, name
        assert found[name].sd == pytest.approx(sd, rel=1e-3), name
    assert str(found["sigma"]) == "half_student_t(df 4, sd 20)"


@pytest.mark.parametrize(
    ("family", "formula", "extra"),
    [
        ("bernoulli", "died ~ age", {}),
        ("poisson", "visits ~ age", {}),
        ("negative-binomial", "visits ~ age", {"alpha": "half_cauchy(sd 1)"}),
        ("student-t", "cost ~ age", {"freedom": "gamma(shape 2, rate 0.1)"}),
    ],
)
def test_other_families_have_unit_scale_and_their_own_parameters(family, formula, extra):
    found = {row["parameter"]: row["prior"] for row in study(formula, family).priors_table()}
    assert extra.items() <= found.items()
    if family != "student-t":
        assert found["age"] == "normal(mean 0, sd 2.5)"
        assert found["Intercept"] == "normal(mean 0, sd 2.5)"


def test_the_intercept_of_a_rate_is_around_the_logarithm_of_the_outcomes_centre():
    codebook = book(visits={"centre": 3}, years={"centre": 1.5})
    found = study("visits ~ age", "poisson", codebook, exposure="years").all_priors["Intercept"]
    assert found.mean == pytest.approx(np.log(2), abs=1e-3)


def test_priors_do_not_depend_on_anybodys_rows():
    assert study().entries()["priors"] == study().entries()["priors"]
    assert study("died ~ age", codebook=book(age={"scale": 5})).all_priors["age"].sd == 2.5  # for five years


def test_a_study_may_change_one_prior_or_all_coefficients():
    tight = {"distribution": "normal", "mean": 0, "sd": 0.5}
    wide = {"distribution": "student_t", "df": 3, "mean": 0, "sd": 10}
    found = study(priors={"coefficients": tight, "age": wide}).all_priors
    assert found["stage[II]"].sd == found["treatment[new]"].sd == 0.5
    assert str(found["age"]) == "student_t(df 3, mean 0, sd 10)"
    assert found["Intercept"] == study().all_priors["Intercept"]


@pytest.mark.parametrize(
    ("name", "prior", "words"),
    [
        (
            "weight",
            {"distribution": "normal", "mean": 0, "sd": 1},
            "a prior for 'weight', which the model does not have",
        ),
        ("age", {"distribution": "half_normal", "sd": 1}, "is half_normal: take one of normal, student_t"),
        ("age", {"distribution": "normal", "sd": 1}, "takes mean and sd, and has sd"),
        ("age", {"distribution": "normal", "mean": 0, "sd": 0}, "greater than 0"),
        ("age", {"distribution": "flat"}, "distribution"),
        ("age", {"distribution": "gamma", "mean": 1}, "takes shape and rate, and has mean"),
    ],
)
def test_wrong_priors_are_named(name, prior, words):
    with pytest.raises(DataError, match=re.escape(words)):
        study(priors={name: prior})


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        ({"distribution": "normal", "mean": 1, "sd": 2}, stats.norm(1, 2)),
        ({"distribution": "student_t", "df": 3, "mean": 1, "sd": 2}, stats.t(3, 1, 2)),
        ({"distribution": "half_normal", "sd": 2}, stats.halfnorm(0, 2)),
        ({"distribution": "half_student_t", "df": 4, "sd": 2}, stats.t(4, 0, 2)),
        ({"distribution": "half_cauchy", "sd": 2}, stats.halfcauchy(0, 2)),
        ({"distribution": "gamma", "shape": 2, "rate": 0.1}, stats.gamma(2, scale=10)),
        ({"distribution": "exponential", "rate": 0.5}, stats.expon(scale=2)),
    ],
)
def test_densities_are_scipys_up_to_a_constant(prior, law):
    points = np.array([0.3, 1.7, 5.0])
    found = np.asarray(Prior(**prior).log_density(jnp.asarray(points)))
    np.testing.assert_allclose(np.diff(found), np.diff(law.logpdf(points)), rtol=1e-5)
