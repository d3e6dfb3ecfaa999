import numpy as np
import pytest

from consilience.errors import ScheduleError
from consilience.schedules import Constant, FromTo, Polynomial, broken_conditions


def test_from_to_is_the_papers_polynomial():
    alpha = FromTo(start=0.01, end=0.0001, num_steps=1_000_000, exponent=0.55)
    same = Polynomial(scale=0.01 * alpha.offset**0.55, offset=alpha.offset, exponent=0.55)
    steps = np.array([0, 1, 1000, 1_000_000])
    np.testing.assert_allclose(alpha(steps), same(steps), rtol=1e-12)
    assert alpha(0) == pytest.approx(0.01)
    assert alpha(1_000_000) == pytest.approx(0.0001)


def test_schedules_fall_and_stay_positive():
    steps = np.arange(10_000)
    for schedule in (Constant(value=0.3), Polynomial(scale=1, offset=230, exponent=0.55)):
        values = schedule(steps)
        assert (values > 0).all()
        assert (np.diff(values) <= 0).all()


@pytest.mark.parametrize(
    ("step_size", "consensus", "count"),
    [(0.7, 0.1, 0), (0.55, 0.05, 1), (0.4, 0.0, 1), (1.0, 0.0, 1), (1.2, 0.9, 2)],
)
def test_conditions_on_the_exponents(step_size, consensus, count):
    broken = broken_conditions(Polynomial(scale=1, exponent=step_size), Polynomial(scale=1, exponent=consensus))
    assert len(broken) == count


def test_bad_schedules_are_refused():
    with pytest.raises(ScheduleError, match="does not fall"):
        FromTo(start=0.1, end=0.2, num_steps=10, exponent=0.5)
    with pytest.raises(ScheduleError, match="raise `exponent` or `end`"):
        FromTo(start=0.01, end=0.0001, num_steps=1000, exponent=0.01)
    with pytest.raises(ScheduleError):
        Constant(value=-1)
    with pytest.raises(ScheduleError):
        Polynomial(scale=float("inf"), exponent=0.5)
