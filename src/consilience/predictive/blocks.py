"""Rows a block at a time: blocks of one size, so that one compiled program does for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np


class Block(NamedTuple):
    """Some rows, filled up with others to the size of a block."""

    number: int
    start: int
    num_rows: int
    """How many of them count."""
    rows: Any


def blocks(rows: Any, size: int) -> Iterator[Block]:
    """Rows in blocks of a size; the last is filled up with rows from the start.

    >>> [(block.num_rows, block.rows.tolist()) for block in blocks(np.arange(5), 3)]
    [(3, [0, 1, 2]), (2, [3, 4, 0])]
    """
    count = len(jax.tree.leaves(rows)[0])
    for number, start in enumerate(range(0, count, size)):
        places = np.arange(start, start + size) % count
        some = jax.tree.map(lambda leaf, places=places: np.asarray(leaf)[places], rows)
        yield Block(number, start, min(size, count - start), some)


def some_rows(rows: Any, most: int) -> Any:
    """At most so many of the rows, evenly chosen."""
    count = len(jax.tree.leaves(rows)[0])
    if count <= most:
        return rows
    places = np.linspace(0, count - 1, most).round().astype(int)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[places], rows)
