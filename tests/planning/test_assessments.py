import json

import numpy as np
import pytest

import consilience as cs
from consilience.errors import PlanError, PlanWarning, ProblemError, UnstableError
from consilience.experiments import EXPERIMENTS, load_problem
from consilience.planning.assessment_values import described
from consilience.planning.assessments import Sampled, assess, assess_run
from consilience.reports.theory_page import write_theory
from consilience.reports.theory_report import conditions_in_words, slopes_in_words
from consilience.theory import Potentials, analyse, exact_path
from consilience.theory.comparisons import compare, parse_choices
from tests.gaussian import regression

pytestmark = pytest.mark.slow(reason="pilots, bounds and pages of whole plans")

OPTIMISED = True

SAMPLER = cs.dula(cs.FromTo(start=2e-3, end=1e-4, num_steps=20_000, exponent=0.6), 0.24)


def gaussian_plan(**entries):
    return cs.Plan(**{"graph": cs.graphs.ring(4), "sampler": SAMPLER, "num_steps": 20_000, **entries})


def written(assessment, directory):
    """What the page's directory holds for machines, and the page."""
    values = described(assessment, 0.1)
    return values, write_theory(values, assessment.plan_documents, directory)


@pytest.fixture(scope="module", autouse=True)
def small():
    """A shorter look ahead and a smaller pilot than users get, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("consilience.planning.assessments._FEWEST_STEPS", 20_000)
        patch.setattr("consilience.planning.assessments._PILOT_STEPS", 2_000)
        yield


@pytest.fixture(scope="module")
def problem():
    return regression([10, 20, 30, 40])


@pytest.fixture(scope="module")
def gaussian(problem):
    return assess(problem, gaussian_plan())


@pytest.fixture(scope="module")
def mixture():
    gmm = EXPERIMENTS["gmm"]
    return assess(gmm.problem(5), gmm.plan(5, num_steps=20_000))


def test_a_gaussian_problem_is_answered_exactly_and_beside_the_nearest_proven_plan(gaussian):
    assert gaussian.analysis.gaussian
    assert gaussian.pilot is None
    assert any("offset" in text for text in gaussian.prediction.unmet)
    assert gaussian.proven.prediction.unmet == ()
    needed = gaussian.prediction.steps_to(0.1)
    assert needed["theorem"] is None
    assert 1 < needed["exact"] < 1000
    inside = gaussian.proven.prediction.steps_to(0.1)
    assert float(inside["theorem"]) > (inside["exact"] or 0)


def test_a_plan_inside_the_theorems_is_its_own_nearest(problem, gaussian):
    inner = assess(problem, gaussian.proven.plan)
    assert inner.proven is None
    assert inner.inside is inner


def test_a_pilot_measures_what_the_theory_cannot_know(mixture):
    pilot = mixture.pilot
    assert not mixture.analysis.gaussian
    assert pilot.divergence[0] > 1
    assert pilot.divergence[-1] < 3 * pilot.divergence_floor  # within sampling error of the posterior
    tight = np.interp(
        np.log(pilot.steps), np.log(mixture.prediction.steps), np.log(mixture.prediction.consensus_tight)
    )
    assert (np.log(pilot.consensus_error) < tight).all()
    approximate = mixture.prediction.path
    late = np.interp(pilot.steps[-1], approximate.steps, approximate.consensus_error)
    assert pilot.consensus_error[-1] == pytest.approx(late, rel=0.3)


def test_an_unstable_plan_is_refused(problem):
    with pytest.raises(UnstableError):
        assess(problem, gaussian_plan(sampler=cs.dula(1e-3, 0.6)))


@pytest.mark.parametrize(
    "name", ["gaussian", pytest.param("mixture", marks=pytest.mark.slow(reason="hundreds of pilot chains"))]
)
def test_the_page_holds_tables_figures_and_values_for_machines(name, request, tmp_path):
    values, page = written(request.getfixturevalue(name), tmp_path / "theory")
    text = page.read_text()
    for symbol in ("W_1", "W_2", "W_3", "W_4", "k̄", "C_a", "C_w̄", "d_1", "C_ξ", "C_ρ", "C̄_W2", "C̄_F1", "C̄_F2"):
        assert f">{symbol}<" in text
    for symbol in ("C̄_F3", "κ", "k̆", "l̆", "Q_1", "Q_2", "k*", "ρ_U", "μ_g", "L̄"):
        assert f">{symbol}<" in text
    stored = json.loads((tmp_path / "theory" / "theory.json").read_text())
    assert stored == json.loads(json.dumps(values))
    assert {path.name for path in (tmp_path / "theory" / "figures").glob("*.png")} == {
        "theory_consensus.png",
        "theory_divergence.png",
    }
    kinds = {row["symbol"]: row["kind"] for row in values["problem_constants"]}
    assert kinds["ρ_U"] == ("exact" if name == "gaussian" else "estimate")
    slope = values["plans"][0]["slope"]
    sampler = request.getfixturevalue(name).plan.sampler
    assert slope["theorem"] == pytest.approx(sampler.step_size.exponent - 2 * sampler.consensus.exponent)


def test_no_number_for_machines_is_infinite(mixture):
    text = json.dumps(described(mixture, 0.1))
    assert "Infinity" not in text
    assert "NaN" not in text


def test_minibatches_are_named_as_outside_the_theorems(problem):
    values = described(assess(problem, gaussian_plan(batch_size=5)), 0.1)
    assert any("minibatches of 5" in text for text in values["unmet_conditions"])


@pytest.mark.parametrize(
    "entries", [{"dtype": "float64"}, {"graph": cs.graphs.ring(1)}, {"graph": cs.graphs.path(2)}]
)
def test_other_networks_and_precisions(entries):
    graph = entries.get("graph", cs.graphs.ring(4))
    values = described(assess(regression([20] * graph.num_agents), gaussian_plan(**entries)), 0.05)
    assert values["theorem_constants"]


def test_a_finished_run_is_held_against_the_theory(tmp_path):
    gmm = EXPERIMENTS["gmm"]
    with pytest.warns(PlanWarning):
        run = cs.sample(gmm.problem(3), gmm.plan(3, num_steps=20_000), tmp_path / "run", theory=True)
    values = json.loads((run.path / "theory.json").read_text())
    measured = values["plans"][0]["consensus"]["measured"]
    errors = run.metrics["consensus_error"].to_numpy().mean(0)
    assert measured["log10"][-1] == pytest.approx(np.log10(errors[-1]))
    assert "Theorem 1" in run.report().read_text()


def test_a_run_that_is_too_large_for_the_theory_is_still_reported(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("consilience.theory.analysis.MOST_NUMBERS", 3)
    problem = regression([5, 5])
    plan = cs.Plan(graph=cs.graphs.path(2), sampler=cs.dula(1e-3, 0.2), num_steps=64)
    with pytest.warns(PlanWarning), caplog.at_level("INFO", "consilience"):
        run = cs.sample(problem, plan, tmp_path / "run", theory=True)
    assert "no theory for this run: the theory is for at most" in caplog.text
    with pytest.raises(ProblemError, match="of all agents together"):
        assess_run(plan, problem, Sampled(np.arange(1, 3), np.ones(2), np.zeros((4, 2))))
    assert run.summary["num_agents"] == 2
    assert not (run.path / "theory.json").exists()
    assert run.report().exists()


def test_the_pilot_looks_at_the_first_gradients_too(mixture):
    """The agents' gradients differ most where they start, and that step counts."""
    potentials, n = mixture.analysis.potentials, 5
    starts = potentials.starts[:4000].reshape(-1, n, 2)
    gradients = potentials.own_gradients(starts)
    first = ((gradients - gradients.mean(1, keepdims=True)) ** 2).sum((1, 2)).mean() / n
    assert mixture.pilot.gradient_disagreement == pytest.approx(first, rel=0.3)


def test_a_plan_that_overshoots_at_first_still_gets_a_page(problem, tmp_path):
    wild = cs.dula(cs.FromTo(start=0.5, end=1e-3, num_steps=100_000, exponent=0.6), 0.24)
    with_warning = assess(problem, gaussian_plan(sampler=wild, num_steps=100_000))
    assert with_warning.prediction.path.steps[-1] < 100_000  # it diverged
    values, page = written(with_warning, tmp_path / "theory")
    assert page.exists()
    assert "Infinity" not in json.dumps(values)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_another_temperature_is_not_answered_by_theorem_2(problem, temperature, tmp_path):
    cold = SAMPLER.model_copy(update={"temperature": temperature})
    values, page = written(assess(problem, gaussian_plan(sampler=cold)), tmp_path / "theory")
    assert "tight" not in values["plans"][0]["steps_needed"]
    assert "tight" not in values["plans"][0]["divergence"]
    assert "Infinity" not in json.dumps(values)
    assert page.exists()


def test_words_tell_theorem_1_from_theorem_2(problem, gaussian):
    inside = gaussian.proven.plan.sampler
    larger = cs.dula(inside.step_size.times(5.0), inside.consensus)
    words = conditions_in_words(described(assess(problem, gaussian_plan(sampler=larger)), 0.1))
    assert "inside Theorem 1 but outside Theorem 2" in words
    constant = described(assess(problem, gaussian_plan(sampler=cs.dula(1e-3, 0.2))), 0.1)
    assert "outside Theorem 1" in slopes_in_words(constant["plans"][0])


def test_labels_are_not_stronger_than_what_was_found(gaussian, mixture):
    kinds = {row["symbol"]: row["kind"] for row in described(gaussian, 0.1)["problem_constants"]}
    assert (kinds["L"], kinds["F_0"], kinds["μ_g"]) == ("exact", "exact", "estimate")  # fixed starts
    kinds = {row["symbol"]: row["kind"] for row in described(mixture, 0.1)["problem_constants"]}
    assert {kinds[symbol] for symbol in ("L", "L̄", "C_ζ", "ρ_U", "c_1", "μ_g", "F_0")} == {"estimate"}


@pytest.fixture(scope="module")
def compared(problem):
    return compare(problem, gaussian_plan(), parse_choices(["graph=ring,complete", "agents=4,8,16"]), 0.1)


def test_better_graphs_agree_better(compared):
    by_place = {(row.graph, row.num_agents): row for row in compared}
    for n in (8, 16):
        assert by_place["complete", n].agreement < by_place["ring", n].agreement
        assert by_place["complete", n].consensus_error < by_place["ring", n].consensus_error
    assert {row.exact for row in compared} == {True}


def test_the_promised_speed_up_is_in_the_bound_and_not_in_the_steps(compared):
    few, many = (next(row for row in compared if (row.graph, row.num_agents) == ("complete", n)) for n in (4, 16))
    assert many.promised == pytest.approx(few.promised / 4)
    assert float(many.late_scale) < float(few.late_scale)
    assert float(many.proven_steps) > 10 * float(few.proven_steps)
    assert many.steps >= few.steps


def test_the_end_of_a_plan_is_where_the_exact_path_leads(problem, compared):
    analysis = analyse(Potentials(problem), cs.graphs.ring(4))
    last = exact_path(analysis.network, SAMPLER, analysis.start, [20_000])
    row = next(row for row in compared if (row.graph, row.num_agents) == ("ring", 4))
    assert row.consensus_error == pytest.approx(last.consensus_error[0], rel=0.01)
    assert row.divergence == pytest.approx(last.divergence[0], rel=0.1)


@pytest.mark.parametrize("word", ["colour=red", "graph", "agents=0", "agents=many", "graph="])
def test_choices_that_make_no_sense_are_refused(word):
    with pytest.raises(PlanError, match="cannot compare"):
        parse_choices([word])


def test_more_agents_than_rows_are_refused(problem):
    with pytest.raises(ProblemError, match="cannot be divided"):
        compare(problem, gaussian_plan(), {"agents": ["1000"]}, 0.1)


def test_an_experiment_splits_its_data_itself():
    gmm = EXPERIMENTS["gmm"]
    made = []

    def problem_for(plan):
        made.append(load_problem(plan))
        return made[-1]

    choices = {"agents": ["2"], "graph": ["path"]}
    (row,) = compare(gmm.problem(5), gmm.plan(5, num_steps=20_000), choices, 0.1, problem_for=problem_for)
    assert [problem.num_agents for problem in made] == [2]
    assert (row.graph, row.num_agents, row.exact) == ("path", 2, False)
