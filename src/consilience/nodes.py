"""A node's life: join the network, sample with the neighbours, serve them until they are done too, report.

A node that is killed and started again goes on from its own checkpoint. The messages it had sent before are kept with
the checkpoints (`outbox/STEP.npz` has those since the one before), later ones are computed again, and those it missed
it asks for: the draws are the same as without the interruption, to the bit. Neighbours keep messages for the
checkpoint before the last one, in case the last one is damaged. A node that is done and is started again serves
neighbours that are not.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from consilience import experiments
from consilience.checks import check, require_stable
from consilience.engines.peers.measurements import served
from consilience.engines.peers.node import Node, outbox_file
from consilience.engines.peers.settings import NodeSettings
from consilience.errors import Interrupted, PlanWarning, RunError
from consilience.loop import Sampling, ShowProgress, restore, stopped_by_signals
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs import RunDirectory
from consilience.runs.files import disk_errors, write_bytes, write_json
from consilience.runs.summary import summarise
from consilience.sampling import Run

log = logging.getLogger("consilience.peers")
_LINGER_SECONDS = 1.5
_NOBODY_SECONDS = 20.0  # for which a node that was done before looks for neighbours that need it


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
            state, step = (node.initial_state(), plan.num_steps) if run.complete else restore(run, node)
            if step:
                _load_outbox(run, node, step)
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
        if run.status["on_loss"] != settings.on_loss:
            raise RunError(
                f'{settings.run} began with on_loss = "{run.status["on_loss"]}": set it back in the node\'s file, or '
                "begin a new network"
            )
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
    run = Run(settings.run)
    run.update_status(on_loss=settings.on_loss)
    return run


def _serve(
    run: Run, node: Node, state: Any, step: int, settings: NodeSettings, progress: ShowProgress | None
) -> None:
    was_done = run.complete
    node.neighbours_done = set(run.status.get("neighbours_done", []))
    if not was_done:
        node.compile()
    node.connect(step, state)
    about = {"round": step}
    log.info("agent %d joins at round %d, %s", settings.agent, step, settings.place, extra=about)
    try:
        if not was_done:
            sampling = _NodeSampling(run, node, progress, settings.checkpoint_seconds)
            node.stop = sampling.stop
            sampling.go(state, step)
        node.finish()
        if not (run.path / "summary.json").exists():
            write_json(run.path / "summary.json", _summary(run, node))
        log.info("agent %d is done", settings.agent)
        with stopped_by_signals(node.stop):
            _serve_others(run, node, was_done)
    finally:
        node.close()


def _serve_others(run: Run, node: Node, was_done: bool) -> None:
    """Stay until the neighbours are done; a node that was done before looks for some time whether they are there."""
    agent, began = node.settings.agent, time.monotonic()
    while waiting := node.linger(min(10.0, _NOBODY_SECONDS / 2)):
        run.update_status(neighbours_done=sorted(node.neighbours_done))
        if node.stop.is_set():
            raise Interrupted(
                f"agent {agent} is done, but was stopped before agent {waiting[0]}: start it again if that needs it"
            )
        if was_done and time.monotonic() - began > _NOBODY_SECONDS and not node.alive.intersection(waiting):
            log.info("agent %d was done and finds agent %d not here: start it if that needs it", agent, waiting[0])
            return
        log.info("agent %d is done and serves agent %s, which is not", agent, waiting[0])
    run.update_status(neighbours_done=sorted(node.neighbours_done))
    threading.Event().wait(_LINGER_SECONDS)  # neighbours ask every third of a second whether this node is done


class _NodeSampling(Sampling):
    """Sampling whose checkpoints hold the messages that neighbours may still ask for."""

    engine: Node
    again = "consilience node FILE"
    segment_seconds = 2.0  # a node shares its machine with its rounds: it writes less often

    def _loop(self, state: Any, step: int, writer: ThreadPoolExecutor) -> tuple[int, Any]:
        self.kept_step = step
        step, state = super()._loop(state, step, writer)
        if step == self.plan.num_steps:
            with disk_errors(self.run.path):
                self._keep_messages(step)
        return step, state

    def _checkpoint(self, state: Any, step: int) -> None:
        if step > self.kept_step:
            self._keep_messages(step)
            super()._checkpoint(state, step)
            self.engine.durable, self.kept_step = self.kept_step, step

    def _keep_messages(self, step: int) -> None:
        """Write the messages since the last checkpoint, and remove those that nobody can ask for any more."""
        outbox, place = self.engine.outbox, outbox_file(self.run.path, step)
        place.parent.mkdir(exist_ok=True)
        outbox.save(place, range(self.kept_step, step), write_bytes)
        for old, path in _outbox_files(self.run).items():
            if old <= outbox.oldest:
                path.unlink()


def _outbox_files(run: RunDirectory) -> dict[int, Path]:
    """The files of kept messages, by the step that they reach."""
    return {int(path.stem): path for path in (run.path / "outbox").glob("*.npz")}


def _load_outbox(run: RunDirectory, node: Node, step: int) -> None:
    """Take up the messages that were kept up to a checkpoint, or to the end; later ones will be computed again."""
    for last, path in sorted(_outbox_files(run).items()):
        if last > step:
            path.unlink()
            continue
        try:
            node.outbox.load(path)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise RunError(
                f"the messages in {path} cannot be read ({error}), and a neighbour may need them: restore the file, "
                "or remove it if all neighbours are beyond that step"
            ) from None


def _summary(run: Run, node: Node) -> dict[str, Any]:
    """The node's own summary: its agent's draws, what they predict, and how the network treated it."""
    summary = summarise(run)
    experiment = experiments.find(run.plan.problem)
    if experiment is not None and not experiment.needs_all_data:
        experiment.analyse(run, node.problem, summary, lambda share: None)
        run.update_status(analysed=True)
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
