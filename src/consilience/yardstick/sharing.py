"""Which cells of the table have the same draws, so that one run answers them all.

In unison agents exchange nothing but sums, which are the same over every graph: graphs differ in the hops of a sum,
and so in rounds. By gossip the graph decides the draws, but two or three agents make the same graph of several
families: a ring of two is a path is a star, and a ring of three is complete.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from consilience import graphs
from consilience.errors import GraphError
from consilience.graphs.spanning import num_hops
from consilience.yardstick.cells import Cell
from consilience.yardstick.methods import METHODS

_OF_ROUNDS = ("rounds", "warmup_rounds", "rounds_per_effective_mean", "rounds_per_effective_square")


def source_of_draws(cell: Cell) -> Hashable:
    """Equal for cells of one table with the same draws.

    >>> first, second = (Cell("kidiq-kidscore_momiq", "nuts", graph, "natural", 3) for graph in ("ring", "path"))
    >>> source_of_draws(first) == source_of_draws(second)
    True
    >>> gossip = (cell._replace(method="kinetic") for cell in (first, second))
    >>> len({source_of_draws(cell) for cell in gossip})
    2
    """
    kind = METHODS[cell.method]
    if not kind.has_graph:
        return cell
    try:
        network = graphs.named(cell.graph, cell.num_agents)
    except GraphError:  # a family may have none of so few agents: the cell fails by itself, and stays in the table
        return cell
    return (cell._replace(graph=""), None if kind.in_unison else network)


def over_its_graph(row: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    """The row of a cell, from that of a cell with the same draws: only a sum's hops, and so rounds, may differ.

    Args:
        row: that is there.
        cell: whose row is wanted.
    """
    found = {**row, "graph": cell.graph}
    if METHODS[cell.method].in_unison and row["failed"] is None:
        hops, before = (num_hops(graphs.named(one, cell.num_agents)) for one in (cell.graph, row["graph"]))
        found |= {name: row[name] * hops / before for name in _OF_ROUNDS}
        found |= {name: round(found[name]) for name in ("rounds", "warmup_rounds")}
    return found
