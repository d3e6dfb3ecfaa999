"""Exact sums of numbers of very different magnitudes, as words that are added modulo 2^64 one by one.

A number is cut into limbs of 36 bits, each a signed integer in a word of its own,

    x = Σ_j q_j 2^(w_j),    w = 36, 0, −36, −72, −108,

cut off below `2^−108`. Limbs of different agents are added without carries; the sum has the same bits whatever the
graph, the algorithm and the masks. Samplers in unison use one word for a number and agree on an exponent first
(`fixed_point.py`); the few sums of a warm-up hold energies, curvatures and positions side by side, and need none.
"""

from __future__ import annotations

import numpy as np

WEIGHTS = (36, 0, -36, -72, -108)
"""Binary exponents of the limbs, the highest first."""
LARGEST = 2.0**80
"""Numbers must be below: then sums of up to `2^19` agents do not wrap round."""


def to_limbs(values: np.ndarray) -> np.ndarray:
    """The words `(limbs, size)` of some numbers.

    >>> parts = [[1e17, -3.5], [0.25, 1e-09], [-1e17, 3.5]]
    >>> from_limbs(sum(to_limbs(np.array(part)) for part in parts)).tolist()
    [0.25, 1e-09]
    """
    rest = np.array(values, np.float64).reshape(-1)
    assert (np.abs(rest) < LARGEST).all()
    words = np.zeros((len(WEIGHTS), rest.size), np.uint64)
    for place, weight in enumerate(WEIGHTS):
        whole = np.trunc(np.ldexp(rest, -weight))
        words[place] = whole.astype(np.int64).view(np.uint64)
        rest = rest - np.ldexp(whole, weight)  # exact: what is left has bits of the number itself
    return words


def from_limbs(words: np.ndarray) -> np.ndarray:
    """The numbers `(size,)` of words `(limbs, size)`, or of sums of them."""
    limbs = np.ascontiguousarray(words, np.uint64).view(np.int64).astype(np.float64)
    found = np.zeros(limbs.shape[1])
    for weight, limb in zip(WEIGHTS, limbs, strict=True):
        found = found + np.ldexp(limb, weight)
    return found
