"""The state that every agent holds of all chains, and where it starts.

Everything but the private parts is the same at all agents, to the bit: a replica.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from consilience.samplers.transitions.adaptation import Adaptation, first_adaptation
from consilience.samplers.transitions.curvature import beginning
from consilience.samplers.unison import Network, Unison

_RADIUS = 2.0  # by which chains start apart, on the unconstrained scale
_MOST_TRIES = 12  # each halves the distance
NEAR_RADIUS = 1e-6
"""Of a start that must not be where chains have been."""


class Replica(NamedTuple):
    """The state of all chains at the agents that are here."""

    shared: Any
    """`(chains, d)` positions of shared parameters."""
    private: Any
    """`(chains, agents here, p)` positions of private ones."""
    log_density: Any
    """`(chains,)`"""
    gradient: Any
    """`(chains, d)`"""
    own_gradient: Any
    """`(chains, agents here, p)`"""
    grid: Any
    """On which sums over the network are made."""
    adaptation: Adaptation
    sums: Any = 0
    """Those made since the last move, or before the first."""


def private_leaves(replica: Replica) -> Replica:
    """Which leaves of a replica each agent has of its own (and counts itself): a replica of true and false."""
    said = jax.tree.map(lambda _: False, replica)
    now = said.adaptation
    own = jax.tree.map(lambda _: True, now.own_moments)
    length = now.length if now.length == () else now.length._replace(own_direction=True)
    adaptation = now._replace(own_inverse_mass=True, own_moments=own, length=length)
    return said._replace(private=True, own_gradient=True, adaptation=adaptation, sums=True)


class Keys(NamedTuple):
    """The random keys of one draw, the same at all agents."""

    chains: Any
    """`(chains,)`"""
    common: Any
    """One that chains share."""


def evaluate_chains(network: Network, grid: Any, shared: Any, private: Any) -> Any:
    """Log-density and gradients of all chains, by one sum."""
    nothing = lambda own_gradient: own_gradient[:, :0]  # noqa: E731
    return jax.vmap(lambda w, z: network.evaluate(grid, w, z, nothing))(shared, private)


def start(
    sampler: Unison, network: Network, keys: Keys, shared: Any, private: Any, least_radius: float = 0.0
) -> Replica:
    """The chains apart from each other, around where `init` lets them start.

    Each chain starts at a random place within `_RADIUS`; nearer, where the log-density there is none, or where an
    agent finds it absurd beside that at `init` (with a covariate of 90, a rate of `exp(2 · 90)`).

    Args:
        sampler: for what it adapts.
        network: to evaluate the log-density.
        keys: of this moment.
        shared: `(chains, d)` where `init` lets shared parameters start.
        private: `(chains, agents here, p)` the same of private ones.
        least_radius: of the last try; 0 is where `init` says.
    """

    def apart(key: Any) -> tuple[Any, Any]:
        from_agents = jax.vmap(lambda agent: jax.random.fold_in(key, agent + 1))(network.agents)
        own = jax.vmap(lambda one: jax.random.uniform(one, private.shape[2:], minval=-1.0))(from_agents)
        return jax.random.uniform(jax.random.fold_in(key, 0), shared.shape[1:], minval=-1.0), own * network.entries

    shifts = jax.vmap(apart)(keys.chains)

    def places(radius: Any) -> tuple[Any, Any]:
        return shared + radius[:, None] * shifts[0], private + radius[:, None, None] * shifts[1]

    def nearer(carry: Any) -> Any:
        tries, radius, bad, _ = carry
        radius = jnp.where(bad, jnp.where(tries < _MOST_TRIES - 1, radius / 2, least_radius), radius)
        grid, bad = network.measure(*places(radius), most)
        return tries + 1, radius, bad, grid

    most = network.far(shared, private)
    radius = jnp.full(shared.shape[0], _RADIUS)
    grid, bad = network.measure(*places(radius), most)
    tries, radius, _, grid = jax.lax.while_loop(
        lambda carry: carry[2].any() & (carry[0] < _MOST_TRIES), nearer, (0, radius, bad, grid)
    )
    w, z = places(radius)
    adaptation = first_adaptation(sampler, shared.shape[1], private.shape[1:])
    sums = jnp.asarray(2 + tries, jnp.int32)
    if not sampler.has_dense_mass(shared.shape[1]):
        found = evaluate_chains(network, grid, w, z)
        return Replica(w, z, found.log_density, found.gradient, found.own_gradient, grid, adaptation, sums)
    begun = beginning(network, w, shifts[0], private.shape[1:])
    grid, _ = network.measure(begun.shared, z)
    found = evaluate_chains(network, grid, begun.shared, z)
    fine, reached = jnp.isfinite(found.log_density), begun.reached
    return Replica(
        jnp.where(fine[:, None], begun.shared, reached.point), z,
        jnp.where(fine, found.log_density, reached.density),
        jnp.where(fine[:, None], found.gradient, reached.gradient),
        found.own_gradient, grid, adaptation._replace(inverse_mass=begun.inverse_mass), sums + 1 + begun.sums,
    )  # fmt: skip
