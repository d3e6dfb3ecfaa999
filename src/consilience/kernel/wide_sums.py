"""Exact sums of numbers of any usual magnitude, as words that are added modulo 2^64 one by one.

A number is the integer nearest to `x · 2^128`, in two's complement, cut into limbs of 32 bits, each in a word of its
own. Limbs of up to `2^31` agents are added without a carry being lost; carries are settled when the sum is read.
Samplers use a grid of their own (`fixed_point.py`), with a single word for a number; this one needs no exponent to be
agreed on first.
"""

from __future__ import annotations

import numpy as np

from consilience.errors import DataError

LIMBS = 12
"""Words for a number."""
_BITS, _FRACTION, _LARGEST = 32, 128, 2.0**200
_WHOLE = 1 << (_BITS * LIMBS)


def to_limbs(values: np.ndarray) -> np.ndarray:
    """The words `(LIMBS · size,)` of some numbers.

    >>> parts = [[1e17, -3.5], [0.25, 1e-20], [-1e17, 3.5]]
    >>> total = sum(to_limbs(np.array(part)) for part in parts)
    >>> from_limbs(total).tolist()
    [0.25, 1e-20]
    """
    words = np.zeros((len(values), LIMBS), np.uint64)
    for place, value in enumerate(np.asarray(values, float).tolist()):
        if not abs(value) < _LARGEST:
            raise DataError(
                f"a sum of {value:g} is too large to be sent: give the column's centre and scale yourself"
            )
        numerator, denominator = value.as_integer_ratio()
        whole = ((numerator << _FRACTION) + denominator // 2) // denominator % _WHOLE
        words[place] = [(whole >> (_BITS * limb)) & (2**_BITS - 1) for limb in range(LIMBS)]
    return words.reshape(-1)


def from_limbs(words: np.ndarray) -> np.ndarray:
    """The numbers `(size,)` of words, or of sums of them, each rounded once."""
    found = []
    for limbs in np.asarray(words, np.uint64).reshape(-1, LIMBS).tolist():
        whole = sum(limb << (_BITS * place) for place, limb in enumerate(limbs)) % _WHOLE
        whole -= _WHOLE if whole >= _WHOLE // 2 else 0
        found.append(whole / (1 << _FRACTION))  # Python rounds the quotient of two integers once
    return np.array(found, float)
