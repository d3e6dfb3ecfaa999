"""Runs in unison: when they end, resumed to the bit, what they store and what they say."""

import itertools
import os
import signal

import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines.unison import Replicas
from consilience.errors import ConsilienceError, Interrupted, PlanError
from consilience.reports.unison_report import sampler_in_words
from consilience.runs.convergence import looks
from tests.gaussian import regression
from tests.statistical import rejects_moments
from tests.unison import normal_posterior

WARMUP = 60
PROBLEM = regression([5, 8, 13])
PLAN = cs.Plan(graph=cs.graphs.path(3), sampler=cs.nuts(), num_warmup=WARMUP, max_draws=1500, num_chains=2, seed=1)


@pytest.fixture(scope="module", autouse=True)
def _compiled_once():
    """Runs of the same problem, warm-up and sampler have the same programs, and compiling them is most of a test."""
    kept, compile_now = {}, Replicas.compile

    def compile_once(self):
        if not self._programs:
            key = (
                id(self.problem.log_likelihood),
                self.plan.sampler.kind,
                self.plan.num_warmup,
                self.plan.num_chains,
            )
            if key not in kept:
                compile_now(self)
                kept[key] = self._programs
            self._programs = kept[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Replicas, "compile", compile_once)
        yield


class StopAt:
    """Ask for a stop, as Ctrl-C does, once a run has come so far."""

    def __init__(self, step):
        self.step = step

    def __call__(self, progress):
        if progress.step >= self.step:
            self.step = 10**9
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return cs.sample(PROBLEM, PLAN, tmp_path_factory.mktemp("whole") / "run")


def test_sampling_ends_at_a_look_when_it_has_converged(whole):
    count = whole.draws.sizes["draw"]
    assert count < 1500
    assert WARMUP + count in itertools.takewhile(lambda step: step <= 1560, looks(WARMUP))
    summary = whole.summary
    assert summary["converged"] is True
    assert summary["why_not"] == []
    assert summary["verdict"].startswith("Converged")
    assert min(row["ess"] for row in summary["posterior"]) >= 400
    assert max(row["rhat"] for row in summary["posterior"]) <= 1.01
    assert summary["num_draws"] == count
    assert whole.status["step"] == WARMUP + count


def test_stopped_and_resumed_it_has_the_same_draws_to_the_bit(whole, tmp_path):
    """Stopped in the warm-up, after it, and at a look."""
    second = next(itertools.islice(looks(WARMUP), 1, None))
    assert second < whole.status["step"], "the run looks more than once: else there is nothing to test"
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(9))
    at = [cs.Run(tmp_path / "run").status["step"]]
    for step in (WARMUP + 1, second):
        with pytest.raises(Interrupted):
            cs.resume(tmp_path / "run", PROBLEM, progress=StopAt(step))
        at.append(cs.Run(tmp_path / "run").status["step"])
    assert 0 < at[0] < WARMUP < at[1] < at[2] == second
    resumed = cs.resume(tmp_path / "run", PROBLEM)
    for found, expected in ((resumed.draws, whole.draws), (resumed.metrics, whole.metrics)):
        assert found.sizes == expected.sizes
        for name in expected.variables:
            assert (found[name].values == expected[name].values).all(), name
    assert resumed.summary["converged"] is True


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return cs.sample(PROBLEM, PLAN.replace(max_draws=100), tmp_path_factory.mktemp("short") / "run")


def test_too_few_draws_are_said_wherever_the_result_is_shown(short):
    summary = short.summary
    assert summary["converged"] is False
    assert any("effective draws, 400 at least are wanted" in reason for reason in summary["why_not"])
    assert summary["verdict"].startswith("Not converged")
    assert summary["verdict"] in short.report().read_text()


def test_shared_draws_have_no_agent(short):
    assert short.draws["w"].dims == ("chain", "draw", "w_dim_0")
    assert len(short.agents) == 3
    for own in short.agents:
        assert own["w"].dims == ("chain", "draw", "w_dim_0")
    table = short.summary_table()
    assert table.index.tolist() == ["w[0]", "w[1]"]
    assert "agent" not in table


def test_rounds_are_sums_times_hops(short):
    summary = short.summary
    sums = short.metrics["evaluations"].to_numpy()[0]
    assert summary["hops"] == 2  # a path of three: to the middle and back
    assert summary["evaluations"] == sums.sum()
    assert summary["rounds"] == 2 * sums.sum()
    later, worst = sums[WARMUP:].sum() * 2 * 2, min(row["ess"] for row in summary["posterior"])
    assert summary["rounds_per_effective_draw"] == pytest.approx(later / worst)


def test_theory_and_suggestions_decline():
    with pytest.raises(ConsilienceError, match="nuts"):
        cs.assess(PROBLEM, PLAN)
    with pytest.raises(PlanError, match="nuts finds its numbers itself"):
        cs.suggest(PROBLEM, PLAN.graph, 1000, base=PLAN)
    assert {finding.level for finding in cs.check(PLAN, PROBLEM)} == {"ok"}
    with pytest.raises(PlanError, match="has no step of a single agent"):
        _ = PLAN.gossip


GROUPS = (1, 3, 2)


def grouped():
    """Rows `x ~ N(mean + effect_g, 1)` with private `effect_g ~ N(0, 0.5)`, so many groups at each agent."""
    rng = np.random.default_rng(2)
    shards = [(np.arange(6) % count, 1 + rng.normal(size=6)) for count in GROUPS]

    def start(count):
        return lambda key: {"mean": jnp.zeros(()), "effect": jnp.zeros(count)}

    return cs.Problem(
        log_likelihood=lambda p, rows: -0.5 * (rows[1] - p["mean"] - p["effect"][rows[0]]) ** 2,
        log_prior=lambda p: -0.5 * p["mean"] ** 2 / 4,
        init=[start(count) for count in GROUPS],
        shards=shards,
        private=("effect",),
        log_private=lambda p: -(p["effect"] ** 2).sum(),
    )


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    plan = cs.Plan(graph=cs.graphs.path(3), sampler=cs.hmc(), num_warmup=150, num_draws=2000)
    return cs.sample(grouped(), plan, tmp_path_factory.mktemp("private") / "run")


@pytest.mark.slow(reason="a posterior, and one more sampler to compile")
def test_private_draws_of_unequal_numbers_have_their_posterior(private):
    """Closed form, false alarms at 1e-6; what pads the array is no number."""
    effects = private.draws["effect"]
    assert effects.dims == ("chain", "agent", "draw", "effect_dim_0")
    found = effects.to_numpy()
    for agent, count in enumerate(GROUPS):
        assert np.isnan(found[:, agent, :, count:]).all()
        assert not np.isnan(found[:, agent, :, :count]).any()
    draws = np.concatenate(
        [private.draws["mean"].to_numpy()[..., None], *(found[:, i, :, :count] for i, count in enumerate(GROUPS))], -1
    )
    shards = grouped().shards
    first = 1 + np.cumsum([0, *GROUPS])
    features = np.zeros((18, 7))
    features[:, 0] = 1
    for agent, (group, _) in enumerate(shards):
        features[6 * agent + np.arange(6), first[agent] + group] = 1
    targets = np.concatenate([x for _, x in shards])

    def moments(spread):
        exact = normal_posterior(features, targets, 1.0, np.array([4.0, *np.full(6, spread)]))
        return exact.mean, np.diag(exact.covariance)

    assert not rejects_moments(draws, *moments(0.5))
    assert rejects_moments(draws, *moments(1.5)), "the control: a share of the private prior instead of all of it"


def test_every_agent_has_its_own_and_what_is_shared(private):
    for agent, count in enumerate(GROUPS):
        own = private.agents[agent]
        assert own["mean"].dims == ("chain", "draw")
        assert own["effect"].dims == ("chain", "draw", "effect_dim_0")
        assert np.isfinite(own["effect"].to_numpy()).all(0).all(0).sum() == count
    table = private.summary_table()
    assert len(table) == 1 + sum(GROUPS)
    assert table.loc[[f"site {agent}: effect[0]" for agent in range(3)], "agent"].tolist() == [0, 1, 2]
    assert table["agent"].dtype == "Int64"
    summary = private.summary
    assert summary["agents"][0]["mean"][summary["parameters"].index("effect[2]")] is None
    assert summary["network_average"]["mean"][summary["parameters"].index("effect[0]")] is None
    assert summary["converged"] is True


def test_arviz_gets_draws_and_what_was_measured_with_them(private):
    found = private.to_arviz()
    assert found.posterior["mean"].dims == ("chain", "draw")
    assert found.posterior["effect"].dims[:3] == ("chain", "draw", "agent")
    stats = found.sample_stats
    assert {"acceptance_rate", "diverging", "energy", "n_steps", "tree_depth", "step_size"} <= set(stats)
    assert stats["diverging"].dtype == bool
    assert dict(stats.sizes) == {"chain": 4, "draw": 2000}
    assert (stats["step_size"] == stats["step_size"][0, 0]).all(), "after the warm-up it is the same for ever"


def test_a_report_shows_the_posterior_and_the_verdict(private):
    page = private.report().read_text()
    assert private.summary["verdict"] in page
    assert "effect" in page
    assert "those of a private one are at its agent alone" in page


def test_what_the_warm_up_found_is_stored_and_shown(short, private):
    """The covariance behind a dense mass with its largest correlation; scales of each agent's own parameters."""
    found = short.summary["adaptation"]
    covariance = np.array(found["covariance"])
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), found["scales"])
    correlation = covariance[0, 1] / np.prod(found["scales"])
    assert found["largest_correlation"] == {"between": ["w[0]", "w[1]"], "value": pytest.approx(correlation)}
    assert found["condition"] == pytest.approx((1 + abs(correlation)) / (1 - abs(correlation)))
    said = f"{correlation:.2f} of w[0] and w[1]"
    assert said in "\n".join(sampler_in_words(short.summary))
    page = short.report().read_text()
    assert said in page
    assert "condition number of the correlations" in page
    own = private.summary["adaptation"]
    assert "covariance" not in own
    assert [len(own["private_scales"][str(agent)]) for agent in range(3)] == list(GROUPS)
    deviations = [private.agents[agent]["effect"].to_numpy().std((0, 1)) for agent in range(3)]
    for agent, count in enumerate(GROUPS):  # from a window of 4 × 25 draws: six standard errors
        np.testing.assert_allclose(own["private_scales"][str(agent)], deviations[agent][:count], rtol=0.5)
    assert "scales of private parameters" in private.report().read_text()


def test_nothing_about_consensus_stands_in_a_summary(short, private):
    """All agents hold the same draws: there is nothing that they would have to agree on."""
    for run in (short, private):
        for entry in ("consensus_error", "consensus_rate", "rhat_across_agents", "distance_to_neighbours"):
            assert entry not in run.summary
        assert not any("rhat_across_agents" in row or "between_agents" in row for row in run.summary["posterior"])
