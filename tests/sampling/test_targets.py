"""Targets become plans: which sampler, from what is said, and what does not go together."""

import pytest

import consilience as cs
from consilience.errors import PlanError
from consilience.planning.checks import check
from consilience.sampling.targets import Wishes, main_plan, plans_for
from tests.gaussian import regression

SHARED, OWN = "tests.sampling.test_targets:shared", "tests.sampling.test_targets:own"
NUTS = cs.Plan(problem="gmm", graph=cs.graphs.ring(5), sampler=cs.nuts(), num_draws=50, seed=3)
DULA = cs.Plan(problem="gmm", graph=cs.graphs.ring(5), sampler=cs.dula(1e-3, 0.2), num_steps=70, seed=3)
loaded = []


def shared(num_agents, agent):
    loaded.append(agent)
    if agent == 0:
        raise FileNotFoundError("rows of another site")
    return cs.models.linear_regression([([[1.0], [2.0]], [1.0, 2.0])])


def together(num_agents):
    return regression([5 + 7 * agent for agent in range(num_agents)])


def own(num_agents):
    from tests.hierarchical import sites

    return sites([3] * num_agents)


def resolved(target, **wishes):
    return main_plan(target, Wishes(**{"num_agents": 3, **wishes})).plan


@pytest.mark.parametrize(
    ("target", "wishes", "kind"),
    [
        (SHARED, {}, "nuts"),
        (OWN, {}, "hmc"),
        (OWN, {"sampler": "nuts"}, "nuts"),
        (SHARED, {"entries": {"num_draws": 100, "masked": False, "summation": "flood"}}, "nuts"),
        (SHARED, {"numbers": {"target_acceptance": 0.9}}, "nuts"),
        (SHARED, {"num_steps": 100, "numbers": {"step_size": 1e-3}}, "dula"),
        (SHARED, {"entries": {"batch_size": 1}}, "kinetic"),
        (SHARED, {"entries": {"dtype": "float32", "num_draws": 9}}, "kinetic"),
        (SHARED, {"numbers": {"exchanges": 2}}, "kinetic"),
        ("gmm", {}, "dula"),
        ("gmm", {"sampler": "nuts"}, "nuts"),
    ],
)
def test_the_sampler_follows_from_what_is_said(target, wishes, kind):
    plan = resolved(target, **wishes)
    assert (plan.sampler.kind, plan.graph.name, plan.num_agents) == (kind, "ring", 3)
    for name, value in {**wishes.get("entries", {}), **wishes.get("numbers", {})}.items():
        assert getattr(plan, name, None) == value or name in type(plan.sampler).model_fields
    assert plan.stops_itself == (kind != "dula" and "num_draws" not in wishes.get("entries", {}))


def test_a_large_model_of_ones_own_is_sampled_by_gossip_and_that_is_said(monkeypatch):
    monkeypatch.setattr("consilience.planning.defaults.MOST_SHARED", 0)
    found = main_plan(SHARED, Wishes(num_agents=3))
    assert found.plan.sampler == cs.kinetic()
    assert any("as the model is large" in reason for reason in found.reasons)


def test_auto_chooses_numbers_for_the_sampler_of_a_plan_file(tmp_path):
    """A real warm-up, for `sghmc`: never another sampler, and all that is not its numbers stays."""
    plan = cs.Plan(
        problem=f"{__name__}:together", graph=cs.graphs.path(3), sampler=cs.sghmc(0.5, 0.1, friction=9.0),
        num_steps=500, num_chains=7, seed=3,
    )  # fmt: skip
    (tmp_path / "own.toml").write_text(plan.to_toml())
    found = main_plan(str(tmp_path / "own.toml"), Wishes(auto=True, allow=[__name__]))
    assert found.plan.sampler.kind == "sghmc"
    assert found.plan.sampler.friction != 9.0
    assert found.plan.replace(sampler=plan.sampler) == plan
    assert any("step" in reason for reason in found.reasons)
    assert all(finding.level != "error" for finding in check(found.plan, together(3)))
    assert any(
        finding.level == "error" for finding in check(plan, together(3))
    )  # the control: the file's own numbers


def test_one_agents_rows_decide_and_no_others_are_loaded():
    loaded.clear()
    resolved(SHARED)
    assert loaded == [0, 1]  # the first's are not here
    loaded.clear()
    resolved(SHARED, sampler="nuts")
    assert loaded == []
    with pytest.raises(PlanError, match="name it, with --sampler nuts"):
        resolved(SHARED, num_agents=1)


def test_ragged_agents_of_a_loader_keep_their_own_starts():
    from consilience.experiments import import_problem

    whole = import_problem("examples.hospitals:hospital", 3)
    assert [len(init(None)["ward"]) for init in whole.inits] == [4, 7, 5]
    assert import_problem("examples.hospitals:problem", None).fingerprint() == whole.fingerprint()


def test_plan_files_change_their_sampler_and_length(tmp_path):
    for name, plan in {"nuts": NUTS, "dula": DULA}.items():
        (tmp_path / f"{name}.toml").write_text(plan.to_toml())
    wishes = Wishes(entries={"num_draws": 80})
    assert main_plan(str(tmp_path / "nuts.toml"), wishes).plan == NUTS.replace(num_draws=80)
    wishes = Wishes(sampler="nuts", entries={"num_draws": 50})
    assert main_plan(str(tmp_path / "dula.toml"), wishes).plan == NUTS
    wishes = Wishes(sampler="dula", num_steps=40, entries={"burn_in": 10})
    plan = main_plan(str(tmp_path / "nuts.toml"), wishes).plan
    assert (plan.sampler.kind, plan.num_steps, plan.burn_in, plan.num_draws, plan.seed) == ("dula", 40, 10, None, 3)
    with pytest.raises(PlanError, match="say how many with --steps"):
        main_plan(str(tmp_path / "nuts.toml"), Wishes(sampler="dula"))


def test_repetitions_have_as_many_steps_with_a_sampler_that_warms_up():
    """Each chain has data of its own, so they never converge to one law."""
    plan = main_plan("a9a", Wishes(num_agents=10, sampler="kinetic", entries={"num_chains": 3})).plan
    assert (plan.num_draws * plan.store_every, plan.num_chains, plan.stops_itself) == (2600, 3, False)
    assert main_plan("a9a", Wishes(num_agents=10, sampler="kinetic", entries={"max_draws": 500})).plan.stops_itself


@pytest.mark.parametrize("kind", ["kinetic", "langevin", "nuts", "hmc"])
def test_auto_never_swaps_a_sampler_that_warms_up_by_itself(kind, tmp_path):
    found = main_plan(SHARED, Wishes(num_agents=3, sampler=kind, auto=True))
    assert (found.plan.sampler.kind, found.plan.sampler.tunes_itself, found.reasons) == (kind, True, ())
    (tmp_path / "own.toml").write_text(found.plan.to_toml())
    wishes = Wishes(auto=True, allow=[SHARED.split(":")[0]])
    assert main_plan(str(tmp_path / "own.toml"), wishes).plan == found.plan


@pytest.mark.parametrize(
    ("target", "wishes", "words"),
    [
        (SHARED, {"num_steps": 5, "entries": {"num_draws": 9}}, "--draws is for samplers that tune themselves"),
        (SHARED, {"num_steps": 5}, "--steps and --step-size"),
        (SHARED, {"sampler": "nuts", "num_steps": 5}, "in place of --steps take --warmup and --draws"),
        (SHARED, {"sampler": "nuts", "entries": {"batch_size": 2}}, "leave out --batch-size"),
        (SHARED, {"sampler": "nuts", "entries": {"dtype": "float32"}}, "needs double precision"),
        (SHARED, {"sampler": "nuts", "numbers": {"friction": 2}}, "--friction is not for the sampler nuts"),
        ("gmm", {"entries": {"masked": False}}, "--unmasked is for samplers that tune themselves"),
        ("digits", {"sampler": "nuts"}, "has minibatches of 32 rows, and nuts needs the gradients of all rows"),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_remedy(target, wishes, words):
    with pytest.raises(PlanError) as error:
        resolved(target, **wishes)
    assert words in str(error.value)


def test_an_experiment_shows_a_wished_sampler_beside_its_own():
    plans = {
        name: one.plan for name, one in plans_for("mnist", Wishes(sampler="kinetic", entries={"seed": 3})).items()
    }
    assert list(plans) == ["c-ula", "d-ula-5", "kinetic-5", "d-ula-5-skewed", "kinetic-5-skewed"]
    assert {plan.seed for plan in plans.values()} == {3}
    assert len({plan.num_steps * plan.batch_size * plan.num_agents for plan in plans.values()}) == 1
    assert {name: plan.sampler.kind for name, plan in plans.items() if "kinetic" in name} == dict.fromkeys(
        ("kinetic-5", "kinetic-5-skewed"), "kinetic"
    )
    one = main_plan("mnist", Wishes(sampler="kinetic", num_agents=3, num_steps=70)).plan
    assert (one.problem, one.num_agents, one.num_steps, one.sampler.tunes_itself) == ("mnist-even", 3, 70, False)


def test_who_counts_draws_gets_a_sampler_that_tunes_itself():
    for target in ("mnist", "mnist-kinetic"):
        wishes = Wishes(sampler="kinetic", num_agents=3, entries={"num_warmup": 400})
        assert main_plan(target, wishes).plan.sampler.tunes_itself
    auto = main_plan("mnist", Wishes(sampler="kinetic", num_agents=3, auto=True)).plan.sampler
    assert (auto.kind, auto.tunes_itself) == ("kinetic", True)
