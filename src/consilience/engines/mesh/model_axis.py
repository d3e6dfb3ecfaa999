"""Parameters of an agent spread over several devices, along the mesh's axis `model`.

Each device keeps a slice of every vector of its agents: state, noise, draws, messages. Only the gradient needs all
parameters at once. For it, one agent at a time, the slices are gathered, each device takes its share of the rows, and
the gradients are summed and cut into slices again (as in fully sharded data parallelism). So any model can be spread,
the work is shared, and a device never holds the parameters of more than one agent in full.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from consilience.kernel.gradients import (
    MANY_PARAMETERS,
    NetworkGradients,
    local_gradient,
    network_gradients,
    one_after_the_other,
)
from consilience.kernel.parameters import Parameters
from consilience.problems import Problem


class ModelAxis:
    """How parameter vectors are cut into slices of equal length; the last one is filled up with zeros.

    Attributes:
        devices: how many slices.
        size: parameters of a model.
        slice_size: parameters on a device.
        padded_size: all slices together.
    """

    def __init__(self, devices: int, size: int) -> None:
        self.devices, self.size = devices, size
        self.slice_size = -(-size // devices)
        self.padded_size = devices * self.slice_size

    @property
    def one_after_the_other(self) -> bool:
        """Whether gradients go over agents in turn, not side by side."""
        return self.devices > 1 or self.size > MANY_PARAMETERS

    def first(self) -> Any:
        """Where in the vector this device's slice begins."""
        return 0 if self.devices == 1 else jax.lax.axis_index("model") * self.slice_size

    def own_slice(self, vectors: jax.Array) -> jax.Array:
        """This device's slice of vectors `(…, size)`."""
        if self.devices == 1:
            return vectors
        filled = jnp.pad(vectors, [(0, 0)] * (vectors.ndim - 1) + [(0, self.padded_size - self.size)])
        return jax.lax.dynamic_slice_in_dim(filled, self.first(), self.slice_size, -1)

    def without_filling(self, numbers: jax.Array) -> jax.Array:
        """Numbers of slices one after the other, zero where there is no parameter."""
        if self.padded_size == self.size:
            return numbers
        place = self.first() + jnp.arange(self.slice_size)
        return (numbers.reshape(-1, self.slice_size) * (place < self.size)).reshape(numbers.shape)

    def gradients(self, problem: Problem, parameters: Parameters) -> NetworkGradients:
        """The gradients of all chains and agents here, as slices."""
        if self.devices == 1:
            return network_gradients(problem, parameters)
        count = self.devices
        shared_prior = replace(problem, network_size=count * (problem.network_size or problem.num_agents))
        whole = local_gradient(shared_prior, parameters)  # the devices' parts sum to one whole prior share

        def one_agent(own: jax.Array, rows: Any, row_weights: jax.Array | None, scale: Any) -> jax.Array:
            w = jax.lax.all_gather(own, "model", axis=0, tiled=True)[: self.size]
            num_rows = jax.tree.leaves(rows)[0].shape[0]
            share = -(-num_rows // count)
            place = jax.lax.axis_index("model") * share + jnp.arange(share)
            mine = jax.tree.map(lambda leaf: leaf[place % num_rows], rows)
            weights = (place < num_rows).astype(w.dtype)
            if row_weights is not None:
                weights = weights * row_weights[place % num_rows]
            part = jnp.pad(whole(w, mine, weights, scale), (0, self.padded_size - self.size))
            return jax.lax.psum_scatter(part, "model", tiled=True)

        return one_after_the_other(one_agent)
