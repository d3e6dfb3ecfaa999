"""The exact law of D-ULA when every local posterior is Gaussian.

With `U_i(w) = ½ wᵀ H_i w − h_iᵀ w + const` a step is linear. For the stacked vector `w` of all `n` agents,
`H = diag(H_1, …, H_n)` and `h = (h_1, …, h_n)`,

    w ← A_k w + α_k n h + sqrt(2 α_k n T) z,     A_k = I − β_k (L ⊗ I) − α_k n H,     z ~ N(0, I),

so mean and covariance follow `m ← A m + α n h` and `Σ ← A Σ Aᵀ + 2 α n T I`. Minibatches of rows drawn with
replacement add `(α n)²` times the covariance of each agent's gradient estimate, which depends on where the agent
is, itself known from `m` and `Σ`. No sampling is involved: this is the truth that samplers are tested against.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ProblemError, UnstableError
from consilience.graphs import Graph
from consilience.problems import Parameters, Problem, cast_floats
from consilience.theory.potentials import Potentials


class Moments(NamedTuple):
    """Mean and covariance of all agents' parameters, stacked agent by agent."""

    mean: np.ndarray
    covariance: np.ndarray


@dataclass(frozen=True)
class GaussianNetwork:
    """A network of agents with Gaussian local posteriors.

    Attributes:
        graph: who talks to whom.
        precisions: `(n, d, d)`, the `H_i`.
        linear: `(n, d)`, the `h_i`.
        row_gradients: for each agent its rows' own `(H_b, h_b)` of the likelihood, if asked for.
    """

    graph: Graph
    precisions: np.ndarray
    linear: np.ndarray
    row_gradients: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    @classmethod
    def of(cls, problem: Problem, graph: Graph, with_rows: bool = False) -> GaussianNetwork:
        """The network of a problem whose log-posterior is quadratic; an error if it is not.

        Args:
            problem: what the agents infer.
            graph: who talks to whom.
            with_rows: find each row's own quadratic too, which the noise of minibatches needs.
        """
        return cls.from_potentials(Potentials(problem), graph, with_rows)

    @classmethod
    def from_potentials(cls, potentials: Potentials, graph: Graph, with_rows: bool = False) -> GaussianNetwork:
        """The network of quadratic potentials; an error if they are not."""
        here, there = np.zeros(potentials.size), np.linspace(-1.0, 2.0, potentials.size + 1)[1:]
        hessians, probe = potentials.hessians(here), np.cos(np.arange(1.0, potentials.size + 1))
        _require_constant(hessians @ probe, potentials.hessian_times(there, probe))
        with jax.enable_x64(True):
            shards = potentials.problem.shards if with_rows else ()
            rows = tuple(_row_quadratics(potentials.problem, potentials.parameters, shard) for shard in shards)
        return cls(graph, hessians, -potentials.gradients(here), rows)

    @classmethod
    def around(cls, potentials: Potentials, graph: Graph, point: np.ndarray) -> GaussianNetwork:
        """The network in which every agent's potential is replaced by its second-order expansion at a point.

        It stands in for a problem that is not Gaussian where the posterior is close to normal.
        """
        hessians = potentials.hessians(point)
        return cls(graph, hessians, hessians @ point - potentials.gradients(point))

    @property
    def posterior(self) -> Moments:
        """Mean and covariance of the posterior given everybody's data."""
        covariance = np.linalg.inv(self.precisions.sum(0))
        return Moments(covariance @ self.linear.sum(0), covariance)

    def evolve(
        self, sampler: Any, start: Moments, num_steps: int, batch_size: int | None = None
    ) -> Iterator[Moments]:
        """The moments after 1, 2, …, `num_steps` steps of D-ULA from the given ones.

        Args:
            sampler: a `DULA`, for its schedules and temperature.
            start: the moments of the initial positions.
            num_steps: how many steps.
            batch_size: rows in a minibatch drawn with replacement; `None` is the full shard.
        """
        if batch_size is not None and not self.row_gradients:
            raise ProblemError("the noise of minibatches needs each row: make the network with with_rows=True")
        n, d = self.linear.shape
        laplacian = np.kron(self.graph.laplacian.toarray(), np.eye(d))
        hessian = self._hessian()
        mean, covariance = start
        for k in range(num_steps):
            drift, pull = n * float(sampler.step_size(k)), float(sampler.consensus(k))
            transition = np.eye(n * d) - pull * laplacian - drift * hessian
            noise = 2 * sampler.temperature * drift * np.eye(n * d)
            if batch_size is not None:
                noise += drift**2 * self._batch_covariance(mean, covariance, batch_size)
            mean = transition @ mean + drift * self.linear.ravel()
            covariance = transition @ covariance @ transition.T + noise
            yield Moments(mean, covariance)

    def stationary(self, sampler: Any, k: int) -> Moments:
        """The law that the network would settle in if the step sizes of step `k` went on for ever.

        With falling step sizes the network follows this law closely once it has forgotten its start.
        """
        from scipy.linalg import solve_discrete_lyapunov

        n, d = self.linear.shape
        drift, pull = n * float(sampler.step_size(k)), float(sampler.consensus(k))
        generator = pull * np.kron(self.graph.laplacian.toarray(), np.eye(d)) + drift * self._hessian()
        transition = np.eye(n * d) - generator
        if np.abs(np.linalg.eigvalsh(transition)).max() >= 1:
            raise UnstableError(
                f"the network has no stationary law for the step sizes of step {k}: take smaller ones"
            )
        covariance = solve_discrete_lyapunov(transition, 2 * sampler.temperature * drift * np.eye(n * d))
        return Moments(np.linalg.solve(generator, drift * self.linear.ravel()), covariance)

    def average(self, moments: Moments) -> Moments:
        """Mean and covariance of `w̄`, the average over agents."""
        n, d = self.linear.shape
        averaging = np.kron(np.ones((1, n)) / n, np.eye(d))
        return Moments(averaging @ moments.mean, averaging @ moments.covariance @ averaging.T)

    def consensus_error(self, moments: Moments) -> float:
        """`E Σ_i ‖w_i − w̄‖²`."""
        n, d = self.linear.shape
        centring = np.kron(np.eye(n) - np.ones((n, n)) / n, np.eye(d))
        second = moments.covariance + np.outer(moments.mean, moments.mean)
        return float(np.trace(centring @ second))

    def _hessian(self) -> np.ndarray:
        from scipy.linalg import block_diag

        return block_diag(*self.precisions)

    def _batch_covariance(self, mean: np.ndarray, covariance: np.ndarray, batch_size: int) -> np.ndarray:
        n, d = self.linear.shape
        noise = np.zeros((n * d, n * d))
        for i, (hessians, linears) in enumerate(self.row_gradients):
            place = slice(i * d, (i + 1) * d)
            here, spread = mean[place], covariance[place, place]
            centred = hessians - hessians.mean(0)
            at_mean = centred @ here - (linears - linears.mean(0))
            second = np.einsum("bi,bj->ij", at_mean, at_mean)
            second += np.einsum("bij,jk,blk->il", centred, spread, centred)
            noise[place, place] = len(linears) / batch_size * second
        return noise


def _row_quadratics(problem: Problem, parameters: Parameters, shard: Any) -> tuple[np.ndarray, np.ndarray]:
    def one_row(row: Any) -> tuple[jax.Array, jax.Array]:
        single = jax.tree.map(lambda leaf: leaf[None], row)

        def log_density(w: jax.Array) -> jax.Array:
            return problem.log_likelihood(parameters.unravel(w), single)[0]

        origin = jnp.zeros(parameters.size)
        return -jax.hessian(log_density)(origin), jax.grad(log_density)(origin)

    hessians, gradients = jax.vmap(one_row)(cast_floats(shard, jnp.float64))
    return np.asarray(hessians), np.asarray(gradients)


def _require_constant(product: np.ndarray, elsewhere: np.ndarray) -> None:
    if not np.allclose(product, elsewhere, rtol=1e-6, atol=1e-9 * (1 + np.abs(product).max())):
        raise ProblemError(
            "the log-posterior is not quadratic in the parameters, so there is no exact Gaussian recursion for this "
            "problem: use it with linear-Gaussian models"
        )
