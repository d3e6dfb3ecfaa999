"""Engines are values with one protocol: the same call, the same draws."""

import numpy as np
import pytest

import consilience as cs
from consilience.errors import InputError, RunError
from tests.gaussian import regression

PROBLEM = regression([5, 8, 6])
PLAN = cs.Plan(graph=cs.graphs.ring(3), sampler=cs.sghmc(0.01, 0.2, friction=1.5), num_steps=40, store_every=2)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return cs.sample(PROBLEM, PLAN, tmp_path_factory.mktemp("engines") / "simulate")


@pytest.mark.parametrize("engine", [
    "mesh",
    cs.Mesh(devices=1),
    "peers",
    pytest.param(cs.Peers(patience=5.0), marks=pytest.mark.slow(reason="one more network")),
], ids=str)  # fmt: skip
def test_a_problem_in_python_is_sampled_by_every_engine(engine, simulated, tmp_path):
    shown = []
    run = cs.sample(PROBLEM, PLAN, tmp_path / "run", engine=engine, progress=shown.append)
    assert run.complete
    assert run.summary["consensus_error"] > 0
    assert shown
    np.testing.assert_allclose(run.draws["w"].sortby("agent"), simulated.draws["w"].to_numpy(), rtol=2e-5, atol=2e-5)
    with pytest.raises(RunError, match="already holds a run"):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", engine=engine)


def test_a_name_that_is_no_engines():
    with pytest.raises(InputError, match="unknown engine 'cloud': choose one of simulate, mesh, peers"):
        cs.sample(PROBLEM, PLAN, engine="cloud")


@pytest.mark.parametrize(
    ("problem", "plan", "words"),
    [
        (PROBLEM, "ring", r"a cs\.Plan or a graph, not str: take for example cs\.graphs\.ring\(3\)"),
        (len, PLAN, r"the problem must be a cs\.Problem, not builtin_function_or_method"),
    ],
)
def test_what_is_no_problem_and_no_plan(problem, plan, words):
    with pytest.raises(InputError, match=words):
        cs.sample(problem, plan)


def test_an_engine_is_a_value():
    assert cs.Mesh(devices=2) == cs.Mesh(devices=2) != cs.Mesh()
    with pytest.raises(InputError, match="patience"):
        cs.Peers(patience=0)
