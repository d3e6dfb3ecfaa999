"""The corrected samplers: what every step keeps, where they rest, what is exact; each beside a variant that fails."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.kernel.mixing import make_disagreement
from consilience.kernel.step import coefficients_of, each, one_step
from consilience.samplers import Kinetic, Mixing
from consilience.theory import ExactLaw, GaussianNetwork
from tests.gaussian import regression

GRAPHS = {"path": cs.graphs.path(5), "star": cs.graphs.star(5), "complete": cs.graphs.complete(5)}
MADE = {
    "kinetic": lambda **given: cs.kinetic(0.05, 2, whitening="none", **given),
    "langevin": lambda **given: cs.langevin(0.002, 2, whitening="none", **given),
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def networks():
    """Agents that differ, on each graph; what they know does not depend on it."""
    known = GaussianNetwork.of(regression([3, 9, 4, 14, 6], noise_variance=1.0), GRAPHS["path"])
    return {name: dataclasses.replace(known, graph=graph) for name, graph in GRAPHS.items()}


class MomentaOnly(Kinetic):
    """Mixes only the momenta: positions never meet."""

    def step(self, state, gradient, message, mixed, coefficients, noise):
        found = super().step(state, gradient, message, mixed, coefficients, noise)
        return found._replace(position=message[0])


class Unequal(Kinetic):
    """Its mixing takes more from one side: the rate is not the same at all agents."""

    def step(self, state, gradient, message, mixed, coefficients, noise):
        found = super().step(state, gradient, message, mixed, coefficients, noise)
        return found._replace(correction=state.correction + message[1] / 2)


def walked(sampler, network, num_steps, seed=None):
    """The states of one chain after so many steps."""
    n, d = network.linear.shape
    rng = np.random.default_rng(seed)
    precisions, linear = jnp.asarray(network.precisions), jnp.asarray(network.linear)
    disagreement = jax.vmap(make_disagreement(network.graph, jnp.float64))
    numbers = coefficients_of(sampler, n, jnp.float64, 0)

    @jax.jit
    def step(state, noise):
        return one_step(
            sampler, network.graph, state, numbers, noise,
            lambda u: jnp.einsum("iab,cib->cia", precisions, u) - linear, disagreement,
        )  # fmt: skip

    state = each(sampler.init)(jnp.asarray(np.random.default_rng(1).normal(size=(1, n, d))))
    for _ in range(num_steps):
        state = step(state, jnp.asarray(rng.normal(size=(1, n, d)) if seed is not None else np.zeros((1, n, d))))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], state)


@pytest.mark.parametrize("name", MADE)
def test_corrections_add_up_to_nothing(name, networks):
    network = networks["star"]
    state = walked(MADE[name](), network, 40, seed=0)
    assert np.abs(state.correction).max() > 1e-3
    np.testing.assert_allclose(state.correction.sum(0), 0, atol=1e-12)


def test_a_correction_that_forgets_the_mixed_momentum_does_not(networks):
    network = networks["star"]
    state = walked(Unequal(step_size=0.05, exchanges=2, whitening="none"), network, 40, seed=0)
    assert np.abs(state.correction.sum(0)).max() > 1e-3


@pytest.mark.parametrize("name", MADE)
def test_without_noise_agents_rest_at_the_pooled_mode(name, networks):
    network = networks["path"]
    sampler = MADE[name]()
    state = walked(sampler, network, 12_000 if name == "langevin" else 2000)
    mode = network.posterior.mean
    np.testing.assert_allclose(state.position, np.broadcast_to(mode, state.position.shape), atol=1e-7)
    own = 5 * (np.einsum("iab,b->ia", network.precisions, mode) - network.linear)
    np.testing.assert_allclose(state.correction, -sampler.step_size * own, atol=1e-6)
    if name == "kinetic":
        np.testing.assert_allclose(state.momentum, 0, atol=1e-7)
    assert np.abs(own).max() > 1  # the agents' data differ: each would rather be elsewhere


def test_momenta_alone_do_not_bring_agents_together(networks):
    network = networks["path"]
    state = walked(MomentaOnly(step_size=0.05, exchanges=2, whitening="none"), network, 2000)
    assert np.abs(state.position - network.posterior.mean).max() > 0.01


def test_the_momenta_only_variant_is_caught_by_the_exact_law(networks):
    """Its agents' law never settles: the spectral radius stays at 1, or positions are conserved apart."""
    network = networks["path"]
    right = ExactLaw(network, cs.kinetic(0.05, 2, whitening="none"))
    wrong = ExactLaw(network, MomentaOnly(step_size=0.05, exchanges=2, whitening="none"))
    apart = [network.consensus_error(law.positions(law.after(400))) for law in (right, wrong)]
    assert apart[1] > 20 * apart[0]


@pytest.mark.parametrize("step_size", [0.05, 0.15])
def test_on_a_complete_graph_the_variance_is_exact(step_size, networks):
    """BAOAB's Gaussian variance does not depend on the step size, and agents are equal."""
    network = networks["complete"]
    law = ExactLaw(network, cs.kinetic(step_size, 1, whitening="none"))
    settled = law.positions(law.stationary())
    posterior = network.posterior
    for agent in range(5):
        own = slice(2 * agent, 2 * agent + 2)
        np.testing.assert_allclose(settled.mean[own], posterior.mean, atol=1e-9)
        np.testing.assert_allclose(settled.covariance[own, own], posterior.covariance, rtol=1e-7)
    assert network.consensus_error(settled) < 1e-9


def test_of_langevin_it_is_not(networks):
    """The control: the overdamped scheme is too wide by half its step size times curvature."""
    network = networks["complete"]
    law = ExactLaw(network, cs.langevin(0.01, 1, whitening="none"))
    ratio = law.positions(law.stationary()).covariance[0, 0] / network.posterior.covariance[0, 0]
    assert ratio > 1.02


@pytest.mark.parametrize("noise", ["own", "common"])
@pytest.mark.parametrize("sampler", [cs.kinetic(0.05, 6, whitening="none"), cs.langevin(5e-4, 6, whitening="none")])
@pytest.mark.parametrize("graph", ["path", "star"])
def test_no_agent_has_a_bias_in_the_mean(graph, sampler, noise, networks):
    """Nor, with enough exchanges, much of one in the spread."""
    network = networks[graph]
    law = ExactLaw(network, sampler.model_copy(update={"noise": noise}))
    settled = law.positions(law.stationary())
    np.testing.assert_allclose(settled.mean.reshape(5, 2), np.tile(network.posterior.mean, (5, 1)), atol=1e-8)
    spread = np.sqrt(np.diag(settled.covariance)).reshape(5, 2) / np.sqrt(np.diag(network.posterior.covariance))
    assert spread.min() > 0.98
    assert spread.max() < 1.05


def test_dula_has_one(networks):
    network = networks["path"]
    law = ExactLaw(network, cs.dula(0.002, 0.2))
    settled = law.positions(law.stationary()).mean.reshape(5, 2)
    assert np.abs((settled - network.posterior.mean) / np.sqrt(np.diag(network.posterior.covariance))).max() > 0.3


@pytest.mark.parametrize("graph", [cs.graphs.path(5), cs.graphs.star(20)])
@pytest.mark.parametrize("make", [cs.kinetic, cs.langevin])
def test_one_exchange_is_stable_on_sparse_graphs(graph, make):
    """There `Q` itself is not, by the polynomials of the design: `Q⁺` is taken."""
    for step_size in (0.4, 0.05, 0.002):
        sampler = make(step_size, 1, whitening="none")
        levels = {finding.level for finding in sampler.findings(graph, 100, 0.1)}
        assert "error" not in levels
        plain = 1 - graph.spectrum[-1] * graph.fastest_consensus
        if make is cs.langevin or step_size < 0.06:
            assert sampler.radius(plain, 0.0) >= 1


@pytest.mark.parametrize(("sampler", "level"), [
    (cs.kinetic(0.36, 2, whitening="none"), "error"), (cs.kinetic(0.34, 2, whitening="none"), "ok"),
    (cs.kinetic(0.36, whitening="none"), "error"), (cs.kinetic(0.34, whitening="none"), "ok"),
    (cs.langevin(0.064, 2, whitening="none"), "error"), (cs.langevin(0.05, 2, whitening="none"), "ok"),
    (cs.kinetic(2.01), "error"), (cs.kinetic(1.9), "ok"), (cs.kinetic(300.0), "error"),
    (cs.kinetic(3.0, 2), "error"), (cs.kinetic(0.45, 2), "ok"), (cs.langevin(5.0, 3), "error"),
])  # fmt: skip
def test_unstable_step_sizes_are_refused(sampler, level):
    """With `n L = 32` BAOAB's limit `2/sqrt(n L)` is 0.354, Langevin's `2/(n L)` 0.0625; whitened both are 2."""
    found = {finding.topic: finding.level for finding in sampler.findings(cs.graphs.ring(4), 100, 8.0)}
    assert found == {"mixing": "ok", "step size": level}


@pytest.mark.parametrize("make", [cs.kinetic, cs.langevin])
def test_what_is_refused_has_no_stationary_law(make):
    """Agents that are alike have the spectral radius of the patterns: just below 1 they settle, just above not."""
    graph = cs.graphs.star(4)
    network = GaussianNetwork.of(regression([5] * 4, identical_rows=True, num_features=1), graph)
    curvature = float(network.precisions.max())
    levels = []
    for step_size in np.geomspace(0.5, 50, 6) * make(0.1).step_for(4 * curvature):
        sampler = make(float(step_size), 2, whitening="none")
        levels.append({one.topic: one.level for one in sampler.findings(graph, 100, curvature)}["step size"])
        if levels[-1] == "error":
            with pytest.raises(cs.ConsilienceError, match="spectral radius"):
                ExactLaw(network, sampler).stationary()
        else:
            ExactLaw(network, sampler).stationary()
    assert {"ok", "error"} == set(levels)


def test_numbers_decide_whether_it_tunes_itself():
    assert cs.kinetic().tunes_itself
    assert cs.kinetic(0.1, 2).tunes_itself  # in coordinates that are found
    assert cs.kinetic(0.1, whitening="none").tunes_itself
    assert not cs.kinetic(0.1, 2, whitening="none").tunes_itself
    assert isinstance(cs.kinetic(0.1, 2).mixing(cs.graphs.ring(4), None), Mixing)
    with pytest.raises(cs.ConsilienceError, match="no step size yet"):
        cs.langevin().coefficients(0, 3)
