"""The mixing rule: what each agent sees of its neighbours, `Σ_j a_ij (m_i − m_j)`, at a cost of O(edges).

All agents' messages are read before any is replaced, so mixing is symmetric and keeps the average. Three ways
to sum over neighbours, chosen by the graph's shape (they agree up to rounding):

- about as many neighbours everywhere (rings, grids, geometric graphs): one gather per neighbour slot;
- many edges (complete graphs): one product with the adjacency matrix, which is then no larger than the edges;
- a few agents with very many neighbours (stars): a sum over the list of edges, sorted by receiver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from consilience.graphs import Graph

Disagreement = Callable[[Any], Any]

_FEW_SLOTS = 8


def make_disagreement(graph: Graph, dtype: Any) -> Disagreement:
    """The function from all agents' messages, `(num_agents, …)` in every leaf, to their disagreement.

    >>> from consilience import graphs
    >>> disagreement = make_disagreement(graphs.path(3), jnp.float32)
    >>> disagreement(jnp.array([0.0, 1.0, 5.0])).tolist()
    [-1.0, -3.0, 4.0]
    """
    if graph.num_edges == 0:
        return lambda messages: jax.tree.map(jnp.zeros_like, messages)
    make = {"slots": _by_slot, "matrix": _by_matrix, "edges": _by_edge}[way_to_sum(graph)]
    return make(graph.num_agents, *_directed_edges(graph), dtype)


def way_to_sum(graph: Graph) -> Literal["slots", "matrix", "edges"]:
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


def _directed_edges(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    i, j = graph.edges.T
    receiver, sender = np.concatenate([i, j]), np.concatenate([j, i])
    order = np.lexsort((sender, receiver))
    return receiver[order], sender[order], np.concatenate([graph.weights] * 2)[order]


def _by_slot(n: int, receiver: np.ndarray, sender: np.ndarray, weight: np.ndarray, dtype: Any) -> Disagreement:
    first = np.searchsorted(receiver, np.arange(n))
    slot = np.arange(len(receiver)) - first[receiver]
    slots = int(slot.max()) + 1
    neighbour = np.tile(np.arange(n)[:, None], (1, slots))  # an empty slot holds the agent itself
    strength = np.zeros((n, slots))
    neighbour[receiver, slot] = sender
    strength[receiver, slot] = weight
    unweighted = bool((strength[neighbour != np.arange(n)[:, None]] == 1).all())

    def leaf(message: jax.Array) -> jax.Array:
        total = jnp.zeros_like(message)
        for s in range(slots):
            difference = message - message[neighbour[:, s]]
            if not unweighted:
                factor = jnp.asarray(strength[:, s], dtype)
                difference = difference * factor.reshape(-1, *[1] * (message.ndim - 1))
            total = total + difference
        return total

    return lambda messages: jax.tree.map(leaf, messages)


def _by_matrix(n: int, receiver: np.ndarray, sender: np.ndarray, weight: np.ndarray, dtype: Any) -> Disagreement:
    adjacency = np.zeros((n, n))
    adjacency[receiver, sender] = weight
    matrix = jnp.asarray(np.diag(adjacency.sum(1)) - adjacency, dtype)

    def leaf(message: jax.Array) -> jax.Array:
        return (matrix @ message.reshape(n, -1)).reshape(message.shape)

    return lambda messages: jax.tree.map(leaf, messages)


def _by_edge(n: int, receiver: np.ndarray, sender: np.ndarray, weight: np.ndarray, dtype: Any) -> Disagreement:
    def leaf(message: jax.Array) -> jax.Array:
        factor = jnp.asarray(weight, dtype).reshape(-1, *[1] * (message.ndim - 1))
        along_edges = factor * (message[receiver] - message[sender])
        return jax.ops.segment_sum(along_edges, receiver, num_segments=n, indices_are_sorted=True)

    return lambda messages: jax.tree.map(leaf, messages)
