"""Which device holds which agents.

Agents are put into a line, and the line is cut into one stretch for each device, all of about equal length. The line
is the agents' own numbering or the reverse Cuthill–McKee order of the graph, whichever has the smaller sum of edge
lengths `Σ |place_i − place_j|`: that sum, divided by the number of places to cut at, is the number of edges that a
cut at a random place goes through. It depends on the graph alone, so draws, which are stored in this order, do not
depend on the number of devices.

Every device has the same number of places. A place that is left over repeats the device's last agent: it computes the
same numbers again, and nobody reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.errors import PlanError
from consilience.graphs import Graph

_MOST_GROUPS = 128


def line_of_agents(graph: Graph) -> np.ndarray:
    """`(num_agents,)` the agents in an order that keeps neighbours close to each other.

    >>> from consilience import graphs
    >>> line_of_agents(graphs.ring(5)).tolist()
    [0, 1, 2, 3, 4]
    >>> line_of_agents(graphs.from_edges(4, [(0, 2), (2, 1), (1, 3)])).tolist() in ([0, 2, 1, 3], [3, 1, 2, 0])
    True
    """
    import scipy.sparse.csgraph

    own = np.arange(graph.num_agents)
    if not graph.num_edges:
        return own
    near = scipy.sparse.csgraph.reverse_cuthill_mckee(graph.laplacian, symmetric_mode=True).astype(np.int64)
    return min((own, near), key=lambda line: _sum_of_lengths(graph, line))


def agents_per_group(num_agents: int) -> int:
    """Agents whose draws are stored together; a process holds whole groups, so that it alone writes their files.

    >>> agents_per_group(8), agents_per_group(1000)
    (1, 8)
    """
    return -(-num_agents // _MOST_GROUPS)


@dataclass(frozen=True)
class Layout:
    """Agents in line, cut into stretches for processes and devices.

    Attributes:
        line: `(num_agents,)` the agents in order.
        starts: `(devices + 1,)` where in the line each device's stretch begins; the last is the line's end.
        process_starts: the same for processes.
    """

    line: np.ndarray
    starts: np.ndarray
    process_starts: np.ndarray

    @classmethod
    def of(cls, graph: Graph, num_processes: int, devices_per_process: int) -> Layout:
        """Cut a graph's line of agents into stretches of about equal length."""
        num_agents, width = graph.num_agents, agents_per_group(graph.num_agents)
        groups = -(-num_agents // width)
        if num_processes > groups:
            raise PlanError(
                f"{num_processes} processes cannot share {num_agents} agents: every process needs at least {width}; "
                f"start at most {groups} processes"
            )
        process_starts = np.minimum(num_agents, width * _even_cuts(groups, num_processes))
        lengths = np.diff(process_starts)
        if devices_per_process > lengths.min():
            raise PlanError(
                f"{devices_per_process} devices in a process cannot share its {lengths.min()} agents: take at most "
                "so many devices in a process, or fewer processes"
            )
        starts = [
            start + _even_cuts(length, devices_per_process)[:-1]
            for start, length in zip(process_starts[:-1], lengths, strict=True)
        ]
        line = line_of_agents(graph)
        return cls(line, np.append(np.concatenate(starts), num_agents), process_starts)

    @property
    def num_devices(self) -> int:
        """How many devices share the agents."""
        return len(self.starts) - 1

    @property
    def counts(self) -> np.ndarray:
        """`(devices,)` how many agents each device holds."""
        return np.diff(self.starts)

    @property
    def capacity(self) -> int:
        """Places on every device."""
        return int(self.counts.max())

    @property
    def rank_at(self) -> np.ndarray:
        """`(devices, capacity)` where in the line the agent of each place is; left-over places repeat the last."""
        offsets = np.minimum(np.arange(self.capacity), self.counts[:, None] - 1)
        return self.starts[:-1, None] + offsets

    @property
    def is_agent(self) -> np.ndarray:
        """`(devices, capacity)` whether a place is an agent's own, not left over."""
        return np.arange(self.capacity) < self.counts[:, None]

    @property
    def device_of_rank(self) -> np.ndarray:
        """`(num_agents,)` the device of each agent in line."""
        return np.repeat(np.arange(self.num_devices), self.counts)

    def ranks_of_process(self, process: int) -> np.ndarray:
        """Which part of the line a process holds."""
        return np.arange(self.process_starts[process], self.process_starts[process + 1])

    def edges_cut(self, graph: Graph) -> int:
        """How many edges have their ends on different devices."""
        rank = np.argsort(self.line)
        ends = self.device_of_rank[rank[graph.edges]]
        return int((ends[:, 0] != ends[:, 1]).sum())


def _even_cuts(count: int, parts: int) -> np.ndarray:
    """Where `parts` stretches of about equal length begin, and the end."""
    return np.arange(parts + 1) * count // parts


def _sum_of_lengths(graph: Graph, line: np.ndarray) -> int:
    ends = np.argsort(line)[graph.edges]
    return int(np.abs(ends[:, 0] - ends[:, 1]).sum())
