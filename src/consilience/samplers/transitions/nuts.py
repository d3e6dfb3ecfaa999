"""A move of NUTS for all chains, by BlackJAX; each leapfrog step evaluates the log-density by one sum.

Chains move side by side, so a sum serves all of them: one for each leapfrog step of the longest trajectory in each
doubling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from consilience.samplers.transitions.replica import Keys, Replica
from consilience.samplers.unison import Facts, Network


def move(state: Replica, keys: Keys, network: Network, max_depth: int) -> tuple[Replica, Facts]:
    """The next draw of every chain."""
    import blackjax.mcmc.hmc  # here, as it begins to compute when it is loaded: see `adaptation`

    kernel, density = blackjax.nuts.build_kernel(), log_density(network, state.grid, state.private.shape[1:])
    step_size, mass = state.adaptation.step_size, state.adaptation.inverse_mass

    def one_chain(key: Any, position: Any, value: Any, gradient: Any) -> Any:
        before = blackjax.mcmc.hmc.HMCState(position, value, gradient)
        return kernel(key, before, density, step_size, mass, max_depth)

    after, info = jax.vmap(one_chain)(keys.chains, state.shared, state.log_density, state.gradient)
    leapfrogs = info.num_integration_steps
    facts = Facts(
        jnp.nan_to_num(info.acceptance_rate), info.is_divergent, info.energy, leapfrogs,
        info.num_trajectory_expansions, jnp.broadcast_to(num_sums(leapfrogs, max_depth), leapfrogs.shape),
    )  # fmt: skip
    return state._replace(shared=after.position, log_density=after.logdensity, gradient=after.logdensity_grad), facts


def log_density(network: Network, grid: Any, own_shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """The log-density of one chain as a function that JAX differentiates; value and gradient come with one sum."""

    def evaluate(position: Any) -> tuple[Any, Any]:
        none = jnp.zeros(own_shape, position.dtype)
        found = network.evaluate(grid, position, none, lambda own_gradient: own_gradient[:, :0])
        return found.log_density, found.gradient

    density = jax.custom_vjp(lambda position: evaluate(position)[0])
    density.defvjp(evaluate, lambda gradient, scale: (scale * gradient,))
    return density


def num_sums(leapfrogs: Any, max_depth: int) -> Any:
    """How many sums a move took, from the leapfrog steps of each chain: in each doubling those of the longest.

    It may have taken a few more (about 1 %): while others double on, a chain that has turned makes one more doubling
    that is thrown away, which may be longer than theirs if they turn early in it.

    >>> int(num_sums(jnp.array([3, 1]), 10)), int(num_sums(jnp.array([2, 7]), 10))
    (3, 7)
    """
    first = 2 ** jnp.arange(max_depth)
    in_doubling = jnp.clip(leapfrogs[:, None] - (first - 1), 0, first)
    return in_doubling.max(0).sum()
