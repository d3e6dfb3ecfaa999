"""One row for each parameter, by the name that people know, from draws that are given."""

import csv
import io
import json

import numpy as np
import pytest

import consilience as cs
from consilience.errors import InputError, ProblemError
from consilience.runs.names import Names
from tests.made_runs import gossip_plan, made_run, unison_plan
from tests.outcome_problems import hospital_draws, hospitals, visits


@pytest.fixture(scope="module")
def unison(tmp_path_factory):
    return made_run(tmp_path_factory.mktemp("rows") / "run", hospitals(), unison_plan(3, 100), hospital_draws())


def gossip_draws(num_draws=60):
    rng = np.random.default_rng(3)
    w = np.arange(3)[None, :, None, None] * 0.1 + rng.normal(size=(2, 3, num_draws, 3))
    return {"coefficients": w, "site_effect": rng.normal(size=(2, 3, num_draws, 1))}


@pytest.fixture(scope="module")
def gossip(tmp_path_factory):
    return made_run(tmp_path_factory.mktemp("rows") / "run", hospitals(), gossip_plan(3, 60), gossip_draws())


def test_every_parameter_has_a_row_with_the_name_that_people_know(unison):
    table = unison.summary_table()
    assert table.index.tolist() == [
        "Intercept", "age", "stage[III]", *(f"site {site}: site_effect[Intercept]" for site in range(3)),
        "risk", *(f"site {site}: Intercept" for site in range(3)),
    ]  # fmt: skip
    assert table["derived"].sum() == 4
    assert table["agent"].dropna().tolist() == [0, 1, 2, 0, 1, 2]
    assert table["agent"].dtype == "Int64"


def test_numbers_are_those_of_the_draws(unison):
    age = hospital_draws()["coefficients"][..., 1]
    row = unison.summary_table().loc["age"]
    low, middle, high = np.quantile(age, (0.025, 0.5, 0.975))
    np.testing.assert_allclose(
        row[["mean", "standard_deviation", "low", "high"]].astype(float), [age.mean(), age.std(), low, high]
    )
    np.testing.assert_allclose(row[["ratio", "ratio_low", "ratio_high"]].astype(float), np.exp([middle, low, high]))
    assert row["ratio"] != pytest.approx(np.exp(row["mean"]), rel=1e-6), "the control: not that of the mean"
    assert row["ratio_name"] == "odds ratio"
    own = unison.summary_table().loc["site 2: Intercept"]
    assert own["mean"] == pytest.approx(0.7 * hospital_draws()["site_effect"][:, 2].mean())
    assert np.isnan(own["ratio"])


def test_a_network_by_gossip_has_intervals_and_a_row_for_each_parameter(gossip):
    draws, table = gossip_draws()["coefficients"][..., 1], gossip.summary_table()
    row, each = table.loc["age"], gossip.summary_table(by_agent=True).loc["age"]
    np.testing.assert_allclose([row["low"], row["high"]], np.quantile(draws, (0.025, 0.975)))
    assert row["mean"] == pytest.approx(draws.mean())
    assert row["between_agents"] == pytest.approx(draws.mean((0, 2)).std())
    assert row["rhat"] == each["rhat"].max()
    assert row["ess"] == each["ess"].min()
    assert each["agent"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(each["low"], np.quantile(draws, 0.025, axis=(0, 2)))
    assert table.index.tolist().count("age") == 1
    assert "site 1: site_effect[Intercept]" in table.index
    assert gossip.summary["agents"][1]["low"][1] == pytest.approx(np.quantile(draws[:, 1], 0.025))


def test_functions_of_draws(unison):
    age = hospital_draws()["coefficients"][..., 1]
    found = unison.summary_table(transform=np.exp)
    assert found.loc["age", "mean"] == pytest.approx(np.exp(age).mean())
    assert "ratio" not in found
    some = unison.summary_table(transform={"age": np.square, "risk": lambda risk: 100 * risk})
    assert some.loc["age", "mean"] == pytest.approx(np.square(age).mean())
    assert some.loc["Intercept", "ratio_name"] == "odds ratio"
    assert 20 < some.loc["risk", "mean"] < 80
    whole = unison.summary_table(transform={"coefficients": np.exp})
    assert whole.loc["stage[III]", "mean"] > 1
    assert whole.loc["site 0: Intercept", "mean"] < 0
    with pytest.raises(InputError, match="transform names 'weight', which is no parameter"):
        unison.summary_table(transform={"weight": np.exp})
    with pytest.raises(InputError, match="one number for each"):
        unison.summary_table(transform=np.mean)
    with pytest.raises(InputError, match="transform is a str"):
        unison.summary_table(transform="exp")


def test_files_hold_the_same_rows(unison):
    rows = list(csv.DictReader(io.StringIO((unison.path / "summary.csv").read_text())))
    table = unison.summary_table()
    assert [row["name"] for row in rows] == table.index.tolist()
    assert [row["parameter"] for row in rows][:4] == [
        "coefficients[0]", "coefficients[1]", "coefficients[2]", "site_effect[0]",
    ]  # fmt: skip
    np.testing.assert_allclose([float(row["mean"]) for row in rows], table["mean"])
    summary = json.loads((unison.path / "summary.json").read_text())
    assert [row["label"] for row in summary["posterior"]] == table.index.tolist()
    assert summary["num_parameters"] == 4
    assert "risk" not in summary["parameters"], "what is derived is not judged"


def test_a_large_model_by_gossip_says_what_is_described(tmp_path, monkeypatch):
    monkeypatch.setattr("consilience.runs.posterior.MOST_ROWS", 5)
    monkeypatch.setattr("consilience.runs.posterior.MOST_CHOSEN", 2)
    draws = {"w": np.random.default_rng(0).normal(size=(2, 2, 20, 2))}
    problem = visits(kind="number")
    run = made_run(tmp_path / "run", problem, gossip_plan(2, 20), draws)
    assert len(run.rows()) == 2
    monkeypatch.setattr("consilience.runs.posterior.MOST_ROWS", 3)
    monkeypatch.setattr("consilience.runs.posterior.MOST_CHOSEN", 1)
    assert [row["parameter"] for row in cs.Run(run.path).rows(by_agent=True)] == ["w[0]", "w[0]"]


def test_labels_that_do_not_fit_are_refused(tmp_path):
    from dataclasses import replace

    problem = hospitals()
    for labels, words in (
        ({"coefficients": ("Intercept", "age")}, "there are 2 labels for 'coefficients'"),
        ({"weights": ("a",)}, "labels names 'weights', which is no parameter"),
        ({"coefficients": "abc"}, "give a tuple of names"),
    ):
        with pytest.raises(ProblemError, match=words):
            made_run(tmp_path / "run", replace(problem, labels=labels), unison_plan(3, 4), hospital_draws(4))
    with pytest.raises(ProblemError, match="ratios names 'slope'"):
        made_run(
            tmp_path / "run", replace(problem, ratios={"slope": "odds ratio"}), unison_plan(3, 4), hospital_draws(4)
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "place", "agent", "wanted"),
    [
        ("b", (1,), None, "age"),
        ("b", (2,), None, "b[sigma]"),
        ("sd", (0,), None, "sd[one]"),
        ("u", (0,), 3, "site 3: one"),
        ("v", (0,), 3, "site 3: v[one]"),
        ("m", (4, 1), None, "m[4, right]"),
        ("free", (2, 0), None, "free[2, 0]"),
        ("sigma", (), None, "sigma"),
    ],
)
def test_names_are_never_taken_twice(name, place, agent, wanted):
    labels = {
        "b": ("one", "age", "sigma"), "sd": ("one",), "u": ("one",), "v": ("one",), "m": ("left", "right"),
    }  # fmt: skip
    names = Names(("b", "free", "m", "sd", "sigma", "u", "v"), ("u", "v"), labels)
    assert names.entry(name, place, agent) == wanted
