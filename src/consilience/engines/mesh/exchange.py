"""How neighbours' messages get from device to device, and the mixing of those that are there.

The agents of device `p` that have neighbours on device `q` are what `p` sends to `q`, each once, however many
neighbours it has there. These transfers are grouped into rounds in which every device sends to at most one device and
receives from at most one: a permutation, one `ppermute`. On a ring that is cut into stretches there are two, one in
each direction. Transfers of a round have equal length, so only those go together that differ by at most a factor of
two: what travels is at most twice what the edges that are cut ask for.

On each device the own messages and those that arrived are then one table, from which the sum over neighbours
`Σ_j a_ij (m_i − m_j)` is taken as in `mixing.py`, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.mesh.layout import Layout
from consilience.graphs import Graph
from consilience.mixing import way_to_sum


class Round(NamedTuple):
    """One permutation of messages."""

    pairs: tuple[tuple[int, int], ...]
    """Sending and receiving device."""
    width: int
    """How many agents' messages each pair carries."""


class Tables(NamedTuple):
    """What devices look up, each with a leading axis over devices."""

    sent: np.ndarray
    """`(devices, Σ width)` the places whose messages are sent, one round after the other."""
    receiver: np.ndarray | None
    """`(devices, edges)` the place that an edge belongs to, if edges are listed one by one."""
    source: np.ndarray | None
    """Where in the table the neighbours are: `(devices, places, slots)` or `(devices, edges)`."""
    weight: np.ndarray | None
    """Their weights, like `source` (`None` if all are 1); without sources a matrix `(devices, places, table)`."""


@dataclass(frozen=True)
class Exchange:
    """The messages of one step of a graph on a layout.

    Attributes:
        rounds: the permutations, in order.
        tables: what devices look up.
    """

    rounds: tuple[Round, ...]
    tables: Tables

    @classmethod
    def of(cls, graph: Graph, layout: Layout, dtype: Any) -> Exchange:
        """Find the permutations, and where every neighbour's message will be."""
        receiver, sender, weight = _directed_edges(graph, layout)
        device = layout.device_of_rank
        source = sender - layout.starts[device[sender]]  # the place on its own device
        crossing = np.flatnonzero(device[receiver] != device[sender])
        transfers, inverse = np.unique(
            np.stack([device[sender], device[receiver], sender])[:, crossing], axis=1, return_inverse=True
        )
        rounds, sent, position = _rounds(transfers, layout)
        source[crossing] = layout.capacity + position[inverse.reshape(-1)]
        edges = _Edges(receiver, source, None if (graph.weights == 1).all() else weight.astype(dtype), dtype)
        make = {"slots": _slot_tables, "matrix": _matrix_tables, "edges": _edge_tables}[way_to_sum(graph)]
        return cls(rounds, make(edges, sent, layout))

    def disagreement(self, messages: Any, tables: Tables) -> Any:
        """`Σ_j a_ij (m_i − m_j)` of the agents of this device; messages have axes `(chains, places, …)`.

        `tables` are this device's own, without the axis over devices. To be called inside `shard_map`.
        """
        return jax.tree.map(lambda leaf: self._mixed(leaf, self._gathered(leaf, tables), tables), messages)

    def _gathered(self, message: jax.Array, tables: Tables) -> jax.Array:
        """Own messages, then those that arrive."""
        parts, first = [message], 0
        for pairs, width in self.rounds:
            own = message[:, tables.sent[first : first + width]]
            parts.append(jax.lax.ppermute(own, "agents", pairs))
            first += width
        return jnp.concatenate(parts, 1) if len(parts) > 1 else message

    def _mixed(self, message: jax.Array, table: jax.Array, tables: Tables) -> jax.Array:
        wide = (None, slice(None), *[None] * (message.ndim - 2))
        if tables.source is None:
            flat = table.reshape(*table.shape[:2], -1)
            return jnp.einsum("pt,ctx->cpx", tables.weight, flat).reshape(message.shape)
        if tables.receiver is not None:
            along = message[:, tables.receiver] - table[:, tables.source]
            if tables.weight is not None:
                along = along * tables.weight[wide]
            summed = jax.ops.segment_sum(
                jnp.moveaxis(along, 1, 0), tables.receiver, num_segments=message.shape[1], indices_are_sorted=True
            )
            return jnp.moveaxis(summed, 0, 1)
        total = jnp.zeros_like(message)
        for slot in range(tables.source.shape[1]):
            difference = message - table[:, tables.source[:, slot]]
            if tables.weight is not None:
                difference = difference * tables.weight[:, slot][wide]
            total = total + difference
        return total


class _Edges(NamedTuple):
    """Directed edges, sorted by receiver: ranks of receivers, places in the table of senders, weights."""

    receiver: np.ndarray
    source: np.ndarray
    weight: np.ndarray | None
    dtype: Any


def _directed_edges(graph: Graph, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both directions of every edge, as ranks; neighbours in the order of their numbers, as in `mixing`."""
    rank = np.argsort(layout.line)
    i, j = graph.edges.T
    receiver, sender = np.concatenate([i, j]), np.concatenate([j, i])
    order = np.lexsort((sender, rank[receiver]))
    weight = np.concatenate([graph.weights] * 2)[order]
    return rank[receiver[order]], rank[sender[order]], weight


def _rounds(transfers: np.ndarray, layout: Layout) -> tuple[tuple[Round, ...], np.ndarray, np.ndarray]:
    """Permutations that carry the transfers (rows: from, to, sender), what is sent, where each arrives."""
    pairs, first, count = np.unique(transfers[:2], axis=1, return_index=True, return_counts=True)
    shift = (pairs[1] - pairs[0]) % layout.num_devices
    members: list[list[int]] = []
    widths: list[int] = []
    busy: list[set[tuple[str, int]]] = []
    for pair in np.lexsort((pairs[0], shift, -count)):
        ends = {("from", int(pairs[0, pair])), ("to", int(pairs[1, pair]))}
        place = next(
            (r for r, width in enumerate(widths) if 2 * count[pair] >= width and not ends & busy[r]), len(widths)
        )
        if place == len(widths):
            members, widths, busy = [*members, []], [*widths, int(count[pair])], [*busy, set()]
        members[place].append(pair)
        busy[place] |= ends
    offsets = np.cumsum([0, *widths])
    sent = np.zeros((layout.num_devices, offsets[-1]), np.int32)
    position = np.zeros(transfers.shape[1], np.int64)
    for offset, some in zip(offsets[:-1], members, strict=True):
        for pair in some:
            own = slice(first[pair], first[pair] + count[pair])
            sent[pairs[0, pair], offset : offset + count[pair]] = transfers[2, own] - layout.starts[pairs[0, pair]]
            position[own] = np.arange(offset, offset + count[pair])
    rounds = tuple(
        Round(tuple(sorted((int(pairs[0, p]), int(pairs[1, p])) for p in some)), width)
        for some, width in zip(members, widths, strict=True)
    )
    return rounds, sent, position


def _of_places(edges: _Edges, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every edge of every place, also those left over: device, place, and which edge it is."""
    ranks = layout.rank_at.reshape(-1)
    first = np.searchsorted(edges.receiver, np.arange(len(layout.line) + 1))
    degree = np.diff(first)[ranks]
    place = np.repeat(np.arange(ranks.size), degree)
    number = np.arange(len(place)) - np.repeat(np.cumsum(degree) - degree, degree)
    return place // layout.capacity, place % layout.capacity, first[ranks[place]] + number


def _slot_tables(edges: _Edges, sent: np.ndarray, layout: Layout) -> Tables:
    """One neighbour in each slot of an agent; an empty slot holds the agent itself."""
    device, place, edge = _of_places(edges, layout)
    slot = edge - np.searchsorted(edges.receiver, edges.receiver[edge])
    shape = (layout.num_devices, layout.capacity, int(slot.max(initial=-1)) + 1)
    source = np.broadcast_to(np.arange(layout.capacity)[None, :, None], shape).astype(np.int32)
    source[device, place, slot] = edges.source[edge]
    if edges.weight is None:
        return Tables(sent, None, source, None)
    weight = np.zeros(shape, edges.weight.dtype)
    weight[device, place, slot] = edges.weight[edge]
    return Tables(sent, None, source, weight)


def _edge_tables(edges: _Edges, sent: np.ndarray, layout: Layout) -> Tables:
    """A list of edges for each device; a short one is filled up with edges from its last agent to itself."""
    device, place, edge = _of_places(edges, layout)
    count = np.bincount(device, minlength=layout.num_devices)
    number = np.arange(len(edge)) - (np.cumsum(count) - count)[device]
    shape = (layout.num_devices, int(count.max()))
    receiver, source = (np.full(shape, layout.capacity - 1, np.int32) for _ in range(2))
    receiver[device, number], source[device, number] = place, edges.source[edge]
    if edges.weight is None:
        return Tables(sent, receiver, source, None)
    weight = np.zeros(shape, edges.weight.dtype)
    weight[device, number] = edges.weight[edge]
    return Tables(sent, receiver, source, weight)


def _matrix_tables(edges: _Edges, sent: np.ndarray, layout: Layout) -> Tables:
    """Rows of the Laplacian: no larger than the edges if there are that many."""
    device, place, edge = _of_places(edges, layout)
    weight = np.ones(len(edges.source)) if edges.weight is None else edges.weight
    matrix = np.zeros((layout.num_devices, layout.capacity, layout.capacity + sent.shape[1]), edges.dtype)
    np.add.at(matrix, (device, place, edges.source[edge]), -weight[edge])
    matrix[:, np.arange(layout.capacity), np.arange(layout.capacity)] -= matrix.sum(-1)
    return Tables(sent, None, None, matrix)
