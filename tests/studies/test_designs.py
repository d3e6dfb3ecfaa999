"""Design matrices: stacked sites have the matrix of the pooled rows, whatever levels a site has."""

import numpy as np
import pytest

from consilience.errors import DataError
from consilience.studies import Study
from consilience.studies.rows import site_rows
from tests.studies.patients import book, rows, split, study, write

FORMULAS = [
    "died ~ age + stage + treatment",
    "died ~ age * stage * treatment",
    "died ~ stage:treatment",
    "died ~ 0 + stage + age:treatment",
    "died ~ (age + treatment):stage - 1",
    "died ~ age + (1 + age + stage | site)",
]


def arrays(regression, place, columns, name):
    return site_rows(regression, write(place / name, columns))


@pytest.mark.parametrize("formula", FORMULAS)
def test_stacked_sites_are_the_pooled_rows(tmp_path, formula):
    """The third site has one level of each category, the fourth one row."""
    regression, columns = study(formula), rows(203)
    order = np.lexsort((columns["treatment"], columns["stage"]))
    columns = {name: values[order] for name, values in columns.items()}
    sites = [*split({name: values[:-1] for name, values in columns.items()}, 3)]
    sites.append({name: values[-1:] for name, values in columns.items()})
    assert len(set(sites[2]["stage"])) == 1
    pooled = arrays(regression, tmp_path, columns, "pooled.csv")
    parts = [arrays(regression, tmp_path, site, f"{number}.csv") for number, site in enumerate(sites)]
    for name, values in pooled.items():
        np.testing.assert_allclose(np.concatenate([part[name] for part in parts]), values, rtol=0, atol=1e-12)
    assert pooled["x"].shape[1] == len(regression.coefficients) == np.linalg.matrix_rank(pooled["x"])


def test_columns_are_what_their_labels_say(tmp_path):
    columns = rows(40)
    regression = study("died ~ age * stage + treatment", codebook=book(stage={"reference": "II"}))
    x = arrays(regression, tmp_path, columns, "site.csv")["x"]
    assert regression.coefficients == (
        "Intercept", "age", "stage[I]", "stage[III]", "treatment[new]", "age:stage[I]", "age:stage[III]",
    )  # fmt: skip
    age, third = (columns["age"] - 60) / 10, columns["stage"] == "III"
    by_label = dict(zip(regression.coefficients, x.T, strict=True))
    np.testing.assert_allclose(by_label["age"], age, atol=1e-12)
    np.testing.assert_allclose(by_label["age:stage[III]"], age * third, atol=1e-12)
    np.testing.assert_array_equal(by_label["treatment[new]"], columns["treatment"] == "new")


def test_two_categories_that_interact_have_a_column_for_each_pair():
    labels = study("died ~ stage * treatment").coefficients
    assert labels[-2:] == ("stage[II]:treatment[new]", "stage[III]:treatment[new]")
    assert len(labels) == 6


def test_the_order_of_levels_in_a_file_changes_nothing(tmp_path):
    """Known harm elsewhere: levels in the order of their appearance gave one site the other sign."""
    columns = rows(30)
    backwards = {name: values[::-1] for name, values in columns.items()}
    regression = study("died ~ stage + treatment")
    one = arrays(regression, tmp_path, columns, "one.csv")
    other = arrays(regression, tmp_path, backwards, "other.csv")
    np.testing.assert_array_equal(one["x"], other["x"][::-1])
    np.testing.assert_array_equal(one["y"], other["y"][::-1])


@pytest.mark.parametrize(
    ("formula", "changes", "words"),
    [
        ("died ~ weight", {}, "the codebook has no column 'weight'"),
        ("survived ~ age", {}, "the codebook has no column 'survived'"),
        ("died ~ age - 1 - age", {}, "the formula has no term"),
        ("died ~ stage", {"stage": {"levels": ["I"]}}, "has one level in the codebook"),
        (
            "died ~ stage * treatment",
            {"stage": {"levels": range(900)}, "treatment": {"levels": range(900)}},
            "up to 811,801 columns",
        ),
    ],
)
def test_what_a_design_cannot_be(formula, changes, words):
    changes = {name: {"levels": list(entry["levels"])} for name, entry in changes.items()}
    with pytest.raises(DataError, match=words):
        study(formula, codebook=book(**changes))


def test_two_columns_of_one_name_are_refused():
    columns = {"y": {"kind": "outcome", "one": "1", "zero": "0"}, "Intercept": {"kind": "number"}}
    with pytest.raises(DataError, match="two columns of the design are called 'Intercept'"):
        Study(formula="y ~ Intercept", family="bernoulli", codebook={"columns": columns})
