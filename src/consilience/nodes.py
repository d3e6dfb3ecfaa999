"""A node's life: join the network, sample with the neighbours, serve them until they are done too, report.

A node that is killed and started again goes on from its own checkpoint. The messages it had sent before are part of
the checkpoint (`outbox/STEP.npz`), those after it are computed again, and those it missed it asks for: the draws are
the same as without the interruption, to the bit.
"""

from __future__ import annotations

import logging
import threading
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from consilience import experiments
from consilience.checks import check, require_stable
from consilience.engines.peers.measurements import served
from consilience.engines.peers.node import Node, outbox_file
from consilience.engines.peers.settings import NodeSettings
from consilience.errors import NetworkError, PlanWarning, RunError
from consilience.loop import Sampling, ShowProgress, restore
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs import RunDirectory
from consilience.runs.files import write_bytes, write_json
from consilience.runs.summary import summarise
from consilience.sampling import Run

log = logging.getLogger("consilience.peers")
_LINGER_SECONDS = 3.0


def run_node(settings: NodeSettings, problem: Problem | None = None, *, progress: ShowProgress | None = None) -> Run:
    """Sample as one agent of a network, from its checkpoint if there is one, until the plan is done.

    Args:
        settings: who and where the node is.
        problem: what this agent knows (one shard); by default what the plan names.
        progress: called now and then with how far the node is.
    """
    plan = Plan.load(settings.plan)
    settings.require_fitting(plan)
    problem = problem or own_problem(plan, settings.agent)
    with jax.enable_x64(plan.dtype == "float64"):
        node = Node(problem, plan, settings)
        run = _opened(settings, problem, plan, node)
        with run.locked(), served(settings.metrics, node):
            state, step = restore(run, node)
            if step:
                node.outbox.load(outbox_file(run.path, step))
            _serve(run, node, state, step, settings, progress)
    return run


def own_problem(plan: Plan, agent: int) -> Problem:
    """What one agent of a plan knows: its own shard alone."""
    return experiments.load_problem(plan, [agent])


def _opened(settings: NodeSettings, problem: Problem, plan: Plan, node: Node) -> Run:
    """The node's run directory, new or as it was left."""
    if (settings.run / "plan.toml").is_file():
        run = Run(settings.run)
        if run.plan.digest() != plan.digest():
            raise RunError(f"{settings.run} belongs to another plan: give the node a new run directory")
        if run.status["data_digest"] != problem.fingerprint():
            raise RunError(f"the data of agent {settings.agent} has changed since {settings.run} began: restore it")
        run.update_status(restarts=run.status.get("restarts", 0) + 1)
        return run
    for finding in check(plan):
        if finding.level == "warning":
            warnings.warn(PlanWarning(str(finding), finding.topic), stacklevel=3)
    require_stable(check(plan))
    Run.create(
        settings.run, problem, plan, node.parameters, plan.num_steps, "peers", [settings.agent],
        presence=node.continues,
    )  # fmt: skip
    return Run(settings.run)


def _serve(
    run: Run, node: Node, state: Any, step: int, settings: NodeSettings, progress: ShowProgress | None
) -> None:
    node.compile()
    node.connect(step, state)
    about = {"round": step}
    log.info("agent %d joins at round %d, %s", settings.agent, step, settings.place, extra=about)
    try:
        if not run.complete:
            sampling = _NodeSampling(run, node, progress, settings.checkpoint_seconds)
            node.stop = sampling.stop
            sampling.go(state, step)
            _keep_outbox(run, node, node.plan.num_steps)
        node.finish()
        if not (run.path / "summary.json").exists():
            write_json(run.path / "summary.json", _summary(run, node))
        log.info("agent %d is done", settings.agent)
        while waiting := node.linger(10.0):
            if node.stop.is_set():
                raise NetworkError(f"agent {settings.agent} is done, but stopped before agent {waiting[0]} was")
            log.info("agent %d is done and serves agent %s, which is not", settings.agent, waiting[0])
        threading.Event().wait(_LINGER_SECONDS)  # neighbours ask every third of a second whether this node is done
    finally:
        node.close()


class _NodeSampling(Sampling):
    """Sampling whose checkpoints hold the messages that neighbours may still ask for."""

    engine: Node
    again = "consilience node FILE"

    def _checkpoint(self, state: Any, step: int) -> None:
        _keep_outbox(self.run, self.engine, step)
        super()._checkpoint(state, step)
        self.engine.durable = step


def _keep_outbox(run: RunDirectory, node: Node, step: int) -> None:
    """Write the kept messages before a step; the files of the last two checkpoints stay."""
    place = outbox_file(run.path, step)
    place.parent.mkdir(exist_ok=True)
    node.outbox.save(place, step, write_bytes)
    for old in sorted(place.parent.glob("*.npz"), key=lambda path: int(path.stem))[:-3]:
        old.unlink()


def _summary(run: Run, node: Node) -> dict[str, Any]:
    """The node's own summary: its agent's draws, and how the network treated it."""
    summary = summarise(run)
    timing = run.status.get("timing", {})
    return {
        **summary,
        "agent": node.settings.agent,
        "rounds_per_second": timing.get("steps_per_second"),
        "messages": {name: node.counts[name] for name in ("sent", "received", "rejected")},
        "restarts": run.status.get("restarts", 0),
        "participation": participation(run),
    }


def participation(run: Run) -> list[float]:
    """The share of a node's draws in which each agent's data counted."""
    draws = run.draws
    if "participation" not in draws.coords:
        return [1.0] * run.plan.num_agents
    return draws["participation"].mean("draw").to_numpy().tolist()


def network_draws(paths: list[Path]) -> dict[str, np.ndarray]:
    """The draws that several nodes have in common, `(chain, agent, draw, …)` by variable, in the agents' order."""
    runs = sorted((Run(path) for path in paths), key=lambda run: int(run.draws["agent"][0]))
    common = sorted(set.intersection(*(set(run.draws["draw"].to_numpy().tolist()) for run in runs)))
    names = runs[0].draws.attrs["parameters"]
    return {name: np.concatenate([np.asarray(run.draws[name].sel(draw=common)) for run in runs], 1) for name in names}
