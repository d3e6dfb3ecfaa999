"""Agents in line, cut into stretches: everybody is somewhere once, and few edges are cut."""

import numpy as np
import pytest

from consilience import graphs
from consilience.engines.mesh.layout import Layout, agents_per_group, line_of_agents
from consilience.errors import PlanError

GRAPHS = [graphs.ring(13), graphs.torus(5, 8), graphs.star(9), graphs.random_geometric(200, seed=3)]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
@pytest.mark.parametrize(("processes", "devices"), [(1, 1), (1, 8), (2, 3), (3, 1)])
def test_every_agent_has_one_place(graph, processes, devices):
    layout = Layout.of(graph, processes, devices)
    held = layout.line[layout.rank_at[layout.is_agent]]
    assert sorted(held) == list(range(graph.num_agents))
    assert np.ptp(layout.counts) <= agents_per_group(graph.num_agents)
    groups = agents_per_group(graph.num_agents)
    assert all(start % groups == 0 for start in layout.process_starts[:-1])


def test_a_shuffled_ring_is_cut_about_as_seldom_as_one_in_order():
    names = np.random.default_rng(0).permutation(400)
    shuffled = graphs.from_edges(400, [(int(names[i]), int(names[(i + 1) % 400])) for i in range(400)])
    in_order = Layout.of(graphs.ring(400), 1, 8)
    assert in_order.edges_cut(graphs.ring(400)) == 8
    assert Layout.of(shuffled, 1, 8).edges_cut(shuffled) <= 16
    as_numbered = Layout(np.arange(400), in_order.starts, in_order.process_starts)
    assert as_numbered.edges_cut(shuffled) > 300


def test_the_line_does_not_depend_on_devices():
    graph = GRAPHS[-1]
    assert (Layout.of(graph, 1, 2).line == Layout.of(graph, 3, 2).line).all()
    assert (line_of_agents(graph) == Layout.of(graph, 1, 2).line).all()


def test_too_many_processes_or_devices():
    with pytest.raises(PlanError, match="5 processes cannot share 4 agents"):
        Layout.of(graphs.ring(4), 5, 1)
    with pytest.raises(PlanError, match="3 devices in a process cannot share its 2 agents"):
        Layout.of(graphs.ring(4), 2, 3)
