"""The posterior predictive of a classifier, streamed over draws.

For inputs `x` and draws `w_1 … w_S` of an agent, with class probabilities `p_s = softmax(logits(w_s, x))`:

    prediction     p̄ = (1/S) Σ_s p_s
    spread         the standard deviation of p_s over draws, for the predicted class
    uncertainty    H(p̄) = (1/S) Σ_s H(p_s)  +  mutual information
                   total   aleatoric            epistemic

Only sums over draws are kept, so memory is that of the inputs times the classes, however many draws there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import InputError, NonFiniteError


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
        return np.maximum(self.entropy - self.aleatoric, 0.0)


class Predictor:
    """Takes in draws a few at a time and predicts from all of them.

    Args:
        logits: `(parameters, inputs) -> (inputs, classes)`, for one draw; `parameters` as the draws are given.
        inputs: `(count, …)` what to predict.
        batch: how many inputs to look at at once.

    >>> inputs = np.linspace(-1, 1, 5)[:, None]
    >>> predictor = Predictor(lambda w, x: jnp.concatenate([jnp.zeros_like(x), w * x], -1), inputs)
    >>> predictor.add(np.array([3.0, 4.0]))
    >>> predictor.result().labels.tolist()
    [0, 0, 0, 1, 1]
    """

    def __init__(self, logits: Callable[[Any, Any], jax.Array], inputs: Any, batch: int = 2048) -> None:
        self.num_draws = 0
        self._logits = logits
        count = len(inputs)
        self._parts = [jnp.asarray(inputs[start : start + batch]) for start in range(0, count, batch)]
        self._sums: list[Any] = [None] * len(self._parts)

    def add(self, draws: Any) -> None:
        """Take in some draws: a pytree of arrays `(draws, …)`."""
        draws = jax.tree.map(jnp.asarray, draws)
        for place, inputs in enumerate(self._parts):
            new = self._program(draws, inputs)
            old = self._sums[place]
            self._sums[place] = new if old is None else jax.tree.map(jnp.add, old, new)
        self.num_draws += len(jax.tree.leaves(draws)[0])

    def add_all(self, draws: Iterable[Any]) -> None:
        """Take in draws from an iterable of such pytrees."""
        for some in draws:
            self.add(some)

    def result(self) -> ClassPredictions:
        """The predictions from all draws so far."""
        if not self.num_draws:
            raise InputError("no draws to predict from: add some first")
        first, second, entropy, bad = (np.concatenate([np.asarray(s[i]) for s in self._sums]) for i in range(4))
        if bad.any():
            place = int(np.flatnonzero(bad)[0])
            raise NonFiniteError(f"the model's prediction for input {place} is not finite: check it for overflow")
        mean = first / self.num_draws
        variance = np.maximum(second / self.num_draws - mean**2, 0.0)
        return ClassPredictions(mean, np.sqrt(variance), entropy / self.num_draws, self.num_draws)

    @cached_property
    def _program(self) -> Any:
        def one(sums: Any, draw: Any, inputs: jax.Array) -> Any:
            values = self._logits(draw, inputs).astype(jnp.float32)
            logs = jax.nn.log_softmax(values)
            p = jnp.exp(logs)  # compiled in a way that may lose a NaN, so it is looked for before
            terms = (p, p**2, -(p * logs).sum(-1), ~jnp.isfinite(values).all(-1))
            return jax.tree.map(jnp.add, sums, terms)

        def some(draws: Any, inputs: jax.Array) -> Any:
            example = jax.tree.map(lambda leaf: leaf[0], draws)
            shape = jax.eval_shape(self._logits, example, inputs).shape
            zero = (jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape[:1]), jnp.zeros(shape[:1]))
            return jax.lax.scan(lambda sums, draw: (one(sums, draw, inputs), None), zero, draws)[0]

        return jax.jit(some)
