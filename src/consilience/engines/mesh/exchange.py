"""How neighbours' messages get from device to device, and the mixing of those that are there.

The agents of device `p` that have neighbours on device `q` are what `p` sends to `q`, each once, however many
neighbours it has there. These transfers are grouped into rounds in which every device sends to at most one device and
receives from at most one: a permutation, one `ppermute`. On a ring that is cut into stretches there are two, one in
each direction. Transfers of a round have equal length, so only those go together that differ by at most a factor of
two: what travels is at most twice what the edges that are cut ask for.

On each device the own messages and those that arrived are then one table, from which `kernel/mixing.py` takes the sum
over neighbours as for every engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.mesh.layout import Layout
from consilience.graphs import Graph
from consilience.kernel.mixing import Neighbours, directed_edges, disagreement, neighbour_tables, way_to_sum


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
    neighbours: Neighbours
    """Where in the table of own messages and those that arrived each place finds its neighbours."""


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
        rank = np.argsort(layout.line)
        receiver, sender, weight = directed_edges(graph, rank)
        receiver, sender = rank[receiver], rank[sender]
        device = layout.device_of_rank
        source = sender - layout.starts[device[sender]]  # the place on its own device
        crossing = np.flatnonzero(device[receiver] != device[sender])
        transfers, inverse = np.unique(
            np.stack([device[sender], device[receiver], sender])[:, crossing], axis=1, return_inverse=True
        )
        rounds, sent, position = _rounds(transfers, layout)
        source[crossing] = layout.capacity + position[inverse.reshape(-1)]
        here, place, edge = _of_places(receiver, layout)
        shape = (layout.num_devices, layout.capacity, layout.capacity + sent.shape[1])
        neighbours = neighbour_tables(way_to_sum(graph), shape, here, place, source[edge], weight[edge], dtype)
        return cls(rounds, Tables(sent, neighbours))

    def disagreement(self, messages: Any, tables: Tables) -> Any:
        """`Σ_j a_ij (m_i − m_j)` of the agents of this device; messages have axes `(chains, places, …)`.

        `tables` are this device's own, without the axis over devices. To be called inside `shard_map`.
        """
        table = jax.tree.map(lambda leaf: self._gathered(leaf, tables), messages)
        return jax.vmap(lambda own, seen: disagreement(own, seen, tables.neighbours))(messages, table)

    def _gathered(self, message: jax.Array, tables: Tables) -> jax.Array:
        """Own messages, then those that arrive."""
        parts, first = [message], 0
        for pairs, width in self.rounds:
            own = message[:, tables.sent[first : first + width]]
            parts.append(jax.lax.ppermute(own, "agents", pairs))
            first += width
        return jnp.concatenate(parts, 1) if len(parts) > 1 else message


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


def _of_places(receiver: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every edge of every place, also those left over: device, place, and which edge it is.

    `receiver` are the ranks that the edges belong to, in order.
    """
    ranks = layout.rank_at.reshape(-1)
    first = np.searchsorted(receiver, np.arange(len(layout.line) + 1))
    degree = np.diff(first)[ranks]
    place = np.repeat(np.arange(ranks.size), degree)
    number = np.arange(len(place)) - np.repeat(np.cumsum(degree) - degree, degree)
    return place // layout.capacity, place % layout.capacity, first[ranks[place]] + number
