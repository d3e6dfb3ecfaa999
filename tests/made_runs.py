"""Runs whose draws are given, without sampling: what is made of them is then known exactly."""

import jax
import jax.numpy as jnp
import numpy as np

import consilience as cs
from consilience.engines.base import Storage
from consilience.engines.unison import MEASURED
from consilience.experiments.finishing import finish_run
from consilience.kernel.parameters import Parameters
from consilience.runs.directory import RunDirectory
from consilience.runs.names import notes_of


def unison_plan(num_agents, num_draws, num_chains=2, **entries):
    return cs.Plan(
        graph=cs.graphs.path(num_agents), sampler=cs.hmc(), num_warmup=20, num_draws=num_draws,
        num_chains=num_chains, **entries,
    )  # fmt: skip


def gossip_plan(num_agents, num_draws, num_chains=2, **entries):
    return cs.Plan(
        graph=cs.graphs.complete(num_agents), sampler=cs.dula(1e-3, 0.1), num_steps=num_draws,
        num_chains=num_chains, dtype="float64", **entries,
    )  # fmt: skip


def made_run(path, problem, plan, draws, *, agents=None, finish=True, **about):
    """A complete run with the given draws, by name: `(chain, agent, draw, …)`, or without `agent` where it is shared.

    With agents it is the run of their node.
    """
    numbers = np.arange(problem.num_agents) if agents is None else np.array(agents)
    unison = plan.sampler.tunes_itself
    with jax.enable_x64(True):
        parameters = Parameters.of(problem, jnp.float64)
        shared = frozenset(parameters.names) - parameters.private
        storage = Storage(
            numbers, slice(None), len(numbers), MEASURED if unison else ("consensus_error",), plan.num_steps,
            without_agents=shared if unison else frozenset(),
        )  # fmt: skip
        entries = {"engine": "simulate", "problem_name": problem.name, "data_digest": "none", **about}
        with RunDirectory.created(path, plan, parameters, storage, entries, notes_of(problem, parameters)):
            run = cs.Run(path)
            count = plan.num_stored
            steps = plan.burn_in + 1 + np.arange(count)
            given = {name: np.asarray(values, plan.dtype) for name, values in draws.items()}
            run.draw_group().append({**given, "draw": np.arange(count), "step": steps, "weight": np.ones(count)})
            times = np.arange(1, plan.num_steps + 1)
            noise = np.random.default_rng(0).normal(size=(plan.num_chains, len(times)))
            measured = {name: np.ones((plan.num_chains, len(times))) for name in storage.metrics}
            if unison:
                measured |= {"energy": noise, "diverging": np.zeros_like(noise)}
            run.metric_group().append({**measured, "step": times})
            timing = {"compile_seconds": 0.0, "sampling_seconds": 1.0, "steps_per_second": 1.0}
            run.update_status(status="complete", step=plan.num_steps, timing=timing)
            if finish:
                finish_run(run, problem)
    return cs.Run(path)
