"""Predictions from a run's directory: of which site, by which model, and what is refused."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import consilience as cs
from consilience.errors import InputError, RunError
from tests.made_runs import gossip_plan, made_run, unison_plan
from tests.outcome_problems import hospital_draws, hospitals, visit_draws, visits

ROWS = {"x": np.column_stack([np.ones(4), np.linspace(-1, 1, 4), np.zeros(4)])}
NAMED = "tests.outcome_problems:three_hospitals"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    plan = unison_plan(3, 100, problem=NAMED)
    return made_run(tmp_path_factory.mktemp("predict") / "run", hospitals(), plan, hospital_draws())


def chances(site, draws=None):
    draws = draws or hospital_draws()
    eta = np.einsum("cdk,rk->cdr", draws["coefficients"], ROWS["x"]) + 0.7 * draws["site_effect"][:, site]
    return (1 / (1 + np.exp(-eta))).reshape(-1, 4)


def test_a_site_is_predicted_by_its_own_effect(run):
    for site in (0, 2):
        found, wanted = run.predict(ROWS, agent=site), chances(site)
        np.testing.assert_allclose(found["mean"], wanted.mean(0))
        np.testing.assert_allclose(found["low"], np.quantile(wanted, 0.025, axis=0))
        np.testing.assert_allclose(found["high"], np.quantile(wanted, 0.975, axis=0))
        assert list(found) == ["mean", "low", "high"]
        assert found.index.name == "row"
    assert (run.predict(ROWS, agent=2)["mean"] > run.predict(ROWS, agent=0)["mean"]).all()


def test_a_new_site_is_less_certain(run):
    new, known = run.predict(ROWS, agent="new"), run.predict(ROWS, agent=1)
    assert (new["high"] - new["low"] > 1.5 * (known["high"] - known["low"])).all()
    assert new.equals(run.predict(ROWS, agent="new")), "the seed is the plan's"


def test_a_node_predicts_with_its_own_run_alone(tmp_path):
    draws = hospital_draws()
    own = {"coefficients": draws["coefficients"], "site_effect": draws["site_effect"][:, [1]]}
    problem = hospitals().of_agent(1)
    node = made_run(
        tmp_path / "run", problem, unison_plan(3, 100, problem=NAMED), own, agents=[1], engine="peers", agent=1
    )
    np.testing.assert_allclose(node.predict(ROWS)["mean"], chances(1).mean(0))
    assert node.predict(ROWS, agent="new")["mean"].between(0, 1).all()
    with pytest.raises(InputError, match="holds what belongs to site 1, not to site 0: predict there"):
        node.predict(ROWS, agent=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "site_effect differs from site to site: say of which"),
        ({"agent": 3}, "there is no site 3: the run has the sites 0 to 2"),
        ({"agent": "old"}, "agent is 'old'"),
        ({"agent": True}, "agent is True"),
        ({"agent": 0, "interval": 95}, "interval is 95"),
        (
            {"agent": 0, "problem": cs.models.linear_regression([(np.ones((2, 1)), np.ones(2))])},
            "nothing is known about",
        ),
        ({"agent": 0, "problem": visits()}, "give the problem that the run sampled"),
    ],
)
def test_what_cannot_be_predicted_is_said(run, given, words):
    with pytest.raises(InputError, match=words):
        run.predict(ROWS, **given)


def test_agents_by_gossip_predict_together(tmp_path):
    w = np.stack([visit_draws(seed=seed)["w"] for seed in range(2)], 1)
    run = made_run(tmp_path / "run", visits(), gossip_plan(2, 100), {"w": w})
    with pytest.raises(InputError, match=r"names no problem: give the one that the run sampled"):
        run.predict({"x": np.zeros(3)})
    found = run.predict({"x": np.zeros(3)}, problem=visits())
    np.testing.assert_allclose(found["mean"], np.exp(w[..., 0]).mean())
    np.testing.assert_allclose(
        run.predict({"x": np.zeros(3)}, problem=visits(), agent=1)["mean"], np.exp(w[:, 1, :, 0]).mean()
    )
    assert (found["outcome_high"] >= found["high"]).all()
    assert (found["outcome_low"] == np.floor(found["outcome_low"])).all()


def test_that_a_run_has_not_converged_is_said(run, caplog):
    assert run.summary["converged"] is False
    run.predict(ROWS, agent=0)
    assert "from a run that has not converged" in caplog.text
    run.update_status(status="running")
    with pytest.raises(RunError, match="not complete"):
        run.predict(ROWS, agent=0)
    run.update_status(status="complete")


def test_rows_come_from_files(run, tmp_path):
    np.savez(tmp_path / "new.npz", **ROWS)
    assert run.predict(tmp_path / "new.npz", agent=0).equals(run.predict(ROWS, agent=0))
    with pytest.raises(InputError, match="there is no file"):
        run.predict(tmp_path / "none.npz", agent=0)
    (tmp_path / "new.txt").write_text("1")
    with pytest.raises(InputError, match="is no file that this run's model takes rows from"):
        run.predict(tmp_path / "new.txt", agent=0)
    columns = made_run(tmp_path / "run", visits(), unison_plan(2, 100), visit_draws())
    (tmp_path / "new.csv").write_text("name,x\nA,0.0\nB,1.0\n")
    found = columns.predict(tmp_path / "new.csv", problem=visits())
    assert found["mean"].iloc[1] > found["mean"].iloc[0]


def test_a_study_reads_its_own_files(run, tmp_path, monkeypatch):
    """By a stand-in: the study gives rows by its codebook, and a model without anybody's data."""
    asked = []
    stand_in = SimpleNamespace(new_rows=lambda path: asked.append(path) or ROWS, model=lambda: hospitals((1, 1, 1)))
    module = ModuleType("consilience.studies.study")
    module.of_run = lambda plan: stand_in if plan == run.plan else None
    monkeypatch.setitem(sys.modules, "consilience.studies.study", module)
    assert run.predict(tmp_path / "new.csv", agent=2).equals(run.predict(ROWS, agent=2))
    assert asked == [tmp_path / "new.csv"]
