"""What samplers in unison see of the network: the log-density of everybody's data, by one sum over the agents.

For a position `(w, z_1 … z_n)` every agent computes its own `(U_i, ∇_w U_i)` and what else is to ride along; the sum
of these over all agents is the only thing that needs the network. Private gradients `∇_z U_i` stay where they are.

Each sum carries one more word: how many agents have a value that does not fit the grid (or is none). If it is not 0,
the log-density is −∞, at every agent alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from consilience.kernel.fixed_point import Grid, from_words, grid_exponent, magnitude_counts, to_words
from consilience.samplers.unison import Evaluation, Ride

_LEAST_ENERGY = 10
"""Energies up to `2^10` always fit: kinetic ones ride along, and a change by 1,000 is a divergence."""
_FAR = 2.0**12
"""A chain that starts where an agent's potential is so many times that of `init` starts too far out."""

Potentials = Callable[[jax.Array], tuple[jax.Array, jax.Array]]
"""From positions `(chains, agents here, size)` to values `(chains, agents here)` and gradients."""
Total = Callable[[jax.Array], jax.Array]
"""From integers to their sum over the processes or devices of the network; the same shape everywhere."""


@dataclass(frozen=True)
class NetworkSums:
    """The network, as a sampler in unison sees it.

    Attributes:
        potentials: of the agents that are here.
        num_shared: so many entries of a position are shared, the rest are private.
        num_agents: of the whole network.
        total: the sum over everybody else.
        vary: marks what is the same everywhere as something that agents then make their own of.
        agents: `(agents here,)`, their numbers.
        entries: `(agents here, p)`, 1 for each private parameter, 0 for what only fills the array.
        root: the agent whose replica counts where replicas could differ.
        counts: `(agents here,)` whether a place is an agent's own and counts in sums; `None` if all are.
    """

    potentials: Potentials
    num_shared: int
    num_agents: int
    total: Total
    agents: jax.Array
    entries: jax.Array
    root: int = 0
    vary: Callable[[Any], Any] = lambda values: values
    counts: jax.Array | None = None

    def _counted(self, values: jax.Array) -> jax.Array:
        """Integers or truths `(agents here, …)`, 0 where a place is no agent's own."""
        if self.counts is None:
            return values
        return jnp.where(self.counts.reshape(-1, *[1] * (values.ndim - 1)), values, jnp.zeros_like(values))

    def evaluate(self, grid: Grid, shared: jax.Array, private: jax.Array, ride: Ride) -> Evaluation:
        """Log-density and gradients of one chain, by one sum.

        Args:
            grid: on which the sum is made.
            shared: `(d,)`, the same at all agents.
            private: `(agents here, p)`.
            ride: from `∇_z U_i`, `(agents here, p)`, to further numbers `(agents here, k)` to be summed with it.
        """
        agents = private.shape[0]
        own = self.vary(shared)
        positions = jnp.concatenate([jnp.broadcast_to(own, (agents, *own.shape)), private], 1)
        values, gradients = (found[0] for found in self.potentials(positions[None]))
        own_gradient = gradients[:, self.num_shared :]
        energies, fit = to_words(
            jnp.concatenate([values[:, None], ride(own_gradient)], 1), grid.energy, self.num_agents
        )
        slopes, also_fit = to_words(gradients[:, : self.num_shared], grid.gradient, self.num_agents)
        misfits = jnp.sum(self._counted(~(fit.all(1) & also_fit.all(1))), dtype=jnp.int64)
        words = jnp.concatenate([misfits[None], self._counted(energies).sum(0), self._counted(slopes).sum(0)])
        summed = self.total(words)
        carried = energies.shape[1] - 1
        usable = summed[0] == 0
        decoded = from_words(summed[1 : 2 + carried], grid.energy)
        gradient = from_words(summed[2 + carried :], grid.gradient)
        return Evaluation(
            jnp.where(usable, -decoded[0], -jnp.inf), jnp.where(usable, -gradient, 0.0), -own_gradient, decoded[1:]
        )

    def _at(self, shared: jax.Array, private: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Potentials `(chains, agents here)` and gradients at the positions of all chains."""
        own = jnp.broadcast_to(self.vary(shared)[:, None], (*private.shape[:2], shared.shape[1]))
        return self.potentials(jnp.concatenate([own, private], 2))

    def far(self, shared: jax.Array, private: jax.Array) -> jax.Array:
        """`(chains, agents here)` potentials too far above those at some positions for a start near them.

        From there a trajectory falls for ever, and a grid on which such energies fit is too coarse for others.
        """
        return _FAR * (1 + jnp.abs(self._at(shared, private)[0]))

    def measure(self, shared: jax.Array, private: jax.Array, most: Any = jnp.inf) -> tuple[Grid, jax.Array]:
        """A grid for values and gradients like those at the positions of all chains, and the chains with none.

        Args:
            shared: `(chains, d)`.
            private: `(chains, agents here, p)`.
            most: `(chains, agents here)`, an agent's potential beyond which a chain counts as one with none.
        """
        chains, agents = private.shape[:2]
        values, gradients = self._at(shared, private)
        slopes = gradients[..., : self.num_shared]
        usable = (jnp.abs(values) <= most) & jnp.isfinite(values) & jnp.isfinite(gradients).all(-1)
        by_agent = jax.vmap(magnitude_counts, 1)
        counts = [
            self._counted(by_agent(jnp.where(usable.reshape(chains, agents, 1), one, 0.0))).sum(0)
            for one in (values[..., None], slopes)
        ]
        words = jnp.concatenate([*counts, jnp.sum(self._counted((~usable).T), 0, dtype=jnp.int64)])
        summed = self.total(words)
        bins = counts[0].size
        grid = Grid(
            grid_exponent(summed[:bins], self.num_agents, _LEAST_ENERGY),
            grid_exponent(summed[bins : 2 * bins], self.num_agents),
        )
        return grid, summed[2 * bins :] > 0

    def adopt(self, values: jax.Array) -> jax.Array:
        """The root agent's numbers `(agents here, …)`, to the bit, at every agent."""
        words = jax.lax.bitcast_convert_type(values.astype(jnp.float64), jnp.int64)
        chosen = jnp.where((self.agents == self.root).reshape(-1, *[1] * (words.ndim - 1)), words, 0)
        chosen = self._counted(chosen).sum(0)
        return jax.lax.bitcast_convert_type(self.total(chosen.reshape(-1)).reshape(chosen.shape), jnp.float64)
