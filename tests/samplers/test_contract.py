"""What every sampler must do; a new one is added to the registry and to `table.py`, and must pass as it is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines.simulate import Simulation
from consilience.kernel.chebyshev import mixed
from consilience.kernel.mixing import make_disagreement
from consilience.samplers import SAMPLERS, Finding, Gossip, Landscape, Leaf, SpeaksFirst
from consilience.theory import ExactLaw, GaussianNetwork, Moments
from tests.engines.final_positions import final_positions
from tests.gaussian import regression
from tests.samplers.last_word import LastWord
from tests.samplers.table import CONSTRUCTORS, MADE, TUNED, WITHOUT_NUMBERS
from tests.statistical import rejects_covariance, rejects_mean

CHARACTERISTIC = ("falling", "three exchanges")
"""The constructors whose samplers go through the exact law on all networks."""
RING = cs.graphs.ring(3)
POSITION = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
ZERO = jax.tree.map(jnp.zeros_like, POSITION)
EVERY = {**MADE, "last word (tests only)": LastWord}
LAWS = {
    "ring": (cs.graphs.ring(3), [4, 7, 12], {}),
    "one agent": (cs.graphs.ring(1), [12], {}),
    "unequal shards on a star": (cs.graphs.star(4), [3, 9, 1, 14], {}),
    "minibatches": (cs.graphs.ring(3), [12, 30, 8], {"batch_size": 4, "batches": "replacement"}),
    "barbell": (cs.graphs.barbell(6), [3, 9, 14, 2, 17, 6], {}),
    "path": (cs.graphs.path(4), [3, 9, 14, 2], {}),
    "random": (cs.graphs.erdos_renyi(6, 0.5, seed=3), [3, 9, 14, 2, 17, 6], {}),
    "minibatches on a star": (cs.graphs.star(4), [12, 30, 8, 20], {"batch_size": 4, "batches": "replacement"}),
    "minibatches on a barbell": (
        cs.graphs.barbell(6),
        [5, 9, 14, 12, 7, 6],
        {"batch_size": 3, "batches": "replacement"},
    ),
}
SPREAD = {
    "barbell": ("kinetic, three exchanges", "langevin, one exchange"),
    "path": ("kinetic, one exchange", "langevin, common noise"),
    "random": ("kinetic, common noise", "langevin, three exchanges"),
    "minibatches on a star": ("kinetic, one exchange", "langevin, three exchanges"),
    "minibatches on a barbell": ("kinetic, common noise", "langevin, one exchange"),
}
"""Only corrected samplers, which have a mixing of their own, go through these: one of each in every combination."""
QUICK = ("ring", "minibatches", "minibatches on a star")


@pytest.fixture(params=EVERY)
def sampler(request):
    return EVERY[request.param]()


def said(sampler, state, gradient=POSITION, noise=ZERO, k=0):
    numbers = sampler.coefficients(k, 3)
    return (
        sampler.share(state) if isinstance(sampler, SpeaksFirst) else sampler.share(state, gradient, numbers, noise)
    )


def stepped(sampler, state, gradient, disagreement, noise, k=0):
    """One step of one agent, as `kernel.step` makes it."""
    numbers, message = sampler.coefficients(k, 3), said(sampler, state, gradient, noise, k)
    heard = mixed(message, lambda _: disagreement, sampler.mixing(RING, numbers))
    return sampler.step(state, gradient, message, heard, numbers, noise)


def test_every_sampler_has_a_constructor_in_the_table():
    assert sorted({**CONSTRUCTORS, **TUNED}) == sorted(SAMPLERS)
    assert {make().kind for make in MADE.values()} == {
        name for name, kind in SAMPLERS.items() if issubclass(kind, Gossip)
    }
    assert {make().kind for make in WITHOUT_NUMBERS.values()} == {
        name for name, kind in SAMPLERS.items() if issubclass(kind, Gossip) and kind.tunes_by_default
    }
    assert all(getattr(cs, name) for name in SAMPLERS)


def test_position_is_what_was_given(sampler):
    found = sampler.position(sampler.init(POSITION))
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), found, POSITION))


def test_a_step_keeps_structure_shape_and_dtype(sampler):
    state = sampler.init(POSITION)
    apart = jax.tree.map(jnp.zeros_like, said(sampler, state))
    after = stepped(sampler, state, POSITION, apart, POSITION)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    assert jax.tree.map(jnp.result_type, after) == jax.tree.map(jnp.result_type, state)


def test_step_is_pure_and_compiles(sampler):
    state = sampler.init(POSITION)
    apart = jax.tree.map(jnp.ones_like, said(sampler, state))
    once = stepped(sampler, state, POSITION, apart, POSITION, 5)
    again = jax.jit(lambda k: stepped(sampler, state, POSITION, apart, POSITION, k))(5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), once, again)


def test_leaves_are_what_the_sampler_says(sampler):
    """Vectors have an entry for each parameter, numbers have not: engines that spread vectors rely on it."""
    for size in (5, 7):
        state = sampler.init(jnp.ones(size))
        kinds = jax.tree.map(lambda k, part: jax.tree.map(lambda _: k, part), sampler.state_leaves, state)
        for kind, leaf in zip(jax.tree.leaves(kinds), jax.tree.leaves(state), strict=True):
            assert (leaf.shape == (size,)) == (kind is Leaf.VECTOR)


def test_agents_that_agree_and_see_no_noise_descend_together(sampler):
    """Without noise and disagreement a step moves against the gradient, the further the larger it is."""
    state = sampler.init(POSITION)
    apart = jax.tree.map(jnp.zeros_like, said(sampler, state))
    after = sampler.position(stepped(sampler, state, POSITION, apart, ZERO))
    assert jax.tree.all(jax.tree.map(lambda new, old: ((new - old) < 0).all(), after, POSITION))


def test_mixing_keeps_the_average_and_shrinks_disagreement(sampler):
    """On a path, whose agents have different numbers of neighbours."""
    graph = cs.graphs.path(5)
    message = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))
    mixing = sampler.mixing(graph, sampler.coefficients(3, 5))
    after = np.asarray(mixed(message, make_disagreement(graph, message.dtype), mixing))
    np.testing.assert_allclose(after.mean(0), message.mean(0), atol=1e-6)
    assert after.std(0).max() < np.asarray(message).std(0).max()


def test_what_the_program_asks_is_answered(sampler):
    graph = cs.graphs.ring(3)
    for finding in [*sampler.findings(graph, 100, None), *sampler.findings(graph, 100, 2.0)]:
        assert isinstance(finding, Finding)
    weights = sampler.weights(np.array([1, 10, 100]))
    assert weights.shape == (3,)
    assert (weights > 0).all()
    assert sampler.method(1)
    assert sampler.method(5)
    assert sampler.describe(100)
    found = type(sampler).suggest(Landscape(2.0, 5.0, "made up"), graph, 1000)
    assert found.sampler.kind == sampler.kind
    assert found.reasons
    assert all(finding.level != "error" for finding in found.sampler.findings(graph, 1000, 2.0))


@pytest.mark.parametrize("name", MADE)
def test_a_plan_holds_it(name):
    sampler = MADE[name]()
    plan = cs.Plan(graph=cs.graphs.ring(3), sampler=sampler, num_steps=9)
    assert cs.Plan.from_toml(plan.to_toml()).sampler == sampler
    assert set(sampler.options) <= set(type(sampler).model_fields)


@pytest.mark.parametrize(("kind", "how"), [(kind, how) for kind, ways in TUNED.items() for how in ways])
def test_a_sampler_in_unison_answers_and_a_plan_holds_it(kind, how):
    sampler, graph = TUNED[kind][how](), cs.graphs.ring(3)
    assert {finding.level for finding in sampler.findings(graph, 100, None)} == {"ok"}
    assert (sampler.weights(np.array([1, 10])) == 1).all()
    assert sampler.method(1) != sampler.method(5)
    assert sampler.describe(100)
    assert sampler.temperature == 1
    assert type(sampler).from_numbers(graph, {"target_acceptance": 0.9}).target_acceptance == 0.9
    plan = cs.Plan(graph=graph, sampler=sampler, num_draws=9)
    assert cs.Plan.from_toml(plan.to_toml()) == plan
    assert set(sampler.options) <= set(type(sampler).model_fields)


@functools.cache
def known_of(case):
    """The problem of a case, and what is known of it exactly."""
    graph, sizes, entries = LAWS[case]
    problem = regression(sizes, noise_variance=4.0)
    return problem, GaussianNetwork.of(problem, graph, with_rows="batch_size" in entries)


def moments_of(law, num_steps, batch_size=None):
    return law.positions(law.after(num_steps, batch_size=batch_size))


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=[] if quick else [pytest.mark.slow(reason="4,000 chains of one more network")])
        for case in LAWS
        for name in MADE
        for quick in [name.endswith(CHARACTERISTIC) and case in QUICK]
        if (name in SPREAD[case] if case in SPREAD else case == "ring" or name.endswith(CHARACTERISTIC))
        if (name, case) != ("langevin, three exchanges", "minibatches")  # on a star instead
    ],
)
def test_sampler_follows_its_exact_law(name, case):
    """Mean and covariance of all agents after 30 steps of 4,000 chains; false-alarm rate 1e-6 each."""
    graph, _, entries = LAWS[case]
    problem, network = known_of(case)
    plan = cs.Plan(graph=graph, sampler=MADE[name](), num_steps=30, num_chains=4000, **entries)
    exact = moments_of(ExactLaw(network, plan.sampler), 30, plan.batch_size)
    positions = final_positions(problem, plan)
    assert not rejects_mean(positions, exact.mean, 1e-6)
    assert not rejects_covariance(positions, exact.mean, exact.covariance, 1e-6)


@pytest.mark.parametrize("name", [name for name in MADE if name.endswith(CHARACTERISTIC)])
def test_noise_of_variance_one_instead_of_n_is_caught(name):
    """The control: a temperature of 1/n is what such a mistake amounts to."""
    graph, problem, sampler = cs.graphs.ring(3), regression([4, 7, 12], noise_variance=4.0), MADE[name]()
    colder = sampler.model_copy(update={"temperature": sampler.temperature / 3})
    plan = cs.Plan(graph=graph, sampler=sampler, num_steps=30, num_chains=4000)
    exact = moments_of(ExactLaw(GaussianNetwork.of(problem, graph), sampler), 30)
    wrong = final_positions(problem, plan, Simulation(problem, plan.replace(sampler=colder)))
    assert rejects_covariance(wrong, exact.mean, exact.covariance, 1e-6)


def test_the_law_by_linearising_is_the_papers_recursion():
    """Of D-ULA the recursion is known by hand, with minibatches too."""
    graph, problem = cs.graphs.path(3), regression([12, 30, 8], noise_variance=4.0)
    network, sampler = GaussianNetwork.of(problem, graph, with_rows=True), CONSTRUCTORS["dula"]["falling"]()
    start = Moments(np.arange(6.0), np.diag(np.arange(1.0, 7.0)))
    for batch_size in (None, 4):
        *_, by_hand = network.evolve(sampler, start, 20, batch_size)
        law = ExactLaw(network, sampler)
        found = law.positions(law.after(20, start, batch_size))
        np.testing.assert_allclose(found.mean, by_hand.mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.covariance, by_hand.covariance, rtol=1e-9, atol=1e-12)
    settled, by_modes = law.positions(law.stationary(7)), network.stationary(sampler, 7)
    np.testing.assert_allclose(settled.mean, by_modes.mean, rtol=1e-8)
    np.testing.assert_allclose(settled.covariance, by_modes.covariance, rtol=1e-8, atol=1e-12)


def test_the_average_of_agents_that_agree_samples_the_posterior():
    """With a small step the stationary law of the network's average is the posterior, for every sampler."""
    graph, problem = cs.graphs.complete(3), regression([6, 9, 12], noise_variance=1.0)
    network = GaussianNetwork.of(problem, graph)
    for make in MADE.values():
        sampler = make()
        if sampler.temperature != 1:
            continue
        small = type(sampler)(**{**sampler.model_dump(), "step_size": 1e-4})
        law = ExactLaw(network, small)
        average = network.average(law.positions(law.stationary()))
        np.testing.assert_allclose(average.mean, network.posterior.mean, atol=0.02)
        np.testing.assert_allclose(average.covariance, network.posterior.covariance, rtol=0.03, atol=1e-4)
