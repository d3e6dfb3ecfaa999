import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import consilience as cs
from consilience.engines.simulate import Simulation
from consilience.errors import PlanError, ProblemError
from consilience.experiments import EXPERIMENTS
from consilience.kernel.gradients import local_gradient, network_gradients
from consilience.kernel.parameters import Parameters
from tests.gaussian import regression
from tests.hierarchical import sites


def plan_for(problem, **changes):
    entries = {"graph": cs.graphs.ring(problem.num_agents), "sampler": cs.dula(1e-3, 0.2), "num_steps": 10}
    return cs.Plan(**{**entries, **changes})


def simple(**changes):
    entries = {
        "log_likelihood": lambda w, x: -0.5 * (x - w) ** 2,
        "log_prior": lambda w: -0.5 * w**2,
        "init": lambda key: jnp.zeros(()),
        "shards": [np.ones(4, np.float32), np.zeros(6, np.float32)],
    }
    return cs.Problem(**{**entries, **changes})


@pytest.mark.parametrize("problem", [EXPERIMENTS["gmm"].problem(3), regression([5, 9, 4], 12)], ids=["few", "many"])
def test_gradients_are_those_of_finite_differences(problem):
    """∇U_i by central differences in double precision, for a small and a larger number of parameters."""
    with jax.enable_x64(True):
        parameters = Parameters.of(problem, jnp.float64)
        w = jax.random.normal(jax.random.key(0), (parameters.size,))
        for agent, shard in enumerate(problem.shards):
            rows = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), shard)

            def potential(w, rows=rows):
                tree = parameters.unravel(w)
                return -problem.log_likelihood(tree, rows).sum() - problem.log_prior(tree) / problem.num_agents

            ahead = [potential(w + 1e-5 * e) - potential(w - 1e-5 * e) for e in jnp.eye(parameters.size)]
            found = local_gradient(problem, parameters)(w, rows, None, 1.0)
            np.testing.assert_allclose(found, np.array(ahead) / 2e-5, rtol=1e-6, atol=1e-6, err_msg=str(agent))


@pytest.mark.parametrize("num_features", [2, 12])
@pytest.mark.parametrize("per_chain", [False, True])
def test_all_agents_at_once_equals_one_by_one(num_features, per_chain):
    problem = regression([5, 5, 5], num_features)
    parameters = Parameters.of(problem, jnp.float32)
    data = problem.stacked_shards(jnp.float32)
    if per_chain:
        data = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), data)
    w = jax.random.normal(jax.random.key(1), (2, 3, num_features))
    weights = jnp.asarray(np.random.default_rng(0).integers(0, 2, (3, 5)), jnp.float32)
    scale = jnp.array([1.0, 2.0, 0.5])
    found = network_gradients(problem, parameters)(w, data, weights, scale, per_chain)
    single = local_gradient(problem, parameters)
    for c in range(2):
        for i in range(3):
            rows = jax.tree.map(lambda leaf, c=c, i=i: leaf[c, i] if per_chain else leaf[i], data)
            np.testing.assert_allclose(found[c, i], single(w[c, i], rows, weights[i], scale[i]), rtol=1e-4, atol=1e-4)


def test_the_prior_is_shared_out_and_the_likelihood_is_a_sum():
    """The local gradients add up to the gradient of the global posterior."""
    problem = regression([4, 7, 9], 3)
    parameters = Parameters.of(problem, jnp.float32)
    w = jnp.array([0.3, -1.0, 2.0])
    local = sum(local_gradient(problem, parameters)(w, shard, None, 1.0) for shard in problem.shards)
    pooled = jax.tree.map(lambda *leaves: np.concatenate(leaves), *problem.shards)
    whole = cs.Problem(problem.log_likelihood, problem.log_prior, problem.init, [pooled])
    np.testing.assert_allclose(local, local_gradient(whole, parameters)(w, pooled, None, 1.0), rtol=1e-5)


def test_pytrees_become_named_variables():
    problem = simple(init=lambda key: {"b": jnp.zeros(3), "a": {"c": jnp.ones((2, 2))}}, log_likelihood=None)
    parameters = Parameters.of(problem, jnp.float32)
    assert parameters.names == ("a.c", "b")
    assert [(part.start, part.stop) for part in parameters.parts] == [(0, 4), (4, 7)]
    tree = parameters.unravel(jnp.arange(7.0))
    assert tree["a"]["c"].shape == (2, 2)
    assert tree["b"].tolist() == [4.0, 5.0, 6.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shards": []}, "at least one shard"),
        ({"shards": [np.ones(3), np.zeros(0)]}, "shard of agent 1 is empty"),
        ({"shards": [np.ones(3), {}]}, "holds no array"),
        ({"shards": [np.ones(3), np.float32(1)]}, "scalar"),
        ({"shards": [["a", "b"]]}, r"a scalar \(str\): .* a column of numbers is one array"),
        ({"shards": [(np.ones(3), np.ones(4))]}, "3 and 4 rows"),
        ({"shards": [np.ones((3, 2)), np.ones((3, 5))]}, "same arrays at every agent"),
        ({"shards": [np.ones(3, np.float32), np.ones(3, np.float64)]}, "float32.*float64"),
        ({"log_likelihood": lambda w, x: (-0.5 * (x - w) ** 2).sum()}, "returned a scalar"),
        ({"log_likelihood": lambda w, x: jnp.zeros((len(x), 2))}, r"shape \(6, 2\) for 6 rows"),
        ({"log_likelihood": lambda w, x: jnp.zeros(len(x), int)}, "dtype int"),
        ({"log_likelihood": lambda w, x: jnp.where(x > 0, jnp.nan, w)}, "nan at the start for agent 0, row 0"),
        ({"log_likelihood": lambda w, x: jnp.where(x < 1, -jnp.inf, w)}, "-inf at the start for agent 1, row 0"),
        ({"log_likelihood": lambda w, x: w["nope"]}, "cannot be evaluated"),
        ({"log_likelihood": lambda w, x: jnp.sqrt(w) - x}, "gradient of the log-posterior is not finite"),
        ({"log_prior": lambda w: jnp.zeros(2)}, "expected a scalar"),
        ({"log_prior": lambda w: w - jnp.inf}, "log_prior is -inf at the start of agent 0"),
        ({"init": lambda key: {"step": jnp.zeros(())}}, "'step' is used for something else"),
        ({"init": lambda key: {"a.b": jnp.zeros(()), "a": {"b": jnp.zeros(())}}}, "'a.b' occurs twice"),
        ({"init": lambda key: {"a": jnp.zeros((0, 3))}}, "leave it out"),
        ({"init": lambda key: {}}, "no arrays"),
        ({"init": lambda key: jnp.zeros((), int)}, "must be floating-point"),
        ({"init": lambda key: {"a": np.zeros(2), "b": np.zeros(2, np.float32)}}, "mixes dtypes"),
    ],
)
def test_bad_problems_are_refused_with_the_reason(changes, words):
    def prepare():
        problem = simple(**changes)
        Simulation(problem, plan_for(problem))

    with pytest.raises(ProblemError, match=words):
        prepare()


def test_shards_and_batches_must_fit_the_plan():
    problem = simple()
    with pytest.raises(ProblemError, match="2 shards but the graph has 5 agents"):
        Simulation(problem, plan_for(problem, graph=cs.graphs.ring(5)))
    with pytest.raises(PlanError, match="larger than the shard of agent 0"):
        Simulation(problem, plan_for(problem, batch_size=5))


def test_fingerprint_tells_data_apart():
    assert simple().fingerprint() == simple().fingerprint()
    other = simple(shards=[np.ones(4, np.float32), np.full(6, 1e-7, np.float32)])
    assert other.fingerprint() != simple().fingerprint()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"private": ("w",)}, "there is no log_private"),
        ({"log_private": lambda w: -(w**2)}, "no private parameter"),
        ({"private": "w", "log_private": lambda w: -(w**2)}, "a tuple of names"),
        ({"init": [lambda key: jnp.zeros(())]}, "1 functions for 2 shards"),
    ],
)
def test_private_parameters_and_starts_must_fit(changes, words):
    with pytest.raises(ProblemError, match=words):
        simple(**changes)


def test_what_belongs_to_agents_goes_with_them_and_cannot_be_divided():
    starts = [lambda key: jnp.zeros(()), lambda key: jnp.ones(())]
    problem = simple(init=starts)
    assert problem.of_agent(1).init == starts[1:]
    with pytest.raises(ProblemError, match="own init"):
        problem.divided(3)
    with pytest.raises(ProblemError, match="effect is private"):
        sites([3, 4]).divided(3)


def test_a_prior_of_private_parameters_is_refused():
    problem = dataclasses.replace(sites([3, 4]), log_prior=lambda p: -(p["mean"] ** 2) - p["effect"] ** 2)
    with pytest.raises(ProblemError, match="move what it says about that parameter to log_private"):
        Simulation(problem, plan_for(problem))


def test_constraints_and_privacy_are_part_of_the_fingerprint():
    plain, positive = simple(), simple(constraints={"w": "positive"})
    assert plain.fingerprint() == simple().fingerprint() != positive.fingerprint()


def test_shards_that_differ_are_described_in_words():
    with pytest.raises(ProblemError) as found:
        simple(shards=[(np.ones(3), np.ones((3, 2))), np.ones(3)])
    assert "agent 0 has 2 arrays ([0]: float64, one number a row; [1]: float64, 2 numbers a row)" in str(found.value)
    assert "PyTreeDef" not in str(found.value)


def test_a_column_of_strings_is_refused_before_jax_sees_it():
    with pytest.raises(ProblemError, match="turn text and dates into numbers"):
        simple(shards=[np.array(["a", "b", "c"]), np.array(["a", "b", "c"])])


@pytest.mark.parametrize(
    ("missing", "words"),
    [(False, "'s' starts at 0.*constraints={'s': 'positive'}"), (True, "missing or infinite value; leave it out")],
)
def test_a_scale_that_starts_at_0_is_told_from_a_missing_value(missing, words):
    rows = np.array([0.5, np.nan if missing else 1.0])
    problem = simple(
        log_likelihood=lambda w, x: -0.5 * ((x - w["m"]) / w["s"]) ** 2 - jnp.log(w["s"]),
        log_prior=lambda w: -(w["m"] ** 2) - w["s"],
        init=lambda key: {"m": jnp.zeros(()), "s": jnp.asarray(float(missing))},
        shards=[rows, rows],
    )
    with pytest.raises(ProblemError, match=words):
        Simulation(problem, plan_for(problem))
