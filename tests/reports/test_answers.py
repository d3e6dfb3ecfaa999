"""What a report shows of effects, checks and scores, from the run's directory alone."""

import numpy as np
import pytest

from consilience.reports.forest import MOST_ROWS, forest, forest_rows
from consilience.reports.posterior_table import posterior_table
from consilience.runs.directory import RunDirectory
from tests.made_runs import made_run, unison_plan
from tests.outcome_problems import hospital_draws, hospitals, visit_draws, visits


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    run = made_run(tmp_path_factory.mktemp("report") / "run", hospitals(), unison_plan(3, 60), hospital_draws(60))
    return run, run.report().read_text()


def test_a_report_shows_effects_calibration_and_scores(page):
    run, text = page
    for words in ("stage[III]", "odds ratio (95 %)", "Effects", "Is it calibrated? died", "rows it has not seen"):
        assert words in text
    assert {"forest.png", "check-died.png"} <= {place.name for place in (run.path / "figures").iterdir()}
    assert "stay in its directory" not in text


def test_counts_and_numbers_are_drawn_beside_the_observed(tmp_path):
    run = made_run(tmp_path / "run", visits(), unison_plan(2, 40), visit_draws(40))
    text = run.report().read_text()
    assert "Does the model say what was seen? y" in text
    assert "rate ratio" in text
    assert (run.path / "figures" / "check-y.png").exists()


def test_a_nodes_page_says_whose_rows_these_are(tmp_path):
    draws = {name: one[:, [1]] if name == "site_effect" else one for name, one in hospital_draws(40).items()}
    node = made_run(
        tmp_path / "run", hospitals().of_agent(1), unison_plan(3, 40), draws, agents=[1], engine="peers", agent=1
    )
    assert "These are the rows of this node alone" in node.report().read_text()


def rows_of(count, **entries):
    return [
        {"parameter": f"b[{i}]", "label": f"gene {i}", "mean": 0.1 * i, "low": -1.0, "high": 1.0, **entries}
        for i in range(count)
    ]


@pytest.mark.parametrize("count", [3, 60, 75])
def test_a_forest_grows_with_its_rows(count):
    ratio = {"ratio_name": "odds ratio", "ratio": 1.2, "ratio_low": 0.4, "ratio_high": 3.0}
    intercept = {**rows_of(1, **ratio)[0], "label": "Intercept", "mean": 90.0}
    chosen = forest_rows([intercept, *rows_of(count, **ratio)])
    assert len(chosen) == min(count, MOST_ROWS)
    assert all(row["label"] != "Intercept" for row in chosen)
    figure = forest(chosen)
    (axis,) = figure.axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == [row["label"] for row in chosen]
    assert figure.get_size_inches()[1] / len(chosen) > 0.2
    assert len(axis.texts) == len(chosen)


def test_effects_of_sites_stand_below_only_where_they_are_alike():
    known = [
        *rows_of(2),
        {
            "parameter": "site_effect[0]",
            "label": "site 1: site_effect[gene 0]",
            "agent": 1,
            "mean": 0,
            "low": 0,
            "high": 1,
        },
        {
            "parameter": "difference[0]",
            "label": "site 1: gene 0",
            "agent": 1,
            "mean": 0,
            "low": 0,
            "high": 1,
            "derived": True,
        },
    ]
    assert [row["label"] for row in forest_rows(known)] == ["gene 0", "gene 1", "site 1: gene 0"]
    assert forest_rows(rows_of(1)) == [], "one line is no forest"
    assert forest_rows([{"parameter": "w", "label": "w", "mean": 0, "low": 0, "high": 1}]) == []


def test_older_rows_have_tables_too():
    rows = [
        {"parameter": "effect", "agent": 2, "mean": 1.0, "standard_deviation": 0.1, "low": 0.8, "high": 1.2,
         "rhat": None, "ess": None}
    ]  # fmt: skip
    table = posterior_table(rows)
    assert table.body[0][0] == "site 2: effect"
    assert "R-hat" not in table.header


def test_arviz_has_names_as_coordinates(page):
    run, _ = page
    found = run.to_arviz().posterior
    assert found["coefficients"].coords["coefficients_dim_0"].to_numpy().tolist() == [
        "Intercept",
        "age",
        "stage[III]",
    ]
    assert found["site_effect"].coords["site_effect_dim_0"].to_numpy().tolist() == ["Intercept"]
    assert float(found["coefficients"].sel(coefficients_dim_0="age").mean()) == pytest.approx(
        hospital_draws(60)["coefficients"][..., 1].mean()
    )
    assert isinstance(run, RunDirectory)
    assert np.isfinite(found["risk"]).all(), "derived quantities come along"
