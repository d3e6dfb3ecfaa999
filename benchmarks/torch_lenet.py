"""Contestant: PyTorch, run eagerly, for LeNet-5: one network after the other, each gradient by autograd.

The weights of all agents are the rows of one tensor, in the engine's order, so that mixing is one product and the
update one operation. Pooling comes before `tanh`, as in our network: the same numbers with a quarter of the `tanh`s.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch
from torch.nn.functional import conv2d, cross_entropy, linear, max_pool2d

from benchmarks.lenet import initial_weights, require_same_gradient
from benchmarks.setting import shuffled_epochs
from benchmarks.timing import Contestant, seconds_of
from consilience import Plan, Problem
from consilience.kernel.parameters import Parameters

Rows = list[tuple[torch.Tensor, torch.Tensor]]


class Gradients:
    """`∇U_i` of all agents at weights `(num_agents, size)`, from a minibatch of each."""

    def __init__(self, problem: Problem) -> None:
        parameters = Parameters.of(problem, np.dtype("float32"))
        self.shapes = dict(zip(parameters.names, parameters.shapes, strict=True))
        self.sizes = [prod(shape) for shape in parameters.shapes]
        self.shard_sizes = problem.shard_sizes.tolist()

    def __call__(self, positions: torch.Tensor, rows: Rows) -> torch.Tensor:
        gradients = torch.empty_like(positions)
        for agent, (images, labels) in enumerate(rows):
            weights = positions[agent].detach().requires_grad_()
            loss = cross_entropy(self._logits(weights, images), labels, reduction="sum")
            potential = loss * (self.shard_sizes[agent] / len(labels))  # the uniform prior has no gradient
            gradients[agent] = torch.autograd.grad(potential, weights)[0]
        return gradients

    def _logits(self, weights: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        parts = zip(self.shapes.items(), weights.split(self.sizes), strict=True)
        of = {name: part.view(shape) for (name, shape), part in parts}
        values = images[:, None]
        for name in ("convolution_1", "convolution_2"):
            kernel = of[f"{name}.weight"].view(-1, values.shape[1], 5, 5)
            values = torch.tanh(max_pool2d(conv2d(values, kernel, of[f"{name}.bias"]), 2))
        values = values.flatten(1)
        for name in ("full_1", "full_2"):
            values = torch.tanh(linear(values, of[f"{name}.weight"], of[f"{name}.bias"]))
        return linear(values, of["full_3.weight"], of["full_3.bias"])


def contestant(problem: Problem, plan: Plan, num_threads: int) -> Contestant:
    """The loop over all steps of the plan on so many threads, which keeps draws as often as the plan says."""
    gradients = Gradients(problem)
    shards = [(torch.from_numpy(images), torch.from_numpy(labels).long()) for images, labels in problem.shards]
    laplacian = torch.from_numpy(plan.graph.laplacian.toarray().astype(np.float32))

    def of_arrays(positions: np.ndarray, rows: Any) -> np.ndarray:
        images, labels = (torch.from_numpy(array) for array in rows)
        return gradients(torch.from_numpy(positions), list(zip(images, labels.long(), strict=True))).numpy()

    require_same_gradient(of_arrays, problem)

    def run() -> float:
        torch.set_num_threads(num_threads)
        return seconds_of(lambda: _sample(problem, plan, gradients, shards, laplacian)) / plan.num_steps

    return run


def _sample(
    problem: Problem, plan: Plan, gradients: Gradients, shards: Rows, laplacian: torch.Tensor
) -> torch.Tensor:
    torch.manual_seed(plan.seed)
    positions = torch.from_numpy(initial_weights(problem))
    draws = torch.empty((plan.num_stored, *positions.shape))
    steps = np.arange(plan.num_steps)
    drift = plan.num_agents * plan.sampler.step_size(steps)
    rows = torch.from_numpy(shuffled_epochs(problem, plan))
    numbers = zip(drift.tolist(), plan.sampler.consensus(steps).tolist(), rows, strict=True)
    for done, (drift_now, pull, chosen) in enumerate(numbers, 1):
        batches = [(images[own], labels[own]) for (images, labels), own in zip(shards, chosen, strict=True)]
        gradient = gradients(positions, batches)
        disagreement = laplacian @ positions
        positions.sub_(disagreement, alpha=pull).sub_(gradient, alpha=drift_now)
        positions.add_(torch.randn_like(positions), alpha=(2 * drift_now) ** 0.5)
        if done % plan.store_every == 0:
            draws[done // plan.store_every - 1] = positions
    return draws
