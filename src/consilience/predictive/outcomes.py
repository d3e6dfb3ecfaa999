"""What a model says about new rows: the expected outcome and its interval, and the interval of the outcome itself.

With draws `w_1 … w_S` and a row `x`:

    expected outcome    E[y | w_s, x]           its mean over draws, and its quantiles over draws
    outcome             y_s ~ p(y | w_s, x)     one drawn for each draw; its quantiles are the predictive interval

Rows are taken a block at a time and draws one after the other, so memory is bounded whatever the numbers of both. For
a site that nobody has seen, its private parameters are drawn anew for every draw, the same for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import DivergedError
from consilience.predictive.blocks import blocks
from consilience.predictive.classes import ClassPredictions, Predictor
from consilience.predictive.draws import over_draws
from consilience.problems import Outcomes, cast_floats

_BLOCK_BYTES = 2**24
_KEPT_BYTES = 2**28
_SITE, _OUTCOME = 1, 2
"""Purposes of random numbers."""


class Predicted(NamedTuple):
    """What draws say about an outcome of rows, each `(rows, …)`."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """The interval of the expected outcome."""
    outcome_low: np.ndarray | None
    outcome_high: np.ndarray | None
    """The interval of the outcome itself; there is none of one that is 0 or 1."""


class Numbered(NamedTuple):
    """Draws with their numbers, from which random numbers are derived."""

    numbers: np.ndarray
    parameters: Any


class Pieces:
    """Draws a piece at a time, as often as they are asked for; small ones are read once.

    Args:
        sources: each makes an iterator of pytrees of arrays `(draws, …)`.
        num_bytes: of all of them together.
        at_new_site: what a model says about private parameters; they are drawn anew for every draw.
        seed: of these.
    """

    def __init__(
        self,
        sources: Sequence[Callable[[], Iterator[Any]]],
        num_bytes: int = 0,
        at_new_site: Outcomes | None = None,
        seed: int = 0,
    ) -> None:
        self._sources = sources
        draw = at_new_site.draw_private if at_new_site is not None else None
        if draw is not None:
            key = jax.random.fold_in(jax.random.key(seed), _SITE)
            draw = over_draws(lambda one, private=draw: private(jax.random.fold_in(key, one.numbers), one.parameters))
        self._draw: Any = draw
        self._kept = list(self._read()) if num_bytes <= _KEPT_BYTES else None

    def __iter__(self) -> Iterator[Numbered]:
        return self._read() if self._kept is None else iter(self._kept)

    def _read(self) -> Iterator[Numbered]:
        first = 0
        for source in self._sources:
            for some in source():
                count = len(jax.tree.leaves(some)[0])
                piece = Numbered(np.arange(first, first + count), some)
                yield piece if self._draw is None else piece._replace(parameters=self._draw(piece))
                first += count


def predict(
    outcomes: Outcomes, pieces: Pieces, rows: Any, *, interval: float = 0.95, seed: int = 0
) -> dict[str, Predicted | ClassPredictions]:
    """Predictions of every outcome, by name.

    Args:
        outcomes: what the model says about rows.
        pieces: draws of its parameters.
        rows: what to predict: a pytree of arrays with one leading entry for each row.
        interval: how much of the probability intervals hold.
        seed: of the outcomes that are drawn.
    """
    dtype = jax.tree.leaves(next(iter(pieces)).parameters)[0].dtype
    rows = jax.tree.map(np.asarray, cast_floats(rows, dtype))
    found: dict[str, Predicted | ClassPredictions] = {
        name: _classes(outcomes, name, pieces, rows) for name, kind in outcomes.kinds.items() if kind == "class"
    }
    numbers = {name: kind for name, kind in outcomes.kinds.items() if kind != "class"}
    if numbers:
        found |= _numbers(outcomes, numbers, pieces, rows, interval, seed)
    return {name: found[name] for name in outcomes.kinds}


def _classes(outcomes: Outcomes, name: str, pieces: Pieces, rows: Any) -> ClassPredictions:
    """Class probabilities, by their logarithms: those of `Predictor` add up to one whatever is added to them."""
    leaves, structure = jax.tree.flatten(rows)
    places = np.arange(len(leaves[0]))

    def logits(parameters: Any, which: jax.Array) -> jax.Array:
        some = jax.tree.unflatten(structure, [jnp.asarray(leaf)[which] for leaf in leaves])
        return jnp.log(jnp.maximum(outcomes.expected(parameters, some)[name], 1e-30))

    predictor = Predictor(logits, places)
    predictor.add_all(piece.parameters for piece in pieces)
    return predictor.result()


def _numbers(
    outcomes: Outcomes, kinds: Mapping[str, str], pieces: Pieces, rows: Any, interval: float, seed: int
) -> dict[str, Predicted | ClassPredictions]:
    """Block by block of rows, all draws of one block at a time."""
    drawn = [name for name, kind in kinds.items() if kind != "binary"]
    program = both_of(outcomes, list(kinds), drawn, seed)
    size = _rows_at_once(outcomes, kinds, pieces, rows)
    parts: dict[str, list[Predicted]] = {name: [] for name in kinds}
    for block in blocks(rows, size):
        done = [jax.tree.map(np.asarray, program(piece, block.rows, block.number)) for piece in pieces]
        for name in kinds:
            expected = np.concatenate([one[0][name] for one in done])[:, : block.num_rows]
            made = np.concatenate([one[1][name] for one in done])[:, : block.num_rows] if name in drawn else None
            parts[name].append(_described(name, expected, made, interval, block.start))
    return {name: _together(some) for name, some in parts.items()}


def both_of(outcomes: Outcomes, kinds: Sequence[str], drawn: Sequence[str], seed: int) -> Callable[..., Any]:
    """A program of draws, rows and their block's number: what is expected, and what is drawn of some outcomes."""
    key = jax.random.fold_in(jax.random.key(seed), _OUTCOME)

    def both(one: Numbered, some: Any, block: Any) -> tuple[Any, Any]:
        own = jax.random.fold_in(jax.random.fold_in(key, one.numbers), block)
        expected = outcomes.expected(one.parameters, some)
        made = outcomes.simulate(own, one.parameters, some) if drawn else {}
        return {name: expected[name] for name in kinds}, {name: made[name] for name in drawn}

    return over_draws(both)


def _rows_at_once(outcomes: Outcomes, kinds: Mapping[str, str], pieces: Pieces, rows: Any) -> int:
    """So many rows that what all draws say about them fits in a bounded memory."""
    count = len(jax.tree.leaves(rows)[0])
    example = jax.tree.map(lambda leaf: leaf[0], next(iter(pieces)).parameters)
    shapes = jax.eval_shape(outcomes.expected, example, rows)
    width = sum(int(np.prod(shapes[name].shape[1:], dtype=int)) for name in kinds)
    draws = sum(len(piece.numbers) for piece in pieces)
    return min(count, max(1, _BLOCK_BYTES // (16 * draws * width)))


def _described(name: str, expected: np.ndarray, made: np.ndarray | None, interval: float, start: int) -> Predicted:
    """From values `(draws, rows, …)`."""
    bad = ~np.isfinite(expected).reshape(*expected.shape[:2], -1).all((0, 2))
    if bad.any():
        row = start + int(np.flatnonzero(bad)[0])
        raise DivergedError(
            f"the expected {name} of row {row} is not finite: is a value in it missing, or far outside the data?"
        )
    tails = ((1 - interval) / 2, (1 + interval) / 2)
    low, high = np.quantile(expected, tails, axis=0)
    outer = (None, None) if made is None else tuple(np.quantile(made, tails, axis=0))
    return Predicted(expected.mean(0, dtype=float), low, high, *outer)


def _together(parts: list[Predicted]) -> Predicted:
    columns: Any = zip(*parts, strict=True)
    whole: Any = [None if some[0] is None else np.concatenate(some) for some in columns]
    return Predicted(*whole)
