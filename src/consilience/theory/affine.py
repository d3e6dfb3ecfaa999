"""The exact law of any sampler whose step is affine when every local posterior is Gaussian, by linearising it.

With Gaussian potentials a step of the whole network is `x⁺ = A x + b + B ξ + G ε`: `x` are the states of all agents,
`ξ` their noise, `ε` what minibatches add to their gradients. The matrices come from one call of the very step that
the engines make (`kernel/step.py`), differentiated by `jax.jacfwd`, so no sampler needs a recursion of its own. Then

    mean ← A mean + b,      covariance ← A covariance Aᵀ + B Bᵀ + G C Gᵀ,

where `C` is the covariance of the minibatches' gradients, itself known from the law of the positions. No sampling is
involved: this is the truth that samplers are tested against.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from consilience.errors import ConditionError, UnstableError
from consilience.kernel.mixing import make_disagreement
from consilience.kernel.step import coefficients_of, each, one_step
from consilience.samplers import Gossip
from consilience.theory.gaussian import GaussianNetwork, Moments

_CONSERVED = 1e-10  # what counts as no change


class AffineStep(NamedTuple):
    """`x⁺ = A x + b + B ξ + G ε`."""

    transition: np.ndarray
    push: np.ndarray
    noise: np.ndarray
    gradient: np.ndarray


class ExactLaw:
    """The law of all agents' states under a sampler, for Gaussian local posteriors.

    Args:
        network: the agents' posteriors and their graph.
        sampler: the algorithm; its step must be affine in states, noise and gradients.

    >>> from consilience import dula, graphs, models
    >>> problem = models.linear_regression([([[1.0]], [1.0]), ([[1.0]], [3.0])])
    >>> law = ExactLaw(GaussianNetwork.of(problem, graphs.ring(2)), dula(0.1, 0.3))
    >>> law.positions(law.after(1)).mean.round(6).tolist()
    [0.2, 0.6]

    Where agents settle if these numbers are used for ever: D-ULA's stay on their own sides of the posterior's mean,
    which is 4/3, a corrected sampler's do not.

    >>> from consilience import kinetic
    >>> by_kinetic = ExactLaw(law.network, kinetic(0.1, 1, whitening="none"))
    >>> [one.positions(one.stationary()).mean.round(3).tolist() for one in (law, by_kinetic)]
    [[1.111, 1.556], [1.333, 1.333]]
    """

    def __init__(self, network: GaussianNetwork, sampler: Gossip) -> None:
        self.network, self.sampler = network, sampler
        self.num_agents, self.size = network.linear.shape
        with jax.enable_x64(True):
            zero = jnp.zeros((1, self.num_agents, self.size))
            flat, self._unravel = ravel_pytree(each(sampler.init)(zero))
            self._jacobians = jax.jit(jax.jacfwd(self._step, (0, 1, 2)))
            self._value = jax.jit(self._step)
        self.num_states = flat.size

    def step(self, k: int) -> AffineStep:
        """The matrices of step `k`."""
        numbers = self.num_agents * self.size
        with jax.enable_x64(True):
            coefficients = coefficients_of(self.sampler, self.num_agents, jnp.float64, k)
            origin = (jnp.zeros(self.num_states), jnp.zeros(numbers), jnp.zeros(numbers))
            push = np.asarray(self._value(*origin, coefficients))
            transition, noise, gradient = (np.asarray(part) for part in self._jacobians(*origin, coefficients))
            found = AffineStep(transition, push, noise, gradient)
            self._require_affine(found, coefficients)
        if self.sampler.has_common_noise:  # one noise for all agents: what it does to each is added up
            noise = noise.reshape(-1, self.num_agents, self.size).sum(1)
        return found._replace(noise=noise)

    def after(
        self,
        num_steps: int,
        start: Moments | None = None,
        batch_size: int | None = None,
        anchor: np.ndarray | None = None,
    ) -> Moments:
        """The law of the states after so many steps; `start` is that of the positions, by default all at 0."""
        *_, law = self.evolve(num_steps, start, batch_size, anchor)
        return law

    def evolve(
        self,
        num_steps: int,
        start: Moments | None = None,
        batch_size: int | None = None,
        anchor: np.ndarray | None = None,
    ) -> Iterator[Moments]:
        """The law of the states after 1, 2, …, `num_steps` steps.

        Args:
            num_steps: how many steps.
            start: the law of the initial positions; by default all are at 0.
            batch_size: rows in a minibatch drawn with replacement; `None` is the full shard.
            anchor: `(n, d)` where minibatches have a control variate, if they have one.
        """
        mean, covariance = self.initial(start)
        for k in range(num_steps):
            found = self.step(k)
            noise = found.noise @ found.noise.T
            if batch_size is not None:
                here = self.positions(Moments(mean, covariance))
                of_batches = self.network.batch_covariance(*here, batch_size, anchor)
                noise += found.gradient @ of_batches @ found.gradient.T
            mean = found.transition @ mean + found.push
            covariance = found.transition @ covariance @ found.transition.T + noise
            yield Moments(mean, covariance)

    def stationary(self, k: int = 0) -> Moments:
        """The law of the states if the numbers of step `k` were used for ever."""
        from scipy.linalg import solve_discrete_lyapunov

        found = self.step(k)
        basis = self._reachable(found)
        transition, noise = basis.T @ found.transition @ basis, basis.T @ found.noise
        radius = np.abs(np.linalg.eigvals(transition)).max()
        if radius >= 1:
            raise UnstableError(
                f"there is no stationary law for the numbers of step {k}: the spectral radius is {radius:.4g}"
            )
        start = self.initial().mean
        start = start - basis @ (basis.T @ start)  # what no step changes
        push = basis.T @ (found.push + found.transition @ start)
        mean = start + basis @ np.linalg.solve(np.eye(len(transition)) - transition, push)
        return Moments(mean, basis @ solve_discrete_lyapunov(transition, noise @ noise.T) @ basis.T)

    def _reachable(self, found: AffineStep) -> np.ndarray:
        """An orthonormal basis of the states that steps can change: without what every step conserves.

        A corrected sampler conserves `Σ_i s_i`: left eigenvectors of the transition with eigenvalue 1.
        """
        _, sizes, found_left = np.linalg.svd((found.transition - np.eye(self.num_states)).T)
        conserved = found_left[sizes < _CONSERVED]
        moves = np.concatenate([found.noise, found.gradient, found.push[:, None]], 1)
        if len(conserved):  # only what neither noise nor gradients move
            turned, sizes, _ = np.linalg.svd(conserved @ moves)
            unmoved = np.append(sizes, np.zeros(len(conserved)))[: len(conserved)] < _CONSERVED * np.abs(moves).max()
            conserved = turned.T[unmoved] @ conserved
        return np.linalg.svd(conserved)[2][len(conserved) :].T if len(conserved) else np.eye(self.num_states)

    def initial(self, start: Moments | None = None) -> Moments:
        """The law of the states of agents that start at positions of some law."""
        numbers = self.num_agents * self.size
        mean, covariance = start or Moments(np.zeros(numbers), np.zeros((numbers, numbers)))
        offset, matrix = self._start_map
        return Moments(offset + matrix @ mean, matrix @ covariance @ matrix.T)

    def positions(self, states: Moments) -> Moments:
        """The law of the positions, agent by agent, from that of the states."""
        matrix = self._position_map
        return Moments(matrix @ states.mean, matrix @ states.covariance @ matrix.T)

    def _step(self, state: jax.Array, noise: jax.Array, error: jax.Array, coefficients: Any) -> jax.Array:
        shape = (1, self.num_agents, self.size)
        precisions, linear = jnp.asarray(self.network.precisions), jnp.asarray(self.network.linear)

        def gradients(positions: jax.Array) -> jax.Array:
            return jnp.einsum("iab,cib->cia", precisions, positions) - linear + error.reshape(shape)

        disagreement = jax.vmap(make_disagreement(self.network.graph, jnp.float64))
        new = one_step(
            self.sampler,
            self.network.graph,
            self._unravel(state),
            coefficients,
            noise.reshape(shape),
            gradients,
            disagreement,
        )
        return ravel_pytree(new)[0]

    def _require_affine(self, found: AffineStep, coefficients: Any) -> None:
        rng, numbers = np.random.default_rng(0), self.num_agents * self.size
        state, noise, error = rng.normal(size=self.num_states), *rng.normal(size=(2, numbers))
        expected = found.transition @ state + found.push + found.noise @ noise + found.gradient @ error
        if not np.allclose(self._value(state, noise, error, coefficients), expected, rtol=1e-8, atol=1e-8):
            raise ConditionError(f"a step of {self.sampler.kind} is not affine: it has no exact law of this kind")

    @cached_property
    def _position_map(self) -> np.ndarray:
        with jax.enable_x64(True):

            def positions(state: jax.Array) -> jax.Array:
                return each(self.sampler.position)(self._unravel(state)).ravel()

            return np.asarray(jax.jacfwd(positions)(jnp.zeros(self.num_states)))

    @cached_property
    def _start_map(self) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):

            def states(positions: jax.Array) -> jax.Array:
                shaped = positions.reshape(1, self.num_agents, self.size)
                return ravel_pytree(each(self.sampler.init)(shaped))[0]

            origin = jnp.zeros(self.num_agents * self.size)
            return np.asarray(states(origin)), np.asarray(jax.jacfwd(states)(origin))
