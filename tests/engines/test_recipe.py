"""The recipe: corrected kinetic sampling with nothing said is right at every agent, on any model and graph.

Right: means within 0.1 posterior deviations and variances within 10 %, beyond four Monte Carlo standard errors, with
at least 5,000 effective draws at the worst agent (with 400 an exact sampler would miss 10 % in most trials). At 5,000
a tenth is 7 errors of a mean and 5 of a variance; with the 4 % of a variance that the exact law leaves at most, at
least 7 errors remain: the false-alarm rate is below 1e-6. The whole grid of 60 is `python -m benchmarks gossip-grid`:
each of its cells is a program of its own, and draws until there are 5,000 effective ones. Here are eleven.

Of the small networks, which have each model and each graph once, those quick ones took 9 (poisson), 7 (linear), 6
(logistic) and 5 seconds (student) of one processor, most of it compiling, and the funnel 16.
"""

import numpy as np
import pytest
from benchmarks.gossip import ENOUGH, errors, measured
from benchmarks.unequal import CASES

from consilience import graphs

OPTIMISED = True


@pytest.mark.parametrize(("model", "kind", "num_agents"), [
    pytest.param("poisson", "path", 3),
    pytest.param("linear", "star", 4),
    pytest.param("logistic", "ring", 4),
    pytest.param("student", "complete", 3),
    pytest.param("funnel", "complete", 3),
    *(
        pytest.param(*case, marks=pytest.mark.slow(reason="a program of its own, some ten thousand steps"))
        for case in (
            ("linear", "star", 20),
            ("logistic", "ring", 7),
            ("student", "complete", 7),
            ("student", "path", 3),
            ("funnel", "ring", 3),
            ("funnel", "star", 7),
        )
    ),
])  # fmt: skip
def test_every_agent_is_right_with_nothing_said(model, kind, num_agents):
    found = measured(CASES[model](num_agents), graphs.named(kind, num_agents))
    assert found.effective >= ENOUGH
    assert found.is_right, found


@pytest.mark.parametrize(("shift", "width"), [(0.3, 1.0), (0.0, 1.3), (0.0, 0.8)])
def test_an_agent_that_is_wrong_is_caught(shift, width):
    """The control, at one agent of three: 5,500 independent draws of a law that is off."""
    case = CASES["linear"](3)
    known = case.reference()
    draws = np.random.default_rng(0).normal(size=(3, 4, 1375, len(known.mean)))
    assert max(errors(case, draws * np.sqrt(known.variance) + known.mean)[2:]) == 0
    draws[1, ..., 0] = shift + np.sqrt(width) * draws[1, ..., 0]
    assert max(errors(case, draws * np.sqrt(known.variance) + known.mean)[2:]) > 0.1


def test_references_agree_with_the_closed_form():
    """Weighted points, and a funnel's quadrature where it is known: of a group without rows it is the prior."""
    from benchmarks.references import funnel_reference, weighted

    case = CASES["linear"](3)
    exact, found = case.reference(), weighted(case.problem)
    assert np.abs((found.mean - exact.mean) / np.sqrt(exact.variance)).max() < 4 * found.error
    assert np.abs(found.variance / exact.variance - 1).max() < 4 * 1.4 * found.error
    prior = funnel_reference(np.zeros(1), np.zeros(1))
    assert prior.mean[:2] == pytest.approx([0, 0], abs=1e-3)
    assert prior.variance[1] == pytest.approx(1, rel=1e-2)
