"""Who talks to whom: undirected graphs with positive edge weights, and their spectrum.

A graph is a list of edges; nothing of size n × n is built unless the graph is that dense. The Laplacian is
`L = D − A`; its eigenvalues `0 = λ_1 < λ_2 ≤ … ≤ λ_max` decide how fast neighbours agree and which consensus
step sizes are stable: `I − β L` is a contraction on disagreement if and only if `0 < β < 2/λ_max`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import GraphError

if TYPE_CHECKING:
    import networkx
    import scipy.sparse

_MOST_AGENTS = 1_000_000
_MOST_EDGES = 20_000_000
_EXACT_LIMIT = 5000
_DENSE_LIMIT = 600  # up to here a dense eigenvalue solver is faster than a sparse one


@dataclass(frozen=True, eq=False)
class Graph:
    """A connected undirected graph of `num_agents` agents.

    Attributes:
        num_agents: the number of agents, `n`.
        edges: `(num_edges, 2)` integers, each edge once, smaller agent first.
        weights: `(num_edges,)` positive numbers `a_ij = a_ji`.
        recipe: how the graph was made, as it stands in a plan file.

    >>> graph = from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])
    >>> graph.num_edges, round(graph.largest_eigenvalue, 3), round(graph.algebraic_connectivity, 3)
    (5, 3.618, 1.382)
    """

    num_agents: int
    edges: np.ndarray
    weights: np.ndarray
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_connected(self)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Graph)
            and self.num_agents == other.num_agents
            and np.array_equal(self.edges, other.edges)
            and np.array_equal(self.weights, other.weights)
        )

    def __hash__(self) -> int:
        return hash((self.num_agents, self.edges.tobytes(), self.weights.tobytes()))

    def __repr__(self) -> str:
        return f"Graph({self.name}, {self.num_agents} agents, {self.num_edges} edges)"

    @property
    def name(self) -> str:
        """The family the graph comes from, for people."""
        return str(self.recipe.get("kind", "edges"))

    @property
    def num_edges(self) -> int:
        """The number of undirected edges."""
        return len(self.edges)

    @cached_property
    def laplacian(self) -> scipy.sparse.csr_array:
        """The sparse Laplacian `L = D − A`."""
        import scipy.sparse

        i, j = self.edges.T
        rows = np.concatenate([i, j, i, j])
        columns = np.concatenate([j, i, i, j])
        values = np.concatenate([-self.weights, -self.weights, self.weights, self.weights])
        return scipy.sparse.csr_array((values, (rows, columns)), shape=(self.num_agents,) * 2)

    @cached_property
    def degrees(self) -> np.ndarray:
        """`(num_agents,)` number of neighbours of each agent."""
        return np.bincount(self.edges.ravel(), minlength=self.num_agents)

    @cached_property
    def largest_eigenvalue(self) -> float:
        """`λ_max(L)`, which for this symmetric matrix is the paper's `σ_max(L)`."""
        if self.num_agents <= _DENSE_LIMIT:
            return float(self.spectrum[-1])
        from scipy.sparse.linalg import eigsh

        accuracy = 0.0 if self.num_agents <= _EXACT_LIMIT else 1e-5  # large rings' are too close to part
        found = eigsh(self.laplacian, k=1, which="LA", return_eigenvectors=False, v0=self._start, tol=accuracy)
        return float(found[0])

    @cached_property
    def algebraic_connectivity(self) -> float:
        """`λ_2(L)`, which bounds how slowly disagreement dies out (0 for a single agent)."""
        if self.num_agents == 1:
            return 0.0
        if self.num_agents <= _DENSE_LIMIT:
            return float(self.spectrum[1])
        from scipy.sparse.linalg import eigsh

        shift = -1e-9 * self.largest_eigenvalue  # just below zero, so that the factorisation exists
        pair = eigsh(self.laplacian.tocsc(), k=2, sigma=shift, return_eigenvectors=False, v0=self._start)
        return float(np.sort(pair)[1])

    @property
    def stable_consensus_limit(self) -> float:
        """`2/λ_max`: consensus steps must stay below this (infinite for a single agent)."""
        return 2 / self.largest_eigenvalue if self.num_edges else math.inf

    @property
    def proven_consensus_limit(self) -> float:
        """`1/λ_max`: the theorems ask consensus steps to stay below this."""
        return self.stable_consensus_limit / 2

    @property
    def fastest_consensus(self) -> float:
        """`2/(λ_2 + λ_max)`: the constant step with the fastest worst-case agreement (1 for one agent)."""
        return 2 / (self.algebraic_connectivity + self.largest_eigenvalue) if self.num_edges else 1.0

    @cached_property
    def spectrum(self) -> np.ndarray:
        """All eigenvalues of the Laplacian, the smallest (0) first; by a dense solver, so for thousands at most."""
        return np.linalg.eigvalsh(self.laplacian.toarray())

    @property
    def _start(self) -> np.ndarray:
        return np.random.default_rng(0).standard_normal(self.num_agents)  # the same spectrum every time

    def with_weights(self, weights: Sequence[float] | np.ndarray) -> Graph:
        """The same edges with other weights, one positive number for each row of `edges`."""
        values = _positive_weights(weights, self.num_edges)
        recipe = {**self.recipe, "weights": values.tolist()}
        return replace(self, weights=values, recipe=recipe)

    def to_recipe(self) -> dict[str, Any]:
        """The graph as plain values for a plan file; `from_recipe` is the inverse."""
        return dict(self.recipe)


def from_edges(num_agents: int, edges: Iterable[Sequence[int]], weights: Sequence[float] | None = None) -> Graph:
    """A graph from a list of pairs; an edge may be named in either direction, or both.

    >>> from_edges(3, [(0, 1), (1, 2)], weights=[1.0, 0.5]).num_edges
    2
    """
    num_agents = require_size(num_agents)
    listed = [tuple(edge) for edge in edges]
    if not all(len(edge) == 2 and all(isinstance(end, int | np.integer) for end in edge) for edge in listed):
        raise GraphError("an edge is a pair of agent numbers such as (0, 1): give weights apart, by `weights`")
    pairs = np.array(listed, dtype=np.int64).reshape(-1, 2)
    values = _positive_weights(np.ones(len(pairs)) if weights is None else weights, len(pairs))
    if pairs.size and (pairs.min() < 0 or pairs.max() >= num_agents):
        raise GraphError(
            f"an edge names agent {pairs.max() if pairs.max() >= num_agents else pairs.min()}, but agents "
            f"are numbered 0 to {num_agents - 1}: mend the edge or raise num_agents"
        )
    if (pairs[:, 0] == pairs[:, 1]).any():
        loop = pairs[pairs[:, 0] == pairs[:, 1]][0, 0]
        raise GraphError(f"agent {loop} has an edge to itself: remove it")
    merged: dict[tuple[int, int], float] = {}
    for (i, j), weight in zip(pairs.tolist(), values.tolist(), strict=True):
        edge = (min(i, j), max(i, j))
        if merged.setdefault(edge, weight) != weight:
            raise GraphError(
                f"the edge between agents {edge[0]} and {edge[1]} has two weights, {merged[edge]:g} and "
                f"{weight:g}: weights must be symmetric, give one"
            )
    unique = np.array(sorted(merged), dtype=np.int64).reshape(-1, 2)
    unique_weights = np.array([merged[i, j] for i, j in unique.tolist()])
    recipe: dict[str, Any] = {"kind": "edges", "num_agents": num_agents, "edges": unique.tolist()}
    if weights is not None:
        recipe["weights"] = unique_weights.tolist()
    return Graph(num_agents, unique, unique_weights, recipe)


def from_networkx(graph: networkx.Graph) -> Graph:
    """A graph from an undirected NetworkX graph; nodes are numbered in its order, `weight` is kept."""
    if graph.is_directed():
        raise GraphError("the graph is directed, but agents must hear whom they talk to: use graph.to_undirected()")
    if graph.is_multigraph():
        raise GraphError("the graph has parallel edges: use networkx.Graph(graph) to merge them")
    number = {node: index for index, node in enumerate(graph.nodes)}
    edges = [(number[u], number[v]) for u, v in graph.edges]
    weighted = any("weight" in data for _, _, data in graph.edges(data=True))
    weights = [data.get("weight", 1.0) for _, _, data in graph.edges(data=True)] if weighted else None
    return from_edges(len(number), edges, weights)


def require_size(size: int) -> int:
    """Check that a number of agents is one."""
    if not isinstance(size, int | np.integer) or size < 1:
        raise GraphError(f"a graph needs a whole number of agents, at least 1; got {size!r}")
    if size > _MOST_AGENTS:
        raise GraphError(f"{size:,} agents are more than one plan can hold: {_MOST_AGENTS:,} at most")
    return int(size)


def require_edges(count: int) -> None:
    """Check that a graph's edges fit into memory, before they are made."""
    if count > _MOST_EDGES:
        raise GraphError(f"{count:,} edges are more than one plan can hold ({_MOST_EDGES:,}): choose a sparser graph")


def _positive_weights(weights: Sequence[float] | np.ndarray, num_edges: int) -> np.ndarray:
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (num_edges,):
        raise GraphError(f"expected {num_edges} edge weights, one for each edge; got shape {values.shape}")
    if not (np.isfinite(values) & (values > 0)).all():
        raise GraphError("edge weights must be positive and finite: drop an edge instead of weighting it 0")
    return values


def _require_connected(graph: Graph) -> None:
    require_size(graph.num_agents)
    from scipy.sparse.csgraph import connected_components

    parts, member = connected_components(graph.laplacian, directed=False)
    if parts > 1:
        lonely = np.flatnonzero(member != member[0])[:5]
        raise GraphError(
            f"the graph falls into {parts} parts (agent 0 cannot reach agent "
            f"{', '.join(map(str, lonely))}{', …' if (member != member[0]).sum() > 5 else ''}): every agent "
            "must be reachable from every other, add edges between the parts"
        )
