"""Contestant: PyTorch, run eagerly, on a9a: the agents' minibatches stacked in one tensor, the gradient by autograd.

Row numbers are prepared for the whole run; the rows themselves, noise and step sizes for a hundred steps at once,
which still fit into the cache. What remains of a step is the gradient and the update.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.a9a import require_same_gradient, rows_of_table
from benchmarks.timing import Contestant, seconds_of
from consilience import Plan, Problem
from consilience.datasets import Labelled

_BLOCK = 100


def contestant(problem: Problem, plan: Plan, table: Labelled, num_threads: int) -> Contestant:
    """The loop over all steps of the plan on so many threads, which keeps draws as often as the plan says."""
    features, labels = torch.from_numpy(table.inputs), torch.from_numpy(table.labels.astype(np.float32))
    laplacian = torch.from_numpy(plan.graph.laplacian.toarray().astype(np.float32))
    scale = torch.from_numpy((problem.shard_sizes / plan.batch_size).astype(np.float32))[:, None, None]

    def gradients(positions: np.ndarray, rows: np.ndarray) -> np.ndarray:
        weights, chosen = torch.from_numpy(positions)[:, :, None].requires_grad_(), torch.from_numpy(rows)
        return _gradient(weights, features[chosen], labels[chosen][..., None], scale)[:, :, 0].numpy()

    require_same_gradient(gradients, problem, plan)

    def run() -> float:
        torch.set_num_threads(num_threads)
        return seconds_of(lambda: _sample(problem, plan, features, labels, laplacian, scale)) / plan.num_steps

    return run


def _gradient(
    weights: torch.Tensor, features: torch.Tensor, labels: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """`∇U_i` of every agent at once: the sum of all `U_i` has no terms that two agents share."""
    logits = torch.bmm(features, weights)
    likelihood = binary_cross_entropy_with_logits(logits, labels, weight=scale, reduction="sum")
    potential = likelihood + weights.abs().sum() / len(weights)
    return torch.autograd.grad(potential, weights)[0]


def _sample(
    problem: Problem,
    plan: Plan,
    features: torch.Tensor,
    labels: torch.Tensor,
    laplacian: torch.Tensor,
    scale: torch.Tensor,
) -> torch.Tensor:
    torch.manual_seed(plan.seed)
    rows = torch.from_numpy(rows_of_table(problem, plan))
    shape = (plan.num_agents, features.shape[1], 1)  # columns, as a batched product wants them
    weights = torch.zeros(shape, requires_grad=True)
    positions = weights.detach()[:, :, 0]  # the same memory
    draws = torch.empty((plan.num_stored, *positions.shape))
    for first in range(0, plan.num_steps, _BLOCK):
        steps = np.arange(first, min(first + _BLOCK, plan.num_steps))
        chosen = rows[first : first + _BLOCK]
        drift = plan.num_agents * plan.sampler.step_size(steps)
        deviation = torch.from_numpy(np.sqrt(2 * drift).astype(np.float32))
        noise = torch.randn((len(steps), *positions.shape)) * deviation[:, None, None]
        numbers = zip(
            drift.tolist(),
            plan.sampler.consensus(steps).tolist(),
            noise,
            features[chosen],
            labels[chosen][..., None],
            strict=True,
        )
        for done, (drift_now, pull, kick, own_features, own_labels) in enumerate(numbers, first + 1):
            gradient = _gradient(weights, own_features, own_labels, scale)[:, :, 0]
            disagreement = laplacian @ positions
            positions.sub_(disagreement, alpha=pull).sub_(gradient, alpha=drift_now).add_(kick)
            if done % plan.store_every == 0:
                draws[done // plan.store_every - 1] = positions
    return draws
