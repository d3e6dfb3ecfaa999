"""Transfers grouped into permutations: all are carried, and little more travels than the cut asks for."""

import numpy as np
import pytest

from consilience import graphs
from consilience.engines.mesh.exchange import Exchange
from consilience.engines.mesh.layout import Layout

GRAPHS = [
    graphs.ring(40), graphs.torus(8, 8), graphs.star(40), graphs.complete(24), graphs.erdos_renyi(60, seed=2),
]  # fmt: skip


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_rounds_are_permutations_that_carry_every_transfer_once(graph):
    layout = Layout.of(graph, 1, 8)
    rounds = Exchange.of(graph, layout, np.float32).rounds
    for pairs, _ in rounds:
        senders, receivers = zip(*pairs, strict=True)
        assert len(set(senders)) == len(set(receivers)) == len(pairs)
    carried = [pair for pairs, _ in rounds for pair in pairs]
    device = layout.device_of_rank[np.argsort(layout.line)]
    wanted = {(int(device[i]), int(device[j])) for edge in graph.edges for i, j in (edge, edge[::-1])}
    assert sorted(carried) == sorted(pair for pair in wanted if pair[0] != pair[1])


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_what_travels_is_at_most_twice_what_the_cut_asks_for(graph):
    layout = Layout.of(graph, 1, 8)
    rounds = Exchange.of(graph, layout, np.float32).rounds
    assert sum(len(pairs) * width for pairs, width in rounds) <= 2 * 2 * layout.edges_cut(graph)


def test_one_device_sends_nothing():
    assert Exchange.of(graphs.ring(9), Layout.of(graphs.ring(9), 1, 1), np.float32).rounds == ()
