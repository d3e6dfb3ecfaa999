import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import graphs
from consilience.kernel.mixing import make_disagreement

TOLERANCE = 2e-6
GRAPHS = {
    "ring": graphs.ring(9),
    "star": graphs.star(30),
    "complete": graphs.complete(20),
    "grid": graphs.grid(3, 4),
    "single": graphs.ring(1),
    "pair": graphs.ring(2),
    "barbell": graphs.barbell(9),
    "random": graphs.erdos_renyi(40, 0.2),
    "weighted": graphs.ring(6).with_weights([0.5, 1, 2, 0.25, 3, 1]),
    "weighted star": graphs.star(25).with_weights(np.linspace(0.1, 2, 24)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_disagreement_is_the_laplacian(name):
    graph = GRAPHS[name]
    messages = {"a": np.random.default_rng(0).normal(size=(graph.num_agents, 3, 2)).astype(np.float32)}
    found = make_disagreement(graph, jnp.float32)(messages)["a"]
    expected = np.tensordot(graph.laplacian.toarray(), messages["a"], axes=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(GRAPHS)), st.integers(0, 1000))
def test_mixing_keeps_the_average(name, seed):
    graph = GRAPHS[name]
    messages = np.random.default_rng(seed).normal(size=(graph.num_agents, 2)).astype(np.float32)
    mixed = messages - 0.1 * np.asarray(make_disagreement(graph, jnp.float32)(messages))
    np.testing.assert_allclose(mixed.mean(0), messages.mean(0), atol=TOLERANCE)


def test_neighbours_mixed_one_after_the_other_do_not_keep_the_average():
    """The trap that the test above must catch: each agent reads what its neighbour has already changed."""
    graph = GRAPHS["ring"]
    messages = np.random.default_rng(0).normal(size=(graph.num_agents, 2))
    mixed = messages.copy()
    for i in range(graph.num_agents):
        for j in ((i - 1) % graph.num_agents, (i + 1) % graph.num_agents):
            mixed[i] -= 0.1 * (mixed[i] - mixed[j])
    assert np.abs(mixed.mean(0) - messages.mean(0)).max() > 10 * TOLERANCE


@pytest.mark.parametrize("graph", [graphs.ring(10_000), graphs.star(10_000)], ids=["ring", "star"])
def test_ten_thousand_agents_need_memory_for_edges_only(graph):
    program = jax.jit(make_disagreement(graph, jnp.float32))
    compiled = program.lower(jax.ShapeDtypeStruct((10_000, 2), jnp.float32)).compile()
    memory = compiled.memory_analysis()
    used = memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
    assert used < 100 * 8 * graph.num_edges  # n × n would be 400 MB
