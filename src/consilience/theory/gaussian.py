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
from consilience.kernel.parameters import Parameters
from consilience.problems import Problem, cast_floats
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
        if not is_quadratic(potentials):
            raise ProblemError(
                "the log-posterior is not quadratic in the parameters, so there is no exact Gaussian recursion for "
                "this problem: use it with linear-Gaussian models"
            )
        here = np.zeros(potentials.size)
        hessians = potentials.hessians(here)
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
        hessian = self.hessian
        mean, covariance = start
        for k in range(num_steps):
            drift, pull = n * float(sampler.step_size(k)), float(sampler.consensus(k))
            transition = np.eye(n * d) - pull * laplacian - drift * hessian
            noise = 2 * sampler.temperature * drift * np.eye(n * d)
            if batch_size is not None:
                noise += drift**2 * self.batch_covariance(mean, covariance, batch_size)
            mean = transition @ mean + drift * self.linear.ravel()
            covariance = transition @ covariance @ transition.T + noise
            yield Moments(mean, covariance)

    def stationary(self, sampler: Any, k: int) -> Moments:
        """The law that the network would settle in if the step sizes of step `k` were used for ever.

        With falling step sizes the network follows this law closely once it has forgotten its start.
        """
        n, d = self.linear.shape
        drift, pull = n * float(sampler.step_size(k)), float(sampler.consensus(k))
        generator = pull * np.kron(self.graph.laplacian.toarray(), np.eye(d)) + drift * self.hessian
        rates, patterns = np.linalg.eigh(generator)
        if rates[0] <= 0 or rates[-1] >= 2:
            raise UnstableError(f"there is no stationary law for the step sizes of step {k}: take smaller ones")
        # a pattern is an autoregression with factor 1 − rate and noise of variance 2 α n T
        variances = 2 * sampler.temperature * drift / (rates * (2 - rates))
        covariance = (patterns * variances) @ patterns.T
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

    @property
    def hessian(self) -> np.ndarray:
        """`(n d, n d)`: `H`, the precisions as one block-diagonal matrix."""
        from scipy.linalg import block_diag

        return block_diag(*self.precisions)

    def batch_covariance(
        self, mean: np.ndarray, covariance: np.ndarray, batch_size: int, anchor: np.ndarray | None = None
    ) -> np.ndarray:
        """What minibatches of rows drawn with replacement add to the gradients, for positions of the given law.

        With control variates, anchored at `(n, d)` positions, a row's gradient counts less that at the anchor,
        `H_b (w − a)`: nothing is left where all rows have the same Hessian.
        """
        n, d = self.linear.shape
        noise = np.zeros((n * d, n * d))
        for i, (hessians, linears) in enumerate(self.row_gradients):
            place = slice(i * d, (i + 1) * d)
            here, spread = mean[place], covariance[place, place]
            centred = hessians - hessians.mean(0)
            fixed = linears - linears.mean(0) if anchor is None else centred @ anchor[i]
            at_mean = centred @ here - fixed
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


def is_quadratic(potentials: Potentials) -> bool:
    """Whether all potentials are quadratic: near the origin, where agents start, and a thousand times as far out."""
    origin, rng = np.zeros(potentials.size), np.random.default_rng(0)
    flat = potentials.gradients(origin)
    reach = 1 + np.abs(potentials.some_starts).max()
    for scale in (0.1, 1.0, 30.0, 1000.0):
        point = scale * reach * rng.normal(size=potentials.size)
        expected, found = flat + potentials.hessian_times(origin, point), potentials.gradients(point)
        tolerance = 1e-7 * (np.abs(expected) + np.abs(flat)).max()
        if not np.allclose(found, expected, rtol=1e-6, atol=tolerance):
            return False
    return True
