"""Sums by limbs: exact whatever the magnitudes, the same bits in any order."""

from fractions import Fraction

import numpy as np
import pytest

from consilience.kernel.limbs import LARGEST, WEIGHTS, from_limbs, to_limbs


def test_sums_are_those_of_exact_arithmetic_in_any_order():
    """Terms from 1e-18 to 1e18 that mostly cancel; a sum of floating-point numbers loses what is small."""
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(40, 300)) * 10.0 ** rng.integers(-18, 18, size=(40, 300))
    parts = np.concatenate([parts, -parts[:20], rng.normal(size=(1, 300)) * 1e-12])
    exact = np.array([float(sum(map(Fraction, column.tolist()))) for column in parts.T])
    words = [to_limbs(part) for part in parts]
    found = from_limbs(sum(words[1:], words[0]))
    resolution = len(parts) * 2.0 ** WEIGHTS[-1]
    np.testing.assert_allclose(found, exact, rtol=3e-16, atol=resolution)
    np.testing.assert_array_equal(found, from_limbs(sum(words[-2::-1], words[-1])))
    assert not np.allclose(parts.sum(0), exact, rtol=1e-12, atol=resolution)  # the control


def test_numbers_that_do_not_fit_are_no_numbers():
    with pytest.raises(AssertionError):
        to_limbs(np.array([LARGEST]))
