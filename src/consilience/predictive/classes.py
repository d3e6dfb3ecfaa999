"""The posterior predictive of a classifier, streamed over draws.

For inputs `x` and draws `w_1 … w_S` of an agent, with class probabilities `p_s = softmax(logits(w_s, x))`:

    prediction     p̄ = (1/S) Σ_s p_s
    spread         the standard deviation of p_s over draws, for the predicted class
    uncertainty    H(p̄) = (1/S) Σ_s H(p_s)  +  mutual information
                   total   aleatoric            epistemic

Only sums over draws are kept, so memory is that of the inputs times the classes, however many draws there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import DivergedError, InputError

Logits = Callable[[Any, Any], Any]
_PIECE = 32  # inputs looked at together: a convolution's patches of more would not stay in cache
_PART = 2048  # inputs that one thread takes


class ClassPredictions(NamedTuple):
    """What some draws say about some inputs."""

    probabilities: np.ndarray
    """`(inputs, classes)`: class probabilities averaged over draws."""
    deviations: np.ndarray
    """`(inputs, classes)`: their standard deviation over draws."""
    aleatoric: np.ndarray
    """`(inputs,)`: the mean entropy of single draws, in nats."""
    num_draws: int

    @property
    def labels(self) -> np.ndarray:
        """`(inputs,)` the predicted classes."""
        return self.probabilities.argmax(-1)

    @property
    def confidence(self) -> np.ndarray:
        """`(inputs,)` the probability of the predicted class."""
        return self.probabilities.max(-1)

    @property
    def confidence_deviation(self) -> np.ndarray:
        """`(inputs,)` its standard deviation over draws."""
        return np.take_along_axis(self.deviations, self.labels[:, None], 1)[:, 0]

    @property
    def entropy(self) -> np.ndarray:
        """`(inputs,)` the entropy of the averaged probabilities, in nats: all of the uncertainty."""
        return -np.sum(self.probabilities * np.log(np.maximum(self.probabilities, 1e-30)), -1)

    @property
    def epistemic(self) -> np.ndarray:
        """`(inputs,)` the mutual information between class and draw: what more data could remove."""
        if self.num_draws == 1:  # what is left would be rounding
            return np.zeros(len(self.aleatoric))
        return np.maximum(self.entropy - self.aleatoric, 0.0)


def pooled(found: Sequence[ClassPredictions]) -> ClassPredictions:
    """What the draws of several sets say together, as if they were one.

    >>> one, other = (ClassPredictions(np.array([[p, 1 - p]]), np.zeros((1, 2)), np.zeros(1), 5) for p in (0.2, 0.6))
    >>> both = pooled([one, other])
    >>> both.probabilities.round(3).tolist(), both.deviations.round(3).tolist(), both.num_draws
    ([[0.4, 0.6]], [[0.2, 0.2]], 10)
    """
    draws = sum(one.num_draws for one in found)
    mean, square, entropy = (
        sum(one.num_draws / draws * term for one, term in zip(found, terms, strict=True))
        for terms in (
            [one.probabilities for one in found],
            [one.deviations**2 + one.probabilities**2 for one in found],
            [one.aleatoric for one in found],
        )
    )
    return ClassPredictions(mean, np.sqrt(np.maximum(square - mean**2, 0.0)), entropy, draws)


class Predictor:
    """Takes in draws a few at a time and predicts from all of them.

    Args:
        logits: `(parameters, inputs) -> (inputs, classes)`, for one draw; `parameters` as the draws are given.
        inputs: `(count, …)` what to predict.

    >>> inputs = np.linspace(-1, 1, 5)[:, None]
    >>> predictor = Predictor(lambda w, x: jnp.concatenate([jnp.zeros_like(x), w * x], -1), inputs)
    >>> predictor.add(np.array([3.0, 4.0]))
    >>> predictor.result().labels.tolist()
    [0, 0, 0, 1, 1]
    """

    def __init__(self, logits: Logits, inputs: Any) -> None:
        self.num_draws = 0
        self._count = len(inputs)
        self._program = _program(logits)
        self._parts = [inputs[start : start + _PART] for start in range(0, self._count, _PART)]
        self._sums: list[Any] = [None] * len(self._parts)

    def add(self, draws: Any) -> None:
        """Take in some draws: a pytree of arrays `(draws, …)`."""
        draws = jax.tree.map(jnp.asarray, draws)

        double = any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(draws))

        def look(part: Any) -> Any:
            with jax.enable_x64(double):  # threads do not know what this one was told
                return jax.tree.map(np.asarray, self._program(draws, _in_pieces(part)))

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for place, new in enumerate(threads.map(look, self._parts)):
                old = self._sums[place]
                self._sums[place] = new if old is None else jax.tree.map(np.add, old, new)
        self.num_draws += len(jax.tree.leaves(draws)[0])

    def add_all(self, draws: Iterable[Any]) -> None:
        """Take in draws from an iterable of such pytrees."""
        for some in draws:
            self.add(some)

    def result(self) -> ClassPredictions:
        """The predictions from all draws so far."""
        if not self.num_draws:
            raise InputError("no draws to predict from: add some first")
        first, second, entropy, bad = (self._whole(term) for term in range(4))
        if bad.any():
            place = int(np.flatnonzero(bad)[0])
            raise DivergedError(f"the model's prediction for input {place} is not finite: check it for overflow")
        mean = first / self.num_draws
        variance = np.maximum(second / self.num_draws - mean**2, 0.0)
        return ClassPredictions(mean, np.sqrt(variance), entropy / self.num_draws, self.num_draws)

    def _whole(self, term: int) -> np.ndarray:
        """One of the sums over draws, for all inputs; what fills up the last pieces is left out."""
        parts = []
        for part, sums in zip(self._parts, self._sums, strict=True):
            parts.append(sums[term].reshape(-1, *sums[term].shape[2:])[: len(part)])
        return np.concatenate(parts)


def _in_pieces(inputs: Any) -> np.ndarray:
    """`(pieces, a few, …)`; the last piece is filled up with inputs from the start."""
    pieces = -(-len(inputs) // _PIECE)
    return np.resize(inputs, (pieces * _PIECE, *inputs.shape[1:])).reshape(pieces, _PIECE, *inputs.shape[1:])


@lru_cache(maxsize=16)
def _program(logits: Logits) -> Any:
    """From draws and pieces of inputs to sums over draws; a piece at a time, so that what it needs stays in cache."""

    def one(sums: Any, draw: Any, inputs: jax.Array) -> Any:
        values = logits(draw, inputs).astype(jnp.float32)
        logs = jax.nn.log_softmax(values)
        p = jnp.exp(logs)  # compiled in a way that may lose a NaN, so it is looked for before
        terms = (p, p**2, -(p * logs).sum(-1), ~jnp.isfinite(values).all(-1))
        return jax.tree.map(jnp.add, sums, terms)

    def piece(draws: Any, inputs: jax.Array) -> Any:
        example = jax.tree.map(lambda leaf: leaf[0], draws)
        shape = jax.eval_shape(logits, example, inputs).shape
        zero = (jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape[:1]), jnp.zeros(shape[:1]))
        return jax.lax.scan(lambda sums, draw: (one(sums, draw, inputs), None), zero, draws)[0]

    return jax.jit(lambda draws, pieces: jax.lax.map(lambda inputs: piece(draws, inputs), pieces))
