"""Contestant: PyTorch, run eagerly, all agents stacked in one tensor, the gradient by autograd.

What a PyTorch user writes without compiling. Noise and step sizes are prepared for a thousand steps at once.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import softplus

from benchmarks.setting import STORE_EVERY, require_same_gradient
from benchmarks.timing import Contestant, seconds_of
from consilience import Plan, Problem

_BLOCK = 1000


def contestant(problem: Problem, plan: Plan, num_threads: int) -> Contestant:
    """The loop over all steps of the plan on so many threads, which keeps a draw every 10 steps."""
    data = torch.from_numpy(np.stack(problem.shards))
    laplacian = torch.from_numpy(plan.graph.laplacian.toarray().astype(np.float32))
    require_same_gradient(lambda positions: _gradient(torch.from_numpy(positions).requires_grad_(), data), problem)

    def run() -> float:
        torch.set_num_threads(num_threads)
        return seconds_of(lambda: _sample(data, laplacian, plan)) / plan.num_steps

    return run


def _gradient(positions: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """`∇U_i` of every agent at once: the sum of all `U_i` has no terms that two agents share."""
    first, second = positions.split(1, dim=1)
    residual = data - first
    log_likelihood = -(residual**2) / 4 + softplus(second * (2 * residual - second) / 4)
    log_prior = -(first**2) / 20 - second**2 / 2
    potential = -log_likelihood.sum() - log_prior.sum() / len(data)
    return torch.autograd.grad(potential, positions)[0]


def _sample(data: torch.Tensor, laplacian: torch.Tensor, plan: Plan) -> torch.Tensor:
    torch.manual_seed(plan.seed)
    shape = (plan.num_agents, 2)
    positions = torch.zeros(shape, requires_grad=True)
    draws = torch.empty((plan.num_stored, *shape))
    for first in range(0, plan.num_steps, _BLOCK):
        steps = np.arange(first, min(first + _BLOCK, plan.num_steps))
        drift = plan.num_agents * plan.sampler.step_size(steps)
        deviation = torch.from_numpy(np.sqrt(2 * drift).astype(np.float32))
        noise = torch.randn((len(steps), *shape)) * deviation[:, None, None]
        numbers = zip(drift.tolist(), plan.sampler.consensus(steps).tolist(), noise, strict=True)
        for done, (drift_now, pull, kick) in enumerate(numbers, first + 1):
            gradient = _gradient(positions, data)
            with torch.no_grad():
                disagreement = laplacian @ positions
                positions.sub_(disagreement, alpha=pull).sub_(gradient, alpha=drift_now).add_(kick)
                if done % STORE_EVERY == 0:
                    draws[done // STORE_EVERY - 1] = positions
    return draws
