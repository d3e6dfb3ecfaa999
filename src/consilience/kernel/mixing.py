"""The mixing rule: what each agent sees of its neighbours, `Σ_j a_ij (m_i − m_j)`, at a cost of O(edges).

All agents' messages are read before any is replaced, so mixing is symmetric and keeps the average. An engine holds
the messages of some *places* (agents) and a *table* of all messages that can be seen there: in one process the
places themselves, on a device also what arrived from others, at a node its own message and its neighbours'.
`Neighbours` says where in the table each place finds its neighbours; the sum over them is taken here, for all
engines, in the order of the neighbours' numbers. Three ways to take it, chosen by the graph's shape (they agree up to
rounding):

- about as many neighbours everywhere (rings, grids, geometric graphs): one gather per neighbour slot;
- many edges (complete graphs): one product with rows of the Laplacian, which are then no larger than the edges;
- a few agents with very many neighbours (stars): a sum over the list of edges, sorted by receiver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.graphs import Graph

Way = Literal["slots", "matrix", "edges"]
_FEW_SLOTS = 8


class Neighbours(NamedTuple):
    """Where places find their neighbours; several devices' have a leading axis over devices."""

    receiver: np.ndarray | None
    """`(edges,)` the place that an edge belongs to, if edges are listed one by one."""
    source: np.ndarray | None
    """Where in the table the neighbours are: `(places, slots)` or `(edges,)`."""
    weight: np.ndarray | None
    """Their weights, like `source` (`None` if all are 1); without sources a matrix `(places, table)`."""


def make_disagreement(graph: Graph, dtype: Any) -> Callable[[Any], Any]:
    """The function from all agents' messages, `(num_agents, …)` in every leaf, to their disagreement.

    >>> from consilience import graphs
    >>> disagreement = make_disagreement(graphs.path(3), jnp.float32)
    >>> disagreement(jnp.array([0.0, 1.0, 5.0])).tolist()
    [-1.0, -3.0, 4.0]
    """
    receiver, sender, weight = directed_edges(graph)
    tables = neighbour_tables(
        way_to_sum(graph), (1, graph.num_agents, graph.num_agents), np.zeros_like(receiver), receiver, sender,
        weight, dtype,
    )  # fmt: skip
    neighbours = Neighbours(*(None if one is None else one[0] for one in tables))
    return lambda messages: disagreement(messages, messages, neighbours)


def disagreement(messages: Any, table: Any, neighbours: Neighbours) -> Any:
    """`Σ_j a_ij (m_i − m_j)` of some places; every leaf has their axis first, and the table's has that of its own."""
    return jax.tree.map(lambda message, all_: _disagreement(message, all_, neighbours), messages, table)


def _disagreement(message: jax.Array, table: jax.Array, neighbours: Neighbours) -> jax.Array:
    receiver, source, weight = neighbours
    wide = (slice(None), *[None] * (message.ndim - 1))
    if source is None:
        return (jnp.asarray(weight) @ table.reshape(len(table), -1)).reshape(message.shape)
    if receiver is not None:
        along = message[receiver] - table[source]
        if weight is not None:
            along = jnp.asarray(weight)[wide] * along
        return jax.ops.segment_sum(along, receiver, num_segments=len(message), indices_are_sorted=True)
    total = jnp.zeros_like(message)
    for slot in range(source.shape[1]):
        difference = message - table[source[:, slot]]
        if weight is not None:
            difference = difference * jnp.asarray(weight[:, slot])[wide]
        total = total + difference
    return total


def way_to_sum(graph: Graph) -> Way:
    """How to sum over the neighbours of a graph.

    >>> from consilience import graphs
    >>> way_to_sum(graphs.ring(20)), way_to_sum(graphs.complete(20)), way_to_sum(graphs.star(20))
    ('slots', 'matrix', 'edges')
    """
    n, directed = graph.num_agents, 2 * graph.num_edges
    most = int(graph.degrees.max(initial=0))
    if most <= _FEW_SLOTS:
        return "slots"
    if n * most > 2 * directed:
        return "edges"
    return "matrix" if 4 * directed >= n * n else "slots"


def directed_edges(graph: Graph, rank: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both directions of every edge as receivers, senders and weights, sorted by receiver, then by sender.

    With `rank`, by the receivers' ranks: agents may stand in another order than that of their numbers.
    """
    i, j = graph.edges.T
    receiver, sender = np.concatenate([i, j]), np.concatenate([j, i])
    order = np.lexsort((sender, receiver if rank is None else rank[receiver]))
    return receiver[order], sender[order], np.concatenate([graph.weights] * 2)[order]


def neighbour_tables(
    way: Way,
    shape: tuple[int, int, int],
    device: np.ndarray,
    place: np.ndarray,
    source: np.ndarray,
    weight: np.ndarray,
    dtype: Any,
) -> Neighbours:
    """The tables of all devices, from lists of edges sorted by device, place and neighbour.

    Args:
        way: how to sum.
        shape: the numbers of devices, of places on each, and of messages in each table.
        device: of each edge.
        place: whose edge it is.
        source: where in the table its neighbour is.
        weight: of each edge.
        dtype: of the weights.
    """
    weights = None if (weight == 1).all() else weight.astype(dtype)
    if way == "matrix":
        return _matrix(shape, device, place, source, weight, dtype)
    if way == "edges":
        return _listed(shape, device, place, source, weights)
    return _slots(shape, device, place, source, weights)


def _slots(shape: tuple[int, int, int], device: Any, place: Any, source: Any, weight: Any) -> Neighbours:
    """One neighbour in each slot of a place; an empty slot holds the place itself."""
    devices, places, _ = shape
    slot = _number_within(device * places + place)
    slots = (devices, places, int(slot.max(initial=-1)) + 1)
    sources = np.broadcast_to(np.arange(places)[None, :, None], slots).astype(np.int32)
    sources[device, place, slot] = source
    if weight is None:
        return Neighbours(None, sources, None)
    weights = np.zeros(slots, weight.dtype)
    weights[device, place, slot] = weight
    return Neighbours(None, sources, weights)


def _listed(shape: tuple[int, int, int], device: Any, place: Any, source: Any, weight: Any) -> Neighbours:
    """A list of edges for each device; a short one is filled up with edges from its last place to itself."""
    devices, places, _ = shape
    number = _number_within(device)
    lists = (devices, int(number.max(initial=-1)) + 1)
    receivers, sources = (np.full(lists, places - 1, np.int32) for _ in range(2))
    receivers[device, number], sources[device, number] = place, source
    if weight is None:
        return Neighbours(receivers, sources, None)
    weights = np.zeros(lists, weight.dtype)
    weights[device, number] = weight
    return Neighbours(receivers, sources, weights)


def _matrix(
    shape: tuple[int, int, int], device: Any, place: Any, source: Any, weight: np.ndarray, dtype: Any
) -> Neighbours:
    """Rows of the Laplacian."""
    matrix = np.zeros(shape)
    np.add.at(matrix, (device, place, source), -weight)
    places = np.arange(shape[1])
    matrix[:, places, places] -= matrix.sum(-1)
    return Neighbours(None, None, matrix.astype(dtype))


def _number_within(group: np.ndarray) -> np.ndarray:
    """The number of each entry among those of its group; equal groups stand together.

    >>> _number_within(np.array([3, 3, 5, 5, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(len(group)) - np.searchsorted(group, group)
