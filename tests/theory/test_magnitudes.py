import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.theory.magnitudes import Magnitude, largest, sum_from_above

NUMBERS = st.floats(1e-100, 1e100)


@given(NUMBERS, NUMBERS, st.floats(-3, 3))
def test_it_computes_like_floats_where_floats_can(x, y, power):
    a, b = Magnitude.of(x), Magnitude.of(y)
    for ours, theirs in (
        (a + b, x + y),
        (a * b, x * y),
        (a / b, x / y),
        (2 * a, 2 * x),
        (1 + b, 1 + y),
        (3 / a, 3 / x),
    ):
        assert float(ours) == pytest.approx(theirs, rel=1e-9)
    assert float(a**power) == pytest.approx(x**power, rel=1e-9)
    if not math.isclose(x, y, rel_tol=1e-12):  # nearer ones may have the same logarithm
        assert (a < b) == (x < y)
    assert float(largest(a, y)) == pytest.approx(max(x, y))


def test_it_goes_beyond_floats_and_says_so():
    huge = Magnitude.exp(1e6)
    assert np.isfinite((huge * huge + huge).log)
    assert str(huge).endswith("e+434294")
    assert huge.floats() == pytest.approx(1e300)
    with pytest.raises(OverflowError):
        float(huge)
    assert str(1 / huge) == "10^-434294"
    assert str(Magnitude.of(0.0)) == "0"


@pytest.mark.parametrize("wrong", [-1.0, np.array([1.0, -2.0])])
def test_negative_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="never negative"):
        Magnitude.of(wrong)


def test_division_by_zero_is_an_error_not_infinity():
    with pytest.raises(ZeroDivisionError):
        Magnitude.of(1.0) / 0.0


TERMS = {
    "falling power": (lambda x: -1.2 * x, 1.0),
    "falling, then rising": (lambda x: 1e-6 * np.exp(x) - 0.7 * x, 1.0),
    "rising, then falling": (
        lambda x: 3 * np.exp(0.2 * x) - 0.01 * np.exp(0.8 * x),
        (3 * 0.2 / (0.01 * 0.8)) ** (1 / 0.6),
    ),
}


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("last", [1, 7, 20_001, 1_000_000])
def test_sums_are_never_too_small_and_hardly_too_large(name, last):
    log_term, turn = TERMS[name]
    exact = np.logaddexp.reduce(log_term(np.log(np.arange(1, last + 1))))
    found = sum_from_above(log_term, last, turn).log
    assert exact - 1e-9 <= found <= exact + math.log(1.01)
