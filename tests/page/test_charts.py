"""What is drawn, as options: every state can be told without its colour, and no name can be a program."""

import json

import pytest

from consilience.page import charts, graphs
from consilience.page.agents import Agent
from consilience.page.curves import Curve, Curves, density_of
from consilience.page.snapshot import Network
from consilience.reports.theme import COLOURS, DARK
from consilience.studies.priors import Prior
from tests.page import colours
from tests.page.runs import HOSTILE

NETWORK = Network("ring", [(0, 1), (1, 2), (0, 2)], [(0.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])
LINES = {False: COLOURS, True: DARK}


@pytest.mark.parametrize("dark", [False, True])
def test_lines_stand_out_from_their_ground(dark):
    """At least 2.9 to 1; words at least 4.5 to 1 (WCAG)."""
    words, axis, ground = charts.ink(dark)
    assert min(colours.contrast(line, ground) for line in LINES[dark]) > 2.9
    assert min(colours.contrast(words, ground), colours.contrast(axis, ground)) > 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("vision", colours.VISIONS)
def test_any_two_lines_can_be_told_apart_by_those_who_see_fewer_colours(vision, dark):
    assert colours.closest(LINES[dark], vision) >= 10


def test_colours_that_only_some_can_tell_apart_are_found():
    """The control: a vermilion and an amber that lines once had, far apart for most people and the same for some."""
    pair = ("#d55e00", "#b57d00")
    assert colours.closest(pair, "normal") > 15
    assert colours.closest(pair, "deuteranopia") < 1


def test_the_difference_of_colours_is_the_published_one():
    """Three of the pairs with which Sharma, Wu and Dalal (2005) test programs: a turn of hue, grey, and far apart."""
    lab = [[(50, 2.6772, -79.7751), (50, 0, -82.7485)], [(50, 0, 0), (50, -1, 2)], [(50, 2.5, 0), (58, 24, 15)]]
    found = [colours.difference(first, second) for first, second in lab]
    assert found == pytest.approx([2.0425, 2.3669, 19.4535], abs=1e-4)


def test_states_differ_by_sign_and_a_lost_agent_by_shape():
    signs = {state: (sign, shape) for state, (sign, shape, _) in graphs.STATES.items()}
    assert (
        len({signs[one] for one in ("sampling", "waiting", "behind", "lost", "stopped", "done", "warming up")}) == 7
    )
    agents = [Agent(0, "sampling"), Agent(1, "lost", "does not answer"), Agent(2, "waiting", "for agent 1")]
    drawn = graphs.graph(NETWORK, agents, dark=False)
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
        charts.agreement(line, False), graphs.graph(NETWORK, [Agent(0, "waiting", HOSTILE)], False),
        charts.calibration(line, True),
    ]  # fmt: skip
    for one in options:
        assert HOSTILE in json.dumps(one, ensure_ascii=False).replace('\\"', '"')
        found = list(keys_and_formatters(one))
        assert not any(HOSTILE in word or word.startswith(":") for word in found)
        assert one["tooltip"]["renderMode"] == "richText"


def test_hidden_lines_keep_their_place_and_colour():
    some = Curves("w", [Curve(f"agent {n}", [(0.0, 1.0)]) for n in range(10)], [], [])
    series = charts.density(some, {"agent 9"}, False)["series"]
    assert [len(one["data"]) for one in series] == [0] * 9 + [1]
    assert series[9]["lineStyle"]["type"] == "dashed"


def test_a_scale_has_numbers_on_it():
    """A log scale has numbers at powers of ten alone: it goes from one to another, or is a plain one."""
    wide = charts.agreement([Curve("all agents", [(1.0, 40.0), (5000.0, 3e-4)])], False)
    assert (wide["xAxis"]["type"], wide["yAxis"]["type"]) == ("log", "log")
    assert (wide["yAxis"]["min"], wide["yAxis"]["max"]) == (pytest.approx(1e-4), 100)
    assert wide["yAxis"]["axisLabel"]["showMinLabel"]
    narrow = charts.over_steps([(1.0, 0.8), (900.0, 0.9)], "step size", False)
    assert (narrow["xAxis"]["type"], narrow["yAxis"]["type"]) == ("value", "value")


def test_a_bin_of_few_rows_is_a_small_point():
    """And one of unknown rows is as large as all of its kind."""
    curves = [Curve("agent 0", [(0.3, 1.0), (0.9, 0.9)], [0.01, 0.81]), Curve("agent 1", [(0.5, 0.5)])]
    _, known, unknown = charts.calibration(curves, False)["series"]
    assert [one["symbolSize"] for one in known["data"]] == [3.6, 16.4]
    assert [one["value"] for one in known["data"]] == curves[0].points
    assert (unknown["data"], unknown["symbolSize"]) == (curves[1].points, 5)


def test_chains_stand_side_by_side_on_one_scale():
    lines = [Curve(f"chain {n}", [(0.0, 1.0), (1.0, 2.0 + n)]) for n in range(3)]
    drawn = charts.trace(Curves("w", [], [], lines), {"chain 0", "chain 2"}, False, "move")
    assert [one["name"] for one in drawn["xAxis"]] == ["chain 0", "chain 2"]
    assert [one["xAxisIndex"] for one in drawn["series"] if one["data"]] == [0, 1]
    assert [(one["min"], one["max"]) for one in drawn["yAxis"]] == [(1.0, 4.0)] * 2
    agents = [Curve(f"agent {n}", line.points) for n, line in enumerate(lines)]
    assert charts.trace(Curves("w", [], [], agents), {"agent 0", "agent 2"}, False, "step")["xAxis"]["name"] == "step"


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
