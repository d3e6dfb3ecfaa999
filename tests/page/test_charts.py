"""What is drawn, as options: every state can be told without its colour, and no name can be a program."""

import json

import pytest

from consilience.page import charts
from consilience.page.agents import Agent
from consilience.page.curves import Curve, Curves, density_of
from consilience.page.snapshot import Network
from consilience.studies.priors import Prior
from tests.page.runs import HOSTILE

NETWORK = Network("ring", [(0, 1), (1, 2), (0, 2)], [(0.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])


def colours(name):
    """The three channels of a colour, linear."""
    parts = [int(name[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(name):
    red, green, blue = colours(name)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_lines_stand_out_from_their_ground(dark):
    """At least 2.9 to 1; words at least 4.5 to 1 (WCAG)."""
    words, axis, ground = charts.ink(dark)
    assert min(contrast(line, ground) for line in (charts.DARK if dark else charts.LIGHT)) > 2.9
    assert min(contrast(words, ground), contrast(axis, ground)) > 4.5


def test_states_differ_by_sign_and_a_lost_agent_by_shape():
    signs = {state: (sign, shape) for state, (sign, shape, _) in charts.STATES.items()}
    assert (
        len({signs[one] for one in ("sampling", "waiting", "behind", "lost", "stopped", "done", "warming up")}) == 7
    )
    agents = [Agent(0, "sampling"), Agent(1, "lost", "does not answer"), Agent(2, "waiting", "for agent 1")]
    drawn = charts.graph(NETWORK, agents, dark=False)
    edges, nodes = (one["data"] for one in drawn["series"])
    assert [one["symbol"] for one in nodes] == ["circle", "rect", "diamond"]
    assert [one["lineStyle"]["type"] for one in edges] == ["dashed", "dashed", "solid"]


def keys_and_formatters(value):
    """All keys of options at any depth, and all values that ECharts may evaluate."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key == "formatter":
                yield inner
            yield from keys_and_formatters(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from keys_and_formatters(inner)


def test_a_hostile_name_is_a_value_and_tooltips_are_text():
    line = [Curve(HOSTILE, [(0.0, 1.0), (1.0, 2.0)])]
    some = Curves(HOSTILE, line, [(0.0, 1.0)], line)
    options = [
        charts.density(some, {HOSTILE}, False), charts.trace(some, {HOSTILE}, True, "step"),
        charts.agreement(line, False), charts.graph(NETWORK, [Agent(0, "waiting", HOSTILE)], False),
        charts.calibration(line, True),
    ]  # fmt: skip
    for one in options:
        assert HOSTILE in json.dumps(one, ensure_ascii=False).replace('\\"', '"')
        found = list(keys_and_formatters(one))
        assert not any(HOSTILE in word or word.startswith(":") for word in found)
        assert one["tooltip"]["renderMode"] == "richText"


def test_hidden_lines_keep_their_place_and_colour():
    some = Curves("w", [Curve(f"agent {n}", [(0.0, 1.0)]) for n in range(8)], [], [])
    series = charts.density(some, {"agent 7"}, False)["series"]
    assert [len(one["data"]) for one in series] == [0] * 7 + [1]
    assert series[7]["lineStyle"]["type"] == "dashed"


@pytest.mark.parametrize(
    "prior",
    [
        Prior(distribution="normal", mean=1, sd=2), Prior(distribution="student_t", df=4, mean=0, sd=1),
        Prior(distribution="half_normal", sd=2), Prior(distribution="half_student_t", df=4, sd=1),
        Prior(distribution="half_cauchy", sd=1), Prior(distribution="gamma", shape=2, rate=0.1),
        Prior(distribution="exponential", rate=0.5),
    ],
    ids=lambda prior: prior.distribution,
)  # fmt: skip
def test_a_prior_s_density_is_the_sampler_s(prior):
    """Beside the log-density that is sampled, up to its constant, where that is defined; nothing below zero there."""
    import numpy as np

    grid = np.linspace(0.05, 5, 20)
    ratio = np.log(density_of(prior, grid)) - np.asarray(prior.log_density(grid))
    np.testing.assert_allclose(ratio, ratio[0], atol=1e-4)
    if prior.distribution not in ("normal", "student_t"):
        assert (density_of(prior, -grid) == 0).all()
    fine = np.linspace(-4000, 4000, 800_001)
    assert np.trapezoid(density_of(prior, fine), fine) == pytest.approx(1, abs=0.01)
