"""Where chains begin to move, and their first mass: damped Newton on sums, for each chain from its own start.

Posteriors come in units of their own, dollars beside fractions. With one mass for all parameters the first
trajectories are as long as they may be, and the warm-up takes hundreds of times what the draws take. So each chain
first goes from its start downhill into the posterior's bulk, or that of its own mode, and begins there, within three
deviations as the Hessian has them. The inverse of the Hessian is the first inverse mass.

Hessians are differences of summed gradients, so agents need nothing else. They are scaled to a unit diagonal, and
their eigenvalues' magnitudes are kept above 1e-6 of the largest. What decides how it goes on is adopted from the
root agent: nodes that round differently make the same sums all the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from consilience.samplers.unison import Network

_FIRST_DIFFERENCE, _DIFFERENCE = 1e-4, 1e-3  # of a parameter; of its deviation, once that is known
_LEAST_EIGENVALUE = 1e-6
_MOST_ITERATIONS, _LEAST_RADIUS = 60, 1e-4
_ENOUGH, _GOOD, _ROUNDING = 0.1, 0.75, 1e-6  # of the rise that the second-order expansion promises
_APART = 3.0  # deviations by which chains begin around where they came to


class Descent(NamedTuple):
    """What is known so far of each chain, the same at all agents."""

    point: Any
    """`(chains, d)` the best so far."""
    density: Any
    """`(chains,)` there."""
    gradient: Any
    """`(chains, d)` there."""
    root: Any
    """`(chains, d, d)` `S`, where `S Sᵀ` is the inverse of the Hessian there."""
    deviations: Any
    """`(chains, d)` of each parameter, as that Hessian has them."""
    step: Any
    """`(chains, d)` that is tried next."""
    length: Any
    """`(chains,)` of that step, in units of the Hessian."""
    promised: Any
    """`(chains,)` by how much the density should rise with it."""
    radius: Any
    """`(chains,)` how long steps may be."""
    going: Any
    """`(chains,)` 1 as long as there is more to find."""
    iterations: Any


class Beginning(NamedTuple):
    """Where chains begin to move."""

    shared: Any
    """`(chains, d)`, apart from where they came to."""
    inverse_mass: Any
    """`(d, d)`"""
    reached: Descent
    """Where they came to."""
    sums: Any
    """How many it took."""


def beginning(network: Network, start: Any, shifts: Any, own_shape: tuple[int, ...]) -> Beginning:
    """Where chains begin to move, and with which mass.

    Args:
        network: to evaluate the log-density.
        start: `(chains, d)` where descents begin.
        shifts: `(chains, d)` between −1 and 1, in which direction each chain begins from where it came to.
        own_shape: `(agents here, p)` of private parameters; there are none.
    """
    chains, size = start.shape
    signs = jnp.concatenate([jnp.zeros((1, size)), jnp.eye(size), -jnp.eye(size)])

    def iteration(now: Descent) -> Descent:
        widths = jnp.where(now.iterations > 0, _DIFFERENCE * now.deviations, _FIRST_DIFFERENCE)
        tried = now.point + now.step
        density, slopes = _at(network, tried + signs[:, None] * widths, own_shape)
        root = jax.vmap(inverse_root, 1)((slopes[1 + size :] - slopes[1 : 1 + size]) / (2 * widths.T[..., None]))
        usable = jnp.isfinite(density).all(0) & jnp.isfinite(root).all((1, 2)) & (now.going > 0)
        gained = density[0] - now.density
        better = usable & (gained >= _ENOUGH * now.promised - _ROUNDING)

        def chosen(new: Any, old: Any) -> Any:
            return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        gradient, root = chosen(slopes[0], now.gradient), chosen(root, now.root)
        whitened = jnp.einsum("cij,ci->cj", root, gradient)
        decrement = (whitened**2).sum(1)
        longer = jnp.where(gained > _GOOD * now.promised, jnp.maximum(now.radius, 4 * now.length), now.radius)
        radius = jnp.where(better, longer, now.length / 4)
        share = jnp.minimum(1.0, radius / jnp.sqrt(decrement))
        inside = better & (decrement < size) & (now.iterations > 0)
        return _adopted(network, own_shape[0], Descent(
            chosen(tried, now.point), chosen(density[0], now.density), gradient, root, jnp.sqrt((root**2).sum(2)),
            share[:, None] * jnp.einsum("cij,cj->ci", root, whitened),
            share * jnp.sqrt(decrement), (share - share**2 / 2) * decrement, radius,
            ((now.going > 0) & ~inside & (radius > _LEAST_RADIUS)) * 1.0, now.iterations + 1,
        ))  # fmt: skip

    nothing = jnp.zeros(chains)
    last = jax.lax.while_loop(
        lambda now: (now.going > 0).any() & (now.iterations < _MOST_ITERATIONS), iteration,
        Descent(
            start, nothing - jnp.inf, jnp.zeros_like(start), jnp.broadcast_to(jnp.eye(size), (chains, size, size)),
            jnp.ones_like(start), jnp.zeros_like(start), nothing, nothing, nothing + size**0.5, nothing + 1,
            jnp.asarray(0.0),
        ),
    )  # fmt: skip
    best = last.root[last.density.argmax()]
    apart = last.point + _APART * jnp.einsum("cij,cj->ci", last.root, shifts)
    return Beginning(apart, best @ best.T, last, last.iterations.astype(jnp.int32) * (2 * len(signs) + 1))


def inverse_root(hessian: Any) -> Any:
    """The symmetric root of the inverse, in coordinates in which the diagonal is 1.

    The Hessian may be unsymmetric by rounding, indefinite, and in any units.

    >>> with jax.enable_x64(True):
    ...     [f"{entry:.3g}" for entry in jnp.diag(inverse_root(jnp.array([[4.0, 0.0], [0.0, -1e12]])))]
    ['0.5', '1e-06']
    """
    hessian = (hessian + hessian.T) / 2
    diagonal = jnp.abs(jnp.diag(hessian))
    scale = 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, jnp.maximum(diagonal.max(), 1.0) * _LEAST_EIGENVALUE))
    values, vectors = jnp.linalg.eigh(scale[:, None] * hessian * scale)
    values = jnp.abs(values)
    return scale[:, None] * (vectors / jnp.sqrt(jnp.maximum(values, _LEAST_EIGENVALUE * values.max()))) @ vectors.T


def _at(network: Network, points: Any, own_shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Log-densities `(points, chains)` and gradients at `(points, chains, d)`: two sums a point, one for the grid."""
    private = network.vary(jnp.zeros((points.shape[1], *own_shape)))
    nothing = lambda own_gradient: own_gradient[:, :0]  # noqa: E731

    def all_chains(shared: Any) -> tuple[Any, Any]:
        grid, _ = network.measure(shared, private)
        found = jax.vmap(lambda w, z: network.evaluate(grid, w, z, nothing))(shared, private)
        return found.log_density, found.gradient

    return jax.lax.map(all_chains, points)


def num_adopted(num_chains: int, size: int) -> int:
    """How many numbers are adopted at a time."""
    return num_chains * (3 * size + 1)


def _adopted(network: Network, agents: int, found: Descent) -> Descent:
    """With what decides on the next sums as the root agent has it."""
    chains, size = found.point.shape
    flat = jnp.concatenate([found.point, found.deviations, found.step, found.going[:, None]], 1).reshape(-1)
    same = network.adopt(jnp.broadcast_to(network.vary(flat), (agents, len(flat)))).reshape(chains, -1)
    point, deviations, step, going = jnp.split(same, (size, 2 * size, 3 * size), 1)
    return found._replace(point=point, deviations=deviations, step=step, going=going[:, 0])
