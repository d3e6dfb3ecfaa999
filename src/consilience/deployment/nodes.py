"""A node's life: the life of every run (`runs/life.py`), and beside it the node's part in its network.

A node joins, samples with its neighbours, and serves them until they are done too. One that is killed and started
again resumes from its own checkpoint. The messages it had sent before are kept with the checkpoints
(`outbox/STEP.npz` has those since the one before), later ones are computed again, and those it missed it asks for:
the draws are the same as without the interruption, to the bit. Neighbours keep messages for the checkpoint before the
last one, in case the last one is damaged. A node that is done and is started again serves neighbours that are not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from consilience import experiments, studies
from consilience.deployment.codebooks import plan_of_node
from consilience.deployment.node_log import progress_log
from consilience.engines.peers.clock import Clock
from consilience.engines.peers.corrected_node import CorrectedNode
from consilience.engines.peers.measurements import served
from consilience.engines.peers.node import Node
from consilience.engines.peers.notices import Notice
from consilience.engines.peers.refusal import Refusal
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.transport import Connect
from consilience.engines.peers.unison_node import UnisonNode
from consilience.engines.peers.zenoh_transport import by_zenoh
from consilience.errors import DivergedError, Interrupted, NetworkError, PlanError, ProblemError, RunError, SumError
from consilience.experiments.finishing import finish_run
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs.directory import RunDirectory
from consilience.runs.files import write_bytes
from consilience.runs.life import live
from consilience.runs.loop import ShowProgress
from consilience.runs.signals import stopped_by_signals
from consilience.samplers import Corrected

log = logging.getLogger("consilience.peers")
AnyNode = Node | UnisonNode
_LINGER_SECONDS = 3.0
_FINISHING_SECONDS = 3600.0  # for which a node asks whether neighbours are done while it makes its summary
_REFUSAL_SECONDS = 20.0  # for which a node that cannot continue tells neighbours, who may come later
_FORWARD_SECONDS = 5.0
_FEW_ROWS = 8192
_NOBODY_SECONDS = 20.0  # for which a node that was done before looks for neighbours that need it


def run_node(
    settings: NodeSettings,
    problem: Problem | None = None,
    *,
    progress: ShowProgress | None = None,
    connect: Connect | None = None,
    clock: Clock | None = None,
    stop: threading.Event | None = None,
    alone: bool = False,
) -> RunDirectory:
    """Sample as one agent of a network, from its checkpoint if there is one, until the plan is done.

    Args:
        settings: who and where the node is.
        problem: what this agent knows (one shard); by default what the plan names.
        progress: called now and then with how far the node is.
        connect: opens its connections; by default over the network of its settings.
        clock: by which it waits; by default the machine's.
        stop: set by whoever wants it to end early.
        alone: whether the node has this process for itself.
    """
    if alone:  # its programs are small: to hand each to another thread takes longer than to run it
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    plan = Plan.load(settings.plan)
    settings.require_fitting(plan)
    stop, found = stop or threading.Event(), None
    if problem is None and plan.study is not None:
        with stopped_by_signals(stop):
            plan, found = plan_of_node(plan, settings, own_data(settings), connect or by_zenoh(settings), clock, stop)
    problem = problem or own_problem(plan, settings)
    if alone and is_small(plan, problem):
        os.environ.setdefault("PJRT_NPROC", "1")  # XLA looks when the first program is compiled
    with jax.enable_x64(plan.dtype == "float64"):
        connect = connect or by_zenoh(settings)
        try:
            node = _node_of(problem, plan, settings, clock, alone)
        except (PlanError, ProblemError) as error:  # others need not wait for this agent
            Refusal(plan, settings, clock, str(error)).spread(connect, _REFUSAL_SECONDS)
            raise
        node.stop, node.wire.found = stop, found
        if progress is None and not plan.is_unison:  # in unison a node itself says where it is
            progress = progress_log(settings.agent, clock)
        companion = NodeCompanion(node, connect)
        with served(settings.metrics, node), _telling_others(node, connect):
            return live(
                settings.run, "peers", node, companion, companion.finish, about=_about(settings, plan),
                progress=progress, checkpoint_seconds=settings.checkpoint_seconds, stop=node.stop,
            )  # fmt: skip


def is_small(plan: Plan, problem: Problem) -> bool:
    """Whether one of XLA's threads, besides those that call it, is enough for a node in unison.

    A move is a thousand small operations. With several threads XLA hands them from one to the other, and each time a
    node waits for a core; what is worth sharing out, of many rows in all chains, is not there.
    """
    return plan.is_unison and plan.num_chains * int(problem.shard_sizes.max()) <= _FEW_ROWS


def _node_of(problem: Problem, plan: Plan, settings: NodeSettings, clock: Clock | None, alone: bool) -> AnyNode:
    """The node that a plan's sampler needs."""
    if plan.is_unison:
        return UnisonNode(problem, plan, settings, clock, alone)
    if isinstance(plan.sampler, Corrected):
        return CorrectedNode(problem, plan, settings, clock)
    return Node(problem, plan, settings, clock)


def _about(settings: NodeSettings, plan: Plan) -> dict[str, Any]:
    """What a node's run says of itself from its beginning; in unison draws do not say whose they are."""
    return {"on_loss": settings.on_loss, **({"agent": settings.agent} if plan.is_unison else {})}


@contextlib.contextmanager
def _telling_others(node: AnyNode, connect: Connect) -> Iterator[None]:
    """Tell the network if it cannot continue, for a reason of this node or one that it was told."""
    try:
        yield
    except Interrupted:
        if node.notice is None:
            raise
    except (PlanError, ProblemError, DivergedError, SumError) as error:  # others need not wait for this agent
        node.stop_for(Notice(node.settings.agent, str(error)))
        node.spread(connect, _REFUSAL_SECONDS)
        raise
    else:
        return
    node.spread(connect, _REFUSAL_SECONDS if node.notice.agent == node.settings.agent else _FORWARD_SECONDS)
    raise NetworkError(node.told)


def own_problem(plan: Plan, settings: NodeSettings) -> Problem:
    """What one agent of a plan knows: its own shard alone."""
    if plan.study is not None:
        return _own_rows(plan, settings)
    experiments.require_allowed(plan.problem, settings.allow, 'write allow = ["{}"] into the node\'s file')
    return experiments.load_problem(plan, [settings.agent])


def _own_rows(plan: Plan, settings: NodeSettings) -> Problem:
    """A study with this site's own file, and no other."""
    study = studies.of_run(plan)
    assert study is not None
    return study.site_problem(own_data(settings), plan.num_agents)


def own_data(settings: NodeSettings) -> Path:
    """This site's data file."""
    if settings.data is None:
        raise NetworkError(
            f'agent {settings.agent} has no data: write data = "FILE.csv" into agent-{settings.agent}.toml, the path '
            "of this site's rows"
        )
    return settings.data


class NodeCompanion:
    """A node's part in its network, beside the life of its run."""

    resume_command = "consilience node FILE"

    def __init__(self, node: AnyNode, connect: Connect) -> None:
        self._node, self.connect = node, connect
        self._kept_step = 0
        self._run: RunDirectory | None = None

    @contextlib.contextmanager
    def taking_part(self, run: RunDirectory, state: Any, step: int) -> Iterator[None]:
        """Join the network; at the end serve neighbours that are not done."""
        node, was_done = self._node, run.complete
        self._run, self._kept_step = run, step
        if step > 0 or was_done:
            _load_outbox(run.path, node, step)
        restarts = run.status.get("restarts")
        run.update_status(restarts=0 if restarts is None else restarts + 1)
        node.members.done = set(run.status.get("neighbours_done", []))
        node.connect(self.connect, step, state)
        log.info("agent %d joins at round %d, %s", node.settings.agent, step, node.settings.place,
                 extra={"round": step})  # fmt: skip
        try:
            yield
            if was_done:
                node.finish()
            log.info("agent %d is done", node.settings.agent)
            with stopped_by_signals(node.stop):
                self._serve_others(run, was_done)
        finally:
            node.close()

    def before_checkpoint(self, step: int) -> None:
        """Write the messages since the last checkpoint, and remove those that nobody can ask for any more."""
        if self._run is None or step <= self._kept_step:
            return
        place = _outbox_file(self._run.path, step)
        place.parent.mkdir(exist_ok=True)
        self._node.save_kept(place, self._kept_step, step, write_bytes)
        for old, path in _outbox_files(self._run.path).items():
            if old <= self._node.oldest_kept:
                path.unlink()

    def after_checkpoint(self, step: int) -> None:
        """Neighbours may forget what came before the last checkpoint but one."""
        if step > self._kept_step:
            self._node.will_not_fall_behind(self._kept_step)
            self._kept_step = step

    def finish(self, run: RunDirectory) -> None:
        """The node's own summary: its agent's draws, what they predict, and how the network treated it."""
        node = self._node

        def about_the_network(summary: dict[str, Any]) -> dict[str, Any]:
            return {
                "agent": node.settings.agent,
                "rounds_per_second": run.status.get("timing", {}).get("steps_per_second"),
                "messages": node.status()["messages"],
                **node.wire.traffic(),
                "restarts": run.status.get("restarts", 0),
                "participation": participation(run),
            }

        node.finish()  # neighbours need not wait for the summary
        if node.plan.sampler.tunes_itself:  # and this node must hear that they are done before they leave
            threading.Thread(target=node.linger, args=(_FINISHING_SECONDS,), daemon=True).start()
        finish_run(run, node.problem, resume_command=self.resume_command, extra=about_the_network)

    def _serve_others(self, run: RunDirectory, was_done: bool) -> None:
        """Stay until the neighbours are done; a node that was done before looks only for a while if they are here."""
        node = self._node
        agent, began = node.settings.agent, node.time.now()
        while waiting := node.linger(min(10.0, _NOBODY_SECONDS / 2)):
            run.update_status(neighbours_done=sorted(node.members.done))
            if node.stop.is_set():
                raise Interrupted(
                    f"agent {agent} is done, but was stopped before agent {waiting[0]}: start it again if that needs "
                    "it"
                )
            nobody = node.time.now() - began > _NOBODY_SECONDS and not node.members.here.intersection(waiting)
            if was_done and nobody:
                log.info(
                    "agent %d was done and finds agent %d not here: start it if that needs it", agent, waiting[0]
                )
                return
            log.info("agent %d is done and serves agent %s, which is not", agent, waiting[0])
        run.update_status(neighbours_done=sorted(node.members.done))
        node.time.sleep(
            threading.Event(), _LINGER_SECONDS
        )  # neighbours ask every third of a second whether it is done


def _outbox_file(run: Path, step: int) -> Path:
    """Where the kept messages of a checkpoint are."""
    return run / "outbox" / f"{step}.npz"


def _outbox_files(run: Path) -> dict[int, Path]:
    """The files of kept messages, by the step that they reach."""
    return {int(path.stem): path for path in (run / "outbox").glob("*.npz")}


def _load_outbox(run: Path, node: AnyNode, step: int) -> None:
    """Take up the messages that were kept up to a checkpoint, or to the end; later ones will be computed again."""
    for last, path in sorted(_outbox_files(run).items()):
        if last > step:
            path.unlink()
            continue
        try:
            node.load_kept(path)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise RunError(
                f"the messages in {path} cannot be read ({error}), and a neighbour may need them: restore the file, "
                "or remove it if all neighbours are beyond that step"
            ) from None


def participation(run: RunDirectory) -> list[float]:
    """The share of a node's draws in which each agent's data counted."""
    draws = run.draws
    if "participation" not in draws.coords:
        return [1.0] * run.plan.num_agents
    return draws["participation"].mean("draw").to_numpy().tolist()
