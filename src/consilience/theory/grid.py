"""The posterior of a problem with two parameters, computed on a grid: densities, exact draws, moments.

The density is evaluated at the centres of equal cells; a draw picks a cell by its probability and then a point
in it at random. With some hundred cells a side the error is far below that of any Markov chain.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ProblemError
from consilience.kernel.parameters import Parameters
from consilience.problems import Problem, cast_floats
from consilience.theory.potentials import require_all_shared


@dataclass(frozen=True)
class GridPosterior:
    """A density on a rectangular grid.

    Attributes:
        names: what the two parameters are called.
        first: `(rows,)` cell centres of the first parameter.
        second: `(columns,)` cell centres of the second parameter.
        density: `(rows, columns)`, integrates to 1.
    """

    names: tuple[str, str]
    first: np.ndarray
    second: np.ndarray
    density: np.ndarray

    @classmethod
    def of(
        cls, problem: Problem, first: tuple[float, float], second: tuple[float, float], cells: int = 400
    ) -> GridPosterior:
        """The posterior of a problem with two scalar parameters over the given ranges.

        The ranges must hold practically all of the probability: it is an error if more than a millionth of it
        lies in the outermost cells.
        """
        require_all_shared(problem)
        with jax.enable_x64(True):
            parameters = Parameters.of(problem, jnp.float64)
            if parameters.size != 2:
                raise ProblemError(f"a grid posterior needs exactly 2 parameters, this problem has {parameters.size}")
            x, y = _centres(*first, cells), _centres(*second, cells)
            every_row = cast_floats(
                jax.tree.map(lambda *leaves: np.concatenate(leaves), *problem.shards), jnp.float64
            )

            def log_posterior(w: jax.Array) -> jax.Array:
                tree = parameters.unravel(w)
                return problem.log_likelihood(tree, every_row).sum() + problem.log_prior(tree)

            points = np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)
            values = np.asarray(jax.jit(lambda all_: jax.lax.map(log_posterior, all_, batch_size=4096))(points))
        density = np.exp(values - values.max()).reshape(cells, cells)
        density /= density.sum() * (x[1] - x[0]) * (y[1] - y[0])
        posterior = cls(_scalar_names(parameters), x, y, density)
        posterior._require_inside()
        return posterior

    @property
    def probabilities(self) -> np.ndarray:
        """`(rows, columns)` probability of each cell, summing to 1."""
        return self.density / self.density.sum()

    @property
    def mean(self) -> np.ndarray:
        """`(2,)` posterior mean."""
        p = self.probabilities
        return np.array([p.sum(1) @ self.first, p.sum(0) @ self.second])

    @property
    def covariance(self) -> np.ndarray:
        """`(2, 2)` posterior covariance."""
        p = self.probabilities
        x, y = self.first - self.mean[0], self.second - self.mean[1]
        cross = x @ p @ y
        return np.array([[p.sum(1) @ x**2, cross], [cross, p.sum(0) @ y**2]])

    def draw(self, num_draws: int, seed: int) -> np.ndarray:
        """`(num_draws, 2)` independent draws."""
        rng = np.random.default_rng(seed)
        cell = rng.choice(self.density.size, num_draws, p=self.probabilities.ravel())
        row, column = np.unravel_index(cell, self.density.shape)
        width = np.array([self.first[1] - self.first[0], self.second[1] - self.second[0]])
        return np.stack([self.first[row], self.second[column]], 1) + width * (rng.random((num_draws, 2)) - 0.5)

    def spectral_gap(self) -> float:
        """The spectral gap of the Langevin diffusion `dw = −∇U dt + √2 dB`, the rate at which it forgets its start.

        By finite volumes that keep the posterior invariant: between neighbouring cells with densities `p` and `q` at
        a distance `h` the diffusion jumps at the rates `(q/p)^½/h²` and `(p/q)^½/h²`. Cells that hold next to
        nothing are left out. The log-Sobolev constant `ρ_U` is never above the gap, and equal to it for a normal law.
        Modes so far apart that the gap drowns in rounding are an error.
        """
        import scipy.sparse
        from scipy.sparse.linalg import eigsh

        kept = self.density > 1e-30 * self.density.max()
        number = np.full(kept.shape, -1)
        number[kept] = np.arange(kept.sum())
        root = np.sqrt(self.density[kept])
        size = len(root)
        generator = scipy.sparse.csr_array((size, size))
        for axis, centres in ((0, self.first), (1, self.second)):
            ahead = np.roll(number, -1, axis)
            pairs = (number >= 0) & (ahead >= 0)
            pairs[(-1, slice(None)) if axis == 0 else (slice(None), -1)] = False
            i, j = number[pairs], ahead[pairs]
            rate = np.full(len(i), 1 / (centres[1] - centres[0]) ** 2)
            rows, columns = np.concatenate([i, j, i, j]), np.concatenate([j, i, i, j])
            values = np.concatenate([-rate, -rate, rate * root[j] / root[i], rate * root[i] / root[j]])
            generator = generator + scipy.sparse.csr_array((values, (rows, columns)), shape=(size, size))
        start = np.random.default_rng(0).normal(size=size)
        pair = np.sort(eigsh(generator.tocsc(), k=2, sigma=-1e-6, return_eigenvectors=False, v0=start))
        rounding = 1e-13 * generator.diagonal().max()
        if pair[1] < 100 * max(rounding, abs(pair[0])):
            raise ProblemError(
                "the posterior's modes are so far apart that a chain practically never goes from one to the other "
                f"(spectral gap below {100 * max(rounding, abs(pair[0])):.1g}): start chains in every mode"
            )
        return float(pair[1])

    def _require_inside(self) -> None:
        p = self.probabilities
        border = p[0].sum() + p[-1].sum() + p[:, 0].sum() + p[:, -1].sum()
        if border > 1e-6:
            raise ProblemError(
                f"the grid cuts off the posterior (its border holds a probability of {border:.1e}): widen the ranges"
            )


def _centres(low: float, high: float, cells: int) -> np.ndarray:
    width = (high - low) / cells
    return low + width * (np.arange(cells) + 0.5)


def _scalar_names(parameters: Parameters) -> tuple[str, str]:
    if len(parameters.names) == 2:
        return parameters.names[0], parameters.names[1]
    return f"{parameters.names[0]}[0]", f"{parameters.names[0]}[1]"
