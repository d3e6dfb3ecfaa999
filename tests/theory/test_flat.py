"""A posterior that is flat somewhere, as under a Laplace prior: declined with the reason, and at once."""

import dataclasses

import numpy as np
import pytest

import consilience as cs
from consilience.errors import ProblemError
from consilience.planning.assessments import assess
from consilience.theory import Potentials
from consilience.theory.constants import require_curved


def logistic(prior):
    """Three features, of which nobody has the last."""
    rng = np.random.default_rng(0)
    features = np.pad(rng.normal(size=(40, 2)), ((0, 0), (0, 1)))
    labels = (features[:, 0] + rng.normal(size=40) > 0).astype(float)
    return cs.models.logistic_regression([(features[:20], labels[:20]), (features[20:], labels[20:])], prior)


def test_a_laplace_prior_is_not_called_anything_that_it_is_not():
    with pytest.raises(ProblemError) as found:
        require_curved(Potentials(logistic("laplace")))
    assert "flat in some direction" in str(found.value)
    assert "not log-concave" not in str(found.value)
    require_curved(Potentials(logistic("normal")))


def test_repetitions_with_data_of_their_own_are_asked_about_the_first():
    """The a9a experiment's case: as many chains as its plan has repetitions, and a pilot of more."""
    problem = logistic("laplace")
    repeated = dataclasses.replace(problem, replicas=[problem.shards] * 3)
    plan = cs.Plan(graph=cs.graphs.ring(2), sampler=cs.dula(1e-3, 0.2), num_steps=100, num_chains=3)
    with pytest.raises(ProblemError, match="flat in some direction"):
        assess(repeated, plan)
