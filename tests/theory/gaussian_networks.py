"""Random Gaussian networks and schedules inside the theorems' conditions, for Hypothesis."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import consilience as cs
from consilience.theory import GaussianNetwork, Moments, gaussian_constants, largest_step_scale, theorem_inputs

FAMILIES = ("ring", "path", "star", "complete")
SCALES = (0.0, 1.0, 10.0)


class Case(NamedTuple):
    network: GaussianNetwork
    sampler: Any
    start: Moments

    @property
    def graph(self):
        return self.network.graph

    @property
    def dimension(self):
        return self.network.linear.shape[1]


@st.composite
def networks(draw, least_agents):
    n = draw(st.sampled_from([n for n in (1, 2, 3, 5, 8) if n >= least_agents]))
    d = draw(st.sampled_from((1, 2)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graph = cs.graphs.named(draw(st.sampled_from(FAMILIES)), n)
    if graph.num_edges and draw(st.booleans()):
        graph = graph.with_weights(rng.uniform(0.2, 3.0, graph.num_edges))
    factors = rng.normal(size=(n, d, d)) * draw(st.sampled_from((0.3, 1.0, 5.0)))
    precisions = factors @ factors.swapaxes(1, 2) + 0.2 / n * np.eye(d)
    if n > 1 and draw(st.booleans()):  # an agent whose own potential is not convex
        precisions[0] -= 0.5 * np.linalg.eigvalsh(precisions.sum(0))[0] * np.eye(d)
    return GaussianNetwork(graph, precisions, rng.normal(size=(n, d)) * draw(st.sampled_from(SCALES)))


@st.composite
def starts(draw, network):
    size = network.linear.size
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from((0.0, 0.01, 1.0)))
    return Moments(rng.normal(size=size) * draw(st.sampled_from(SCALES)), spread * np.eye(size))


@st.composite
def cases(draw, least_agents=1, least_consensus_exponent=0.0):
    """A network, schedules inside all conditions of both theorems, and a start."""
    network = draw(networks(least_agents))
    start = draw(starts(network))
    exponents = st.floats(max(least_consensus_exponent, 0.01), 0.4)
    delta_1 = draw(exponents if least_consensus_exponent else st.just(0.0) | exponents)
    delta_2 = draw(st.floats(0.51 + delta_1, 0.97))
    inputs = theorem_inputs(gaussian_constants(network), network, cs.dula(1e-6, 1.0), start)
    a = draw(st.floats(0.05, 0.999)) * largest_step_scale(inputs, network.graph.num_agents, delta_2)
    b = draw(st.floats(0.05, 0.999)) * min(network.graph.proven_consensus_limit, 1.0)
    sampler = cs.dula(cs.Polynomial(scale=a, exponent=delta_2), cs.Polynomial(scale=b, exponent=delta_1))
    return Case(network, sampler, start)
