"""A move of Hamiltonian Monte Carlo for all chains, with private parameters, by one sum for each leapfrog step.

Momenta of private parameters stay at their agent. An agent knows the gradient of its private parameters before the
sum is made, hence also its private momenta at the end of the leapfrog step: their kinetic energy rides on the sum
that brings the log-density, and no other is needed.

    p ← p + (ε/2) ∇,   x ← x + ε M⁻¹ p,   [one sum: log-density, ∇_w, private kinetic energies],   p ← p + (ε/2) ∇

All chains make the same number of steps, `⌈u · longest / ε⌉` with `u` uniform on (0, 1): a jittered length. In
coordinates scaled by the mass, the widest direction of the posterior has the variance `λ`, and half a period of the
motion along it takes `π √λ`; trajectories of up to `2.5 √λ` were best on the models tried. The warm-up finds the
direction and `λ` by incremental principal components, for which each draw's projection on the direction is needed:
its private part rides on the sum too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from consilience.samplers.transitions.replica import Keys, Replica
from consilience.samplers.unison import Facts, Network

_MOST_STEPS, _MOST_FIRST_STEPS = 1000, 64
_TOO_FAR = 1000.0  # in energy: a divergence
_PER_DEVIATION = 2.5
_WIDEST = 1e4


class Length(NamedTuple):
    """The longest trajectory, in units of time, and what is known of the widest direction."""

    longest: Any
    most_steps: Any
    direction: Any
    """`(d,)` its shared part, not normalised."""
    own_direction: Any
    """`(agents here, p)` its private part."""
    variance: Any
    """Of the draws along it, in this window."""
    count: Any
    """Draws in this window."""


def first_length(num_shared: int, own_shape: tuple[int, ...]) -> Length:
    """Before the first move."""
    return Length(
        jnp.asarray(_PER_DEVIATION), jnp.asarray(_MOST_FIRST_STEPS), jnp.ones(num_shared), jnp.ones(own_shape),
        jnp.zeros(()), jnp.zeros(()),
    )  # fmt: skip


def after_window(length: Length) -> Length:
    """The length that a window found; the next one begins to measure anew."""
    longest = _PER_DEVIATION * jnp.sqrt(jnp.clip(length.variance, 1.0, _WIDEST))
    nothing = jnp.zeros(())
    return length._replace(longest=longest, most_steps=jnp.asarray(_MOST_STEPS), variance=nothing, count=nothing)


class Trajectory(NamedTuple):
    """Where all chains are on their way."""

    shared: Any
    private: Any
    momentum: Any
    own_momentum: Any
    log_density: Any
    gradient: Any
    own_gradient: Any
    carried: Any
    """`(chains, 4)`: private kinetic energies now and at the start, private parts of the start's projection on the
    widest direction, and of that direction's square."""


def move(state: Replica, keys: Keys, network: Network, warming: Any) -> tuple[Replica, Facts]:
    """The next draw of every chain."""
    now = state.adaptation
    step_size, mass, own_mass = now.step_size, now.inverse_mass, now.own_inverse_mass
    length = now.length
    wanted = jnp.ceil(jax.random.uniform(keys.common) * length.longest / step_size)
    steps = jnp.clip(wanted, 1, length.most_steps).astype(jnp.int32)
    momentum, own_momentum = _momenta(keys, network, mass, own_mass, state)
    kinetic, own_kinetic = _kinetic(mass, momentum), _kinetic(own_mass, own_momentum)
    scaled, own_scaled = _scaled(mass, state.shared), _scaled(own_mass, state.private)
    along = (own_scaled * length.own_direction).sum(-1)
    square = (length.own_direction**2).sum(-1)

    def leapfrog(_: Any, on: Trajectory) -> Trajectory:
        p = on.momentum + step_size / 2 * on.gradient
        own_p = on.own_momentum + step_size / 2 * on.own_gradient
        w, z = on.shared + step_size * mass * p, on.private + step_size * own_mass * own_p

        def one_chain(w: Any, z: Any, own_p: Any, first: Any, along: Any) -> Any:
            def ride(own_slope: Any) -> Any:
                now = _kinetic(own_mass, own_p - step_size / 2 * own_slope)
                return jnp.stack([now, first, along, square], -1)

            return network.evaluate(state.grid, w, z, ride)

        found = jax.vmap(one_chain)(w, z, own_p, own_kinetic, along)
        return Trajectory(
            w, z, p + step_size / 2 * found.gradient, own_p + step_size / 2 * found.own_gradient,
            found.log_density, found.gradient, found.own_gradient, found.carried,
        )  # fmt: skip

    chains = state.shared.shape[0]
    start = Trajectory(
        state.shared, state.private, momentum, own_momentum, state.log_density, state.gradient, state.own_gradient,
        jnp.zeros((chains, 4)),
    )  # fmt: skip
    end = jax.lax.fori_loop(0, steps, leapfrog, start)
    energy_before = -state.log_density + kinetic + end.carried[:, 1]
    energy_after = -end.log_density + _kinetic(mass, end.momentum) + end.carried[:, 0]
    change = jnp.where(jnp.isfinite(energy_after), energy_after - energy_before, jnp.inf)
    acceptance = jnp.exp(-jnp.maximum(change, 0.0))
    taken = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 2)))(keys.chains) < acceptance
    usable = jnp.isfinite(end.log_density)  # otherwise nothing was carried
    length = jax.lax.cond(warming, lambda: _seen(length, scaled, own_scaled, end.carried, usable), lambda: length)

    def chosen(new: Any, old: Any) -> Any:
        return jnp.where(taken.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    moved = state._replace(
        shared=chosen(end.shared, state.shared),
        private=chosen(end.private, state.private),
        log_density=chosen(end.log_density, state.log_density),
        gradient=chosen(end.gradient, state.gradient),
        own_gradient=chosen(end.own_gradient, state.own_gradient),
        adaptation=now._replace(length=length),
    )
    made = jnp.full(chains, steps)
    return moved, Facts(
        acceptance, change > _TOO_FAR, chosen(energy_after, energy_before), made, jnp.zeros(chains, jnp.int32), made
    )


def _momenta(keys: Keys, network: Network, mass: Any, own_mass: Any, state: Replica) -> tuple[Any, Any]:
    """Shared ones from keys that all agents have, private ones from those of their agent."""

    def one_chain(key: Any) -> tuple[Any, Any]:
        own_key = jax.random.fold_in(key, 1)
        own = jax.vmap(lambda agent: jax.random.normal(jax.random.fold_in(own_key, agent), state.private.shape[2:]))(
            network.agents
        )
        return jax.random.normal(jax.random.fold_in(key, 0), mass.shape), own

    shared, own = jax.vmap(one_chain)(keys.chains)
    return shared / jnp.sqrt(mass), own * network.entries / jnp.sqrt(own_mass)


def _kinetic(inverse_mass: Any, momentum: Any) -> Any:
    return 0.5 * (inverse_mass * momentum**2).sum(-1)


def _scaled(inverse_mass: Any, positions: Any) -> Any:
    """Positions of the chains around their mean, in units of the mass; a single chain's around 0 says nothing."""
    chains = positions.shape[0]
    return (positions - positions.mean(0)) / jnp.sqrt(inverse_mass) * jnp.sqrt(chains / max(chains - 1, 1))


def _seen(length: Length, scaled: Any, own_scaled: Any, carried: Any, usable: Any) -> Length:
    """What one more draw of all chains says of the widest direction; later draws of a window count more."""
    size = jnp.sqrt((length.direction**2).sum() + jnp.where(usable, carried[:, 3], 0.0).max())
    along = jnp.where(usable, (scaled @ length.direction + carried[:, 2]) / size, 0.0)
    count = length.count + 1
    share = jnp.where(usable.all(), 2 / (count + 1), 0.0)

    def turned(direction: Any, positions: Any) -> Any:
        return (1 - share) * direction + share * jnp.tensordot(along, positions, 1) / along.size

    return length._replace(
        direction=turned(length.direction, scaled),
        own_direction=turned(length.own_direction, own_scaled),
        variance=(1 - share) * length.variance + share * (along**2).mean(),
        count=count,
    )
