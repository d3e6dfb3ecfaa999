"""The rule by which a run has converged, and its words."""

import itertools

import pytest

import consilience as cs
from consilience.runs.convergence import looks, remedy, shortcomings, verdict, warnings_of


def row(parameter="w", rhat=1.001, ess=1000.0, **more):
    return {"parameter": parameter, "rhat": rhat, "ess": ess, **more}


def test_looks_grow_and_are_whole_draws():
    found = list(itertools.islice(looks(60), 20))
    assert found[0] == 260
    assert all(1 < (after - 60) / (before - 60) <= 1.5 for before, after in itertools.pairwise(found))


def test_good_rows_have_no_shortcoming():
    rows = [row(), row("z", agent=0)]
    assert shortcomings(rows) == []
    assert verdict(True, [], rows).startswith("Converged: R-hat is at most 1.001")


def test_each_shortcoming_names_the_worst():
    assert shortcomings([row(), row("z", rhat=1.2, agent=3)]) == [
        "R-hat of z at agent 3 is 1.2, 1.01 at most is wanted"
    ]
    (few,) = shortcomings([row(ess=399.4), row("v", ess=12.0)])
    assert few == "v has 12 effective draws, 400 at least are wanted"
    (fixed,) = shortcomings([row(), row("v", rhat=None, ess=None)])
    assert fixed.startswith("v does not move")
    (diverged,) = shortcomings([row()], diverging=0.02)
    assert diverged == "2.0 % of the draws diverged"
    assert shortcomings([row()], diverging=0.01) == []
    assert verdict(False, [few, diverged]) == f"Not converged: {few}; {diverged}."
    assert verdict(None, ["the temperature is 0"]).startswith("Not a sample of the posterior")


def test_warnings_come_with_a_remedy():
    assert warnings_of(0, [1.0, 0.9], 0.0) == []
    divergences, energy, depth = warnings_of(3, [0.2, 0.9], 0.5)
    assert "3 draws diverged" in divergences
    assert warnings_of(1, [], 0.0)[0].startswith("1 draw diverged")
    assert "target_acceptance" in divergences
    assert "0.20" in energy
    assert "50 %" in depth
    assert "max_depth" in depth


def test_agents_that_disagree_have_not_converged():
    assert shortcomings([row()], across={"w": 1.004, "z": None}) == []
    (reason,) = shortcomings([row()], across={"w": 1.004, "v": 1.2, "z": None})
    assert reason == "agents disagree about v: R-hat across agents is 1.2, 1.01 at most is wanted"


GRAPH = cs.graphs.ring(3)
STEPS = cs.Plan(graph=GRAPH, sampler=cs.dula(1e-3, 0.2), num_steps=1000)


@pytest.mark.parametrize(
    ("plan", "rows", "words"),
    [
        (STEPS, [row(ess=40.0)], "about 12,000 steps"),
        (
            STEPS,
            [row(ess=0.1)],
            "far too few or too small",
        ),
        (STEPS.replace(batch_size=2), [row(ess=9.0)], "kinetic"),
        (cs.Plan(graph=GRAPH, sampler=cs.nuts(), num_draws=100), [row(ess=40.0)], "leave out --draws"),
        (cs.Plan(graph=GRAPH, sampler=cs.nuts()), [row(ess=40.0)], "more draws than 10,000 (--max-draws)"),
    ],
)
def test_a_remedy_is_for_the_plan_that_was_followed(plan, rows, words):
    assert words in remedy(plan, rows, 0.0, False)


def test_a_remedy_speaks_of_divergences_and_of_agents_that_disagree():
    plan = STEPS
    both = remedy(plan, [row(ess=40.0)], 0.2, True)
    assert "--target-acceptance" in both
    assert "bring agents together" in both
    diverged = remedy(cs.Plan(graph=GRAPH, sampler=cs.nuts()), [row()], 0.2, False)
    assert diverged.startswith("against draws that diverge, --target-acceptance"), "more draws would diverge as well"
    neither = remedy(plan, [row(ess=40.0)], 0.0, False)
    assert "--target-acceptance" not in neither
    assert "bring agents together" not in neither
