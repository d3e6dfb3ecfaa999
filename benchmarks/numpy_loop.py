"""Contestant: a vectorised NumPy loop, all agents stacked in one array, the gradient written by hand.

Step sizes and noise are prepared for a thousand steps at once. What remains of a step is about 25 calls of NumPy,
all into arrays that exist, so their dispatch is the time that is left. Agents lie along the last axis because
broadcasting over a first axis is NumPy's fast case.
"""

from __future__ import annotations

import numpy as np

from benchmarks.setting import STORE_EVERY, require_same_gradient
from benchmarks.timing import Contestant, seconds_of
from consilience import Plan, Problem

_BLOCK = 1000


class Gradients:
    """Twice the gradients of all agents at positions `(2, num_agents)`, in arrays made once."""

    def __init__(self, problem: Problem) -> None:
        self.rows = np.ascontiguousarray(np.stack(problem.shards).T, np.float32)
        self.residual, self.share = np.empty_like(self.rows), np.empty_like(self.rows)
        self.terms = np.empty((2, *self.rows.shape), np.float32)
        self.prior = np.array([[2 / 10], [2 / 1]], np.float32) / np.float32(problem.num_agents)

    def __call__(self, positions: np.ndarray, out: np.ndarray) -> None:
        """With `r = x − θ_1` and `s = σ(θ_2 (2r − θ_2)/4)`, `2∇U_i = Σ (s θ_2 − r, s (θ_2 − r)) + prior`."""
        first, second = positions
        residual, share = self.residual, self.share
        of_first, of_second = self.terms
        np.subtract(self.rows, first, residual)
        np.subtract(residual, 0.5 * second, share)
        np.multiply(share, 0.25 * second, share)
        np.tanh(share, share)  # the sigmoid is (1 + tanh)/2 of half the argument
        np.add(share, 1, share)
        np.multiply(share, 0.5, share)
        np.multiply(share, second, of_first)
        np.subtract(of_first, residual, of_first)
        np.subtract(second, residual, of_second)
        np.multiply(of_second, share, of_second)
        np.add.reduce(self.terms, 1, None, out)
        out += self.prior * positions


def contestant(problem: Problem, plan: Plan) -> Contestant:
    """The loop over all steps of the plan, which keeps a draw every 10 steps."""
    gradients = Gradients(problem)
    require_same_gradient(lambda positions: _of_rows(gradients, positions), problem)
    laplacian = plan.graph.laplacian.toarray().astype(np.float32)
    return lambda: seconds_of(lambda: _sample(gradients, laplacian, plan)) / plan.num_steps


def _sample(gradients: Gradients, laplacian: np.ndarray, plan: Plan) -> np.ndarray:
    rng = np.random.default_rng(plan.seed)
    shape = (2, plan.num_agents)
    positions = np.zeros(shape, np.float32)
    gradient, change = np.empty_like(positions), np.empty_like(positions)
    draws = np.empty((plan.num_stored, *shape), np.float32)
    for first in range(0, plan.num_steps, _BLOCK):
        steps = np.arange(first, min(first + _BLOCK, plan.num_steps))
        drift = plan.num_agents * plan.sampler.step_size(steps)
        noise = rng.standard_normal((len(steps), *shape), np.float32)
        noise *= np.sqrt(2 * drift).astype(np.float32)[:, None, None]
        numbers = zip((drift / 2).tolist(), plan.sampler.consensus(steps).tolist(), noise, strict=True)
        for done, (half_drift, pull, kick) in enumerate(numbers, first + 1):
            gradients(positions, gradient)
            gradient *= half_drift
            np.matmul(positions, laplacian, change)  # all right-hand sides belong to the same step
            change *= pull
            change += gradient
            positions -= change
            positions += kick
            if done % STORE_EVERY == 0:
                draws[done // STORE_EVERY - 1] = positions
    return draws


def _of_rows(gradients: Gradients, positions: np.ndarray) -> np.ndarray:
    out = np.empty(positions.T.shape, np.float32)
    gradients(np.ascontiguousarray(positions.T), out)
    return 0.5 * out.T
