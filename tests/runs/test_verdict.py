"""The verdict and the stopping rule look at everything: no parameter, agent or draw may be left out in silence."""

import numpy as np
import pytest

import consilience as cs
from consilience.models import linear_regression
from consilience.runs import posterior
from consilience.runs.convergence import standing
from tests.hierarchical import sites
from tests.made_runs import gossip_plan, made_run, unison_plan

_DRAWS = 2000


def one_mean(num_agents):
    return linear_regression([(np.ones((5, 1)), np.zeros(5)) for _ in range(num_agents)])


def gossip_run(path, values, plan=None):
    return made_run(path / "run", one_mean(values.shape[1]), plan or gossip_plan(*values.shape[1:3]), {"w": values})


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def test_every_agent_of_a_network_of_forty_counts(tmp_path):
    """Of more than 32 agents some used to be left out, and the verdict spoke of all."""
    values = normal(2, 40, _DRAWS, 1)
    assert gossip_run(tmp_path / "good", values).summary["converged"]
    values[1, 27] += 20  # a chain that is elsewhere
    summary = gossip_run(tmp_path / "one", values).summary
    assert summary["converged"] is False
    assert "at agent 27" in summary["verdict"]
    values[:, 27] = 3 + normal(2, _DRAWS, 1)  # an agent that is elsewhere, in both chains
    assert "agents disagree about w[0]" in gossip_run(tmp_path / "two", values).summary["verdict"]


def test_where_not_all_are_looked_at_the_verdict_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(posterior, "MOST_ROWS", 39)
    summary = gossip_run(tmp_path, normal(2, 40, _DRAWS, 1)).summary
    assert summary["verdict"].endswith("for every parameter at 32 of 40 agents.")


@pytest.fixture
def private_draws():
    return {"mean": normal(2, _DRAWS), "effect": np.random.default_rng(1).normal(size=(2, 3, _DRAWS))}


@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_a_draw_that_is_no_number_is_no_filling(tmp_path, private_draws, spoilt):
    private_draws["effect"][1, 2, 7] = spoilt
    run = made_run(tmp_path / "run", sites((4, 9, 6)), unison_plan(3, _DRAWS), private_draws)
    assert run.summary["converged"] is False
    assert "site 2: effect" in run.summary["verdict"]
    assert not standing(run).is_enough
    assert "site 2: effect" in run.summary_table().index


def test_filling_is_left_out(tmp_path, private_draws):
    """The control: agents may have fewer private parameters than others."""
    private_draws["effect"][:, 2] = np.nan
    run = made_run(tmp_path / "run", sites((4, 9, 6)), unison_plan(3, _DRAWS), private_draws)
    assert run.summary["converged"]
    assert standing(run).is_enough
    assert "site 2: effect" not in run.summary_table().index


def test_a_run_by_gossip_does_not_stop_while_agents_disagree(tmp_path):
    values = normal(4, 3, _DRAWS, 1)
    assert standing(gossip_run(tmp_path / "agree", values)).is_enough
    values[:, 1] += 1
    assert not standing(gossip_run(tmp_path / "apart", values)).is_enough


def test_a_run_that_has_spent_its_budget_says_so(tmp_path):
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.hmc(), num_warmup=20, max_draws=100, num_chains=2)
    draws = {"mean": normal(2, 100), "effect": np.random.default_rng(1).normal(size=(2, 3, 100))}
    run = made_run(tmp_path / "run", sites((4, 9, 6)), plan, draws)
    assert run.summary["why_not"][-1] == "the budget of 100 draws a chain is spent (max_draws)"
