"""A problem, taken apart for the theory: its constants, its (nearly) Gaussian network, and where its agents start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.errors import ProblemError
from consilience.graphs import Graph
from consilience.theory.constants import MOST_PARAMETERS, Constants, gaussian_constants, problem_constants
from consilience.theory.gaussian import GaussianNetwork, Moments, is_quadratic
from consilience.theory.potentials import Potentials

MOST_NUMBERS = 2000


@dataclass(frozen=True)
class Analysis:
    """What the theory needs to know about a problem on a graph.

    Attributes:
        constants: `L_i`, `L̄`, `ρ_U` and so on, each labelled.
        network: the agents' Gaussian posteriors; if the problem is not Gaussian, their normal approximation at `w*`.
        gaussian: whether the problem is Gaussian, so that the network is exact.
        start: moments of the agents' initial positions.
        potentials: the agents' potentials.
    """

    constants: Constants
    network: GaussianNetwork
    gaussian: bool
    start: Moments
    potentials: Potentials


def analyse(potentials: Potentials, graph: Graph, draws: np.ndarray | None = None) -> Analysis:
    """Find the constants of a problem: exactly if it is Gaussian, otherwise as well as can be.

    Args:
        potentials: of the agents, `Potentials(problem)`.
        graph: who talks to whom.
        draws: `(count, size)` draws from about the posterior, if there are some.
    """
    require_small(potentials)
    start = start_moments(potentials.starts, potentials.num_agents)
    if is_quadratic(potentials):
        network = GaussianNetwork.from_potentials(potentials, graph)
        return Analysis(gaussian_constants(network), network, True, start, potentials)
    constants = problem_constants(potentials, draws)
    network = GaussianNetwork.around(potentials, graph, constants.centre)
    gaussian_constants(network)  # the posterior must be proper near its mode
    return Analysis(constants, network, False, start, potentials)


def start_moments(starts: np.ndarray, num_agents: int) -> Moments:
    """Moments of all agents' positions if each starts at an independent one of the given draws `(count, size)`."""
    size = starts.shape[1]
    spread = np.zeros((size, size)) if (starts == starts[0]).all() else np.atleast_2d(np.cov(starts.T))
    return Moments(np.tile(starts.mean(0), num_agents), np.kron(np.eye(num_agents), spread))


def require_small(potentials: Potentials) -> None:
    """Check that a network is small enough for the theory, which follows all agents' parameters together."""
    numbers = potentials.num_agents * potentials.size
    if potentials.size > MOST_PARAMETERS or numbers > MOST_NUMBERS:
        raise ProblemError(
            f"the theory is for at most {MOST_PARAMETERS:,} parameters, and {MOST_NUMBERS:,} of all agents together; "
            f"this problem has {potentials.size:,} at each of {potentials.num_agents:,} agents. `consilience check` "
            "looks at its curvature alone"
        )
