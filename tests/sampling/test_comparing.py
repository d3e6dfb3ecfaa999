"""Runs compared by sums over sites."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import xarray

import consilience as cs
from consilience.errors import InputError, RunError
from consilience.runs.answers import row_scores
from consilience.sampling.comparing import comparison_of, read_comparisons
from tests.made_runs import made_run, unison_plan
from tests.outcome_problems import visit_draws, visits


def flat():
    """The same rows with a model that does not look at the column."""
    problem = visits()

    def without(p):
        return {"w": p["w"] * np.array([1.0, 0.0])}

    return replace(
        problem,
        log_likelihood=lambda p, rows: problem.log_likelihood(without(p), rows),
        name="flat",
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("compare")
    plan = unison_plan(2, 150)
    return [
        made_run(place / name, problem, plan, visit_draws(150))
        for name, problem in (("slope", visits()), ("flat", flat()))
    ]


def test_the_model_that_made_the_data_predicts_better(runs):
    table = cs.compare(*reversed(runs))
    assert table.index.tolist() == ["slope", "flat"]
    assert table.loc["slope", "difference"] == 0
    assert table.loc["flat", "difference"] < 0
    first, second = (row_scores(run)["elpd"].to_numpy() for run in runs)
    assert table.loc["flat", "se_difference"] == pytest.approx(np.sqrt(80 * (first - second).var()))
    assert table.loc["slope", "elpd"] == pytest.approx(first.sum())
    assert table["rows"].tolist() == [80, 80]
    by_site = comparison_of(runs).table_by_site()
    np.testing.assert_allclose(by_site.xs("flat", level="model")["elpd"].sum(), table.loc["flat", "elpd"])


def test_sums_of_sites_travel_in_files(runs, tmp_path):
    import json

    whole = comparison_of(runs)
    paths = []
    for site, sums in whole.sites.items():
        paths.append(tmp_path / f"site-{site}.json")
        paths[-1].write_text(json.dumps(replace(whole, sites={site: sums}).to_dict()))
        assert "elpd" in paths[-1].read_text()
        assert len(paths[-1].read_text()) < 1000, "sums only"
    total = read_comparisons(paths)
    assert total.table().equals(whole.table())
    with pytest.raises(InputError, match="site 0 is given twice"):
        read_comparisons([paths[0], paths[0]])
    paths[1].write_text(json.dumps(replace(whole, names=("a", "b")).to_dict()))
    with pytest.raises(InputError, match="the same names in the same order at every site"):
        read_comparisons(paths)
    paths[1].write_text("{}")
    with pytest.raises(InputError, match="holds no comparison"):
        read_comparisons(paths)


def test_without_rows_there_is_no_error_of_the_difference(runs, monkeypatch):
    monkeypatch.setattr("consilience.sampling.comparing.row_scores", lambda run: None)
    table = cs.compare(*runs, names=("one", "other"))
    assert table.index.tolist() == ["one", "other"]
    assert np.isnan(table["se_difference"].iloc[1])
    assert table["se_difference"].iloc[0] == 0
    assert not np.isnan(table["se"]).any()


def test_scores_are_made_where_the_rows_are(tmp_path):
    problem = replace(visits(), outcomes=None)
    run = made_run(tmp_path / "run", problem, unison_plan(2, 60), visit_draws(60))
    assert not (run.path / "loo.json").exists(), "nothing is known of outcomes, so it waits until it is asked"
    with pytest.raises(InputError, match="the plan names no problem"):
        cs.compare(run)
    assert cs.compare(run, problems=[problem])["rows"].tolist() == [80]
    assert (run.path / "loo.json").exists()


def test_what_cannot_be_compared_is_said(runs, tmp_path):
    other = made_run(tmp_path / "other", visits(seed=9), unison_plan(2, 60), visit_draws(60))
    with pytest.raises(InputError, match="different outcomes at site 0"):
        cs.compare(runs[0], other)
    fewer = made_run(tmp_path / "fewer", visits((49, 30)), unison_plan(2, 60), visit_draws(60))
    with pytest.raises(InputError, match="fitted to 50 and 49 rows"):
        cs.compare(runs[0], fewer)
    three = made_run(tmp_path / "three", visits((5, 5, 5)), unison_plan(3, 60), visit_draws(60))
    with pytest.raises(RunError, match="compare runs of the same sites"):
        cs.compare(runs[0], three)
    with pytest.raises(InputError, match="a name of its own to each"):
        cs.compare(*runs, names=("same", "same"))
    with pytest.raises(InputError, match="nothing to compare"):
        cs.compare()


def test_a_large_site_is_scored_when_it_is_asked(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("consilience.experiments.answers._MOST_ROWS", 79)
    caplog.set_level("INFO", "consilience")
    run = made_run(tmp_path / "run", visits(), unison_plan(2, 40), visit_draws(40))
    assert "goes without leave-one-out scores" in caplog.text
    assert (run.path / "checks.json").exists()
    assert not (run.path / "loo.json").exists()


def test_functions_that_fail_do_not_fail_the_run(tmp_path, caplog):
    def fails(*_):
        raise ZeroDivisionError("oh")

    problem = visits()
    broken = replace(problem, derived=fails, outcomes=replace(problem.outcomes, simulate=fails))
    run = made_run(tmp_path / "run", broken, unison_plan(2, 20), visit_draws(20))
    assert run.complete
    assert (run.path / "summary.json").exists()
    assert "the run goes without what its problem derives: ZeroDivisionError: oh" in caplog.text
    assert "the run goes without checks and scores of its rows: ZeroDivisionError: oh" in caplog.text
    assert run.report().exists()


def test_scores_of_one_agent_by_gossip_are_its_own(tmp_path):
    from tests.made_runs import gossip_plan

    w = np.stack([visit_draws(60, seed=seed)["w"] for seed in range(2)], 1)
    run = made_run(tmp_path / "run", visits(), gossip_plan(2, 60), {"w": w})
    stored = row_scores(run)
    assert isinstance(stored, xarray.Dataset)
    mean = np.exp(w[:, 1, :, :1] + w[:, 1, :, 1:] * visits().shards[1]["x"])
    with jax.enable_x64(True):
        log_likelihood = np.asarray(jax.scipy.stats.poisson.logpmf(visits().shards[1]["y"], mean), float).reshape(
            -1, 30
        )
    lppd = np.log(np.exp(log_likelihood).mean(0))
    np.testing.assert_allclose(stored["lppd"].to_numpy()[stored["agent"] == 1], lppd, rtol=1e-6)
