"""Studies: from a file to a problem; what cannot be one is refused in words."""

import re

import jax
import numpy as np
import pytest

import consilience as cs
from consilience.errors import DataError, PlanError, ProblemError
from consilience.studies import Study, is_study, of_run
from tests.studies.patients import COLUMNS, book, rows, split, study, write

TOML = 'formula = "died ~ age + (1 | site)"\nfamily = "bernoulli"\ncodebook = "codebook.toml"\n'


@pytest.fixture
def place(tmp_path):
    (tmp_path / "codebook.toml").write_text(book().to_toml())
    (tmp_path / "hospitals.toml").write_text(TOML)
    for number, site in enumerate(split(rows(60), 3)):
        write(tmp_path / f"{number}.csv", site)
    return tmp_path


def test_a_study_is_read_with_the_codebook_beside_it(place):
    found = Study.load(place / "hospitals.toml")
    assert found.name == "hospitals"
    assert found.codebook == book()
    assert is_study(place / "hospitals.toml")
    assert not is_study(place / "codebook.toml")
    assert not is_study(place / "nothing.toml")


def test_a_plan_holds_the_whole_study_and_gives_it_back(place):
    found = Study.load(place / "hospitals.toml")
    plan = cs.Plan(graph=cs.graphs.ring(3), sampler=cs.hmc(), study=found.entries())
    again = cs.Plan.from_toml(plan.to_toml())
    assert again.digest() == plan.digest()
    assert of_run(again).entries() == found.entries()
    assert of_run(again).all_priors == found.all_priors
    (place / "plan.toml").write_text(plan.to_toml())
    assert of_run(place).coefficients == ("Intercept", "age")
    swapped = study("died ~ age + (1 | site)", codebook=book(died={"one": "no", "zero": "yes"}), name="hospitals")
    assert plan.replace(study=swapped.entries()).digest() != plan.digest()


def test_a_plan_without_a_study_has_the_digest_that_it_had():
    plan = cs.Plan(graph=cs.graphs.ring(3), sampler=cs.dula(1e-3, 0.3), num_steps=10)
    assert of_run(plan) is None
    assert "study" not in plan.to_toml()
    assert plan.digest() == "9ccddf571f71f47c2e2105bf0d75e496fc06e752eae2af56c6011bbd2339d513"
    with pytest.raises(PlanError, match="a study and names the problem"):
        plan.replace(problem="gmm", study=study().entries())


@pytest.mark.parametrize(
    "entries", [{"formula": 3}, {"formula": "y ~ {x}", "family": "gaussian", "codebook": {}}, {"codebook": "a.toml"}]
)
def test_a_plan_from_elsewhere_with_nonsense_for_a_study(entries):
    plan = cs.Plan(graph=cs.graphs.ring(3), sampler=cs.nuts(), study=entries)
    with pytest.raises(PlanError, match="the plan's study cannot be used: "):
        of_run(plan)


def test_the_problem_has_names_that_people_know(place):
    regression = Study.load(place / "hospitals.toml")
    problem = regression.problem([place / f"{number}.csv" for number in range(3)])
    assert problem.shard_sizes.tolist() == [20, 20, 20]
    assert problem.labels["coefficients"] == ("Intercept", "age")
    assert problem.labels["site_effect"] == problem.labels["site_sd"] == ("Intercept",)
    assert dict(problem.ratios) == {"coefficients": "odds ratio"}
    assert problem.private == ("site_effect",)
    own = regression.site_problem(place / "1.csv", 3)
    assert own.network_size == 3
    np.testing.assert_array_equal(own.shards[0]["x"], problem.shards[1]["x"])


def test_a_site_with_one_row_and_a_level_of_one_site_only(place):
    sites = [rows(30, stages=("I", "II")), rows(1, 1), rows(25, 2, stages=("III",))]
    files = [write(place / f"{number}.csv", site) for number, site in enumerate(sites)]
    regression = study("died ~ age + stage")
    problem = regression.problem(files)
    assert problem.shard_sizes.tolist() == [30, 1, 25]
    third = list(regression.coefficients).index("stage[III]")
    assert problem.shards[0]["x"][:, third].sum() == 0
    assert problem.shards[2]["x"][:, third].sum() == 25


def test_outcomes_swapped_at_a_site_do_not_fit(place):
    path = write(place / "swapped.csv", {**rows(10), "died": ["1", "0"] * 5})
    with pytest.raises(DataError, match=r"neither 'no' nor 'yes' but '[01]' in 5 rows"):
        study().problem([path, path])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stage": ["IV"] * 10}, "stage: unknown level 'IV' in 10 rows"),
        ({"age": ["a lot"] * 10}, "age: text where numbers belong in 10 rows"),
        ({"age": ["1950-01-01"] * 10}, "age: dates where numbers belong in 10 rows"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_anything_is_compiled(place, changes, words):
    path = write(place / "other.csv", {**rows(10), **changes})
    with pytest.raises(DataError, match=f"{words}. Mend the file"):
        study().problem([path])


def test_a_constant_column_teaches_nothing(place):
    files = [write(place / f"{k}.csv", {**rows(10, k), "age": [60] * 10}) for k in range(2)]
    with pytest.raises(ProblemError, match="'age' is the same in all rows of all files"):
        study("died ~ age").problem(files)
    varied = write(place / "varied.csv", rows(10))
    study("died ~ age").problem([files[0], varied])  # at one site it may be


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"family": "probit"}, "unknown family 'probit': choose one of gaussian"),
        ({"formula": "age ~ stage"}, "bernoulli needs an outcome of two values"),
        (
            {"formula": "stage ~ age", "family": "gaussian"},
            "gaussian needs an outcome of numbers, and 'stage' is a category",
        ),
        ({"formula": "visits ~ age", "family": "gaussian"}, "the priors need to know how large 'visits' is"),
        ({"formula": "visits ~ age", "family": "binomial"}, "needs the column of trials"),
        ({"trials": "trials"}, "binomial, and no other family"),
        ({"exposure": "years"}, "exposure is for poisson and negative-binomial"),
        ({"formula": "visits ~ age", "family": "poisson", "exposure": "stage"}, "'stage' is no column of numbers"),
        ({"formula": "died ~ age + {1}"}, "has a '{'"),
        ({"famly": "x"}, "did you mean 'family'"),
    ],
)
def test_what_is_no_study(entries, words):
    with pytest.raises(DataError, match=re.escape(words)):
        Study(**{"formula": "died ~ age", "family": "bernoulli", "codebook": book(), **entries})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"visits": [0.5] * 10}, "visits: 10 rows are no whole numbers from 0 on"),
        ({"years": [0] * 10}, "years is 0 or less in 10 rows"),
    ],
)
def test_counts_and_exposures_are_what_they_must_be(place, columns, words):
    path = write(place / "other.csv", {**rows(10), **columns})
    with pytest.raises(DataError, match=words):
        study("visits ~ age", "poisson", exposure="years").problem([path])
    if "years" not in columns:
        return
    path = write(place / "other.csv", {**rows(10), "recovered": [9] * 10})
    columns = {**COLUMNS, "recovered": {"kind": "number"}}
    with pytest.raises(DataError, match="recovered is above trials in 10 rows"):
        Study(formula="recovered ~ age", family="binomial", trials="trials", codebook={"columns": columns}).problem(
            [path]
        )


def test_new_rows_need_no_outcome(place):
    regression, columns = study("died ~ age + stage + (1 | site)"), rows(12)
    path = write(place / "new.csv", columns)
    known = regression.new_rows(path)
    np.testing.assert_array_equal(known["y"], columns["died"] == "yes")
    del columns["died"]
    found = regression.new_rows(write(place / "new.csv", columns))
    assert set(found) == {"x", "z"}
    np.testing.assert_array_equal(found["x"], known["x"])
    columns["stage"] = ["", *columns["stage"][1:]]
    with pytest.raises(DataError, match="stage: missing values"):
        regression.new_rows(write(place / "new.csv", columns))
    columns["stage"] = ["V", *columns["stage"][1:]]
    with pytest.raises(DataError, match="stage: unknown level 'V' in 1 row"):
        regression.new_rows(write(place / "new.csv", columns))
    assert study("died ~ 1").new_rows(path)["x"].shape == (12, 1)


def test_what_is_still_open_must_be_filled_first(place):
    open_ = study("died ~ age", codebook=book(age={"centre": "from sites"}))
    assert open_.unfilled == ("age.centre",)
    with pytest.raises(DataError, match=r"age\.centre are still to come from the sites"):
        open_.problem([place / "0.csv"])
    assert study("died ~ stage", codebook=book(age={"centre": "from sites"})).unfilled == ()


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    from consilience.studies import files

    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None if name == "formulaic" else object())
    with pytest.raises(
        DataError, match=r"studies need formulaic: where Consilience is cloned, pip install '\.\[glm\]'"
    ):
        study()


def test_predictions_for_a_new_site_draw_its_effect(place):
    problem = study("died ~ age + (1 + age | site)").problem([place / f"{k}.csv" for k in range(3)])
    parameters = problem.inits[0](jax.random.key(0))
    drawn = problem.outcomes.draw_private(jax.random.key(1), parameters)
    assert drawn["site_effect"].shape == (2,)
    assert (drawn["site_effect"] != parameters["site_effect"]).all()
    assert drawn["coefficients"] is parameters["coefficients"]


@pytest.mark.slow(reason="a million rows")
def test_a_million_rows_are_the_same_from_csv_and_parquet(tmp_path):
    import pandas

    table = pandas.DataFrame(rows(1_000_000))
    table.to_csv(tmp_path / "site.csv", index=False)
    table.to_parquet(tmp_path / "site.parquet")
    regression = study("died ~ age * stage + treatment")
    csv, parquet = (regression.problem([tmp_path / name]).shards[0] for name in ("site.csv", "site.parquet"))
    assert csv["x"].shape == (1_000_000, 7)
    for name in csv:
        np.testing.assert_array_equal(csv[name], parquet[name])
