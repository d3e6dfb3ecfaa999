"""Who talks to whom: undirected graphs with positive edge weights, their spectrum, and families of them."""

from consilience.graphs.families import (
    FAMILIES,
    barbell,
    complete,
    erdos_renyi,
    from_recipe,
    grid,
    named,
    path,
    random_geometric,
    ring,
    star,
    torus,
    watts_strogatz,
)
from consilience.graphs.graph import Graph, from_edges, from_networkx

__all__ = [
    "FAMILIES",
    "Graph",
    "barbell",
    "complete",
    "erdos_renyi",
    "from_edges",
    "from_networkx",
    "from_recipe",
    "grid",
    "named",
    "path",
    "random_geometric",
    "ring",
    "star",
    "torus",
    "watts_strogatz",
]
