"""The engines as a user names them: values with one protocol, each brings a run to its end.

    Simulate()               all agents in this process; the default
    Mesh(devices=4)          agents spread over devices, of one process or of several
    Peers()                  every agent a node with its own connections, over TLS on this machine

A run that is there is continued, whatever the engine: that is how a run is resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar

import jax
from pydantic import Field

from consilience import experiments
from consilience.engines.mesh.devices import DeviceSettings, prepare_devices
from consilience.engines.mesh.engine import own_agents
from consilience.engines.mesh.joining import is_alone, is_first, part
from consilience.engines.mesh.team import together
from consilience.engines.mesh.unison import mesh_stepper
from consilience.engines.simulate import simulation
from consilience.errors import InputError, MeshError
from consilience.experiments.finishing import finish_run
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs import data_files
from consilience.runs.companion import NoCompanion
from consilience.runs.directory import RunDirectory, require_free
from consilience.runs.life import live
from consilience.runs.loop import Progress, ShowProgress
from consilience.validation import Record

T = TypeVar("T")
ShowNodes = Callable[[list[dict[str, Any]]], None]


@dataclass(frozen=True)
class Task:
    """What an engine is to do.

    Attributes:
        path: the run's directory.
        plan: what to sample.
        problem: what to infer, if it is not to be loaded by the plan's entry `problem`.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        theory: hold the finished run against the theorems too.
        show_nodes: called now and then with what each node says of itself, if there are nodes.
        data: for a study, one file for each agent; by default those that the run began with.
    """

    path: Path
    plan: Plan
    problem: Problem | None = None
    progress: ShowProgress | None = None
    checkpoint_seconds: float = 10.0
    theory: bool = False
    show_nodes: ShowNodes = lambda _: None
    data: tuple[Path, ...] = ()

    @property
    def resume_command(self) -> str:
        """What to say to the shell to resume it."""
        return f"consilience resume {self.path}"

    def show_share(self, share: float) -> None:
        """Show how much of what follows sampling is done."""
        if self.progress is not None:
            steps = self.plan.num_steps
            self.progress(Progress(steps, steps, 0.0, {}, share))


class Engine(Protocol):
    """Where sampling happens."""

    name: ClassVar[str]

    def require_room(self, path: Path | None) -> None:
        """Check that a new run may be made at a place; `None` is a temporary one."""

    def require_series(self) -> None:
        """Check that it can sample the several networks of a series, one after the other."""

    def attempt(self, action: Callable[[], T]) -> T:
        """What a function returns that may fail in one of several processes alone; all of them stop if it does."""

    def run(self, task: Task) -> None:
        """Bring a run to its end, from its beginning or from where it was left."""


class _OneProcess(Record):
    """What engines have in common that the user starts as one process."""

    def require_room(self, path: Path | None) -> None:
        """Nothing may be there."""
        if path is not None:
            require_free(path)

    def require_series(self) -> None:
        """It can, one network after the other."""

    def attempt(self, action: Callable[[], T]) -> T:
        """There is one process."""
        return action()


class Simulate(_OneProcess):
    """All agents of all chains in this process.

    >>> Simulate().name
    'simulate'
    """

    name: ClassVar[str] = "simulate"

    def run(self, task: Task) -> None:
        """Bring a run to its end."""
        problem, about = _loaded(task)

        def finish(run: RunDirectory) -> None:
            finish_run(run, problem, theory=task.theory, show=task.show_share, resume_command=task.resume_command)

        with jax.enable_x64(task.plan.dtype == "float64"):
            live(
                task.path, self.name, simulation(problem, task.plan), NoCompanion(task.resume_command), finish,
                about=about, progress=task.progress, checkpoint_seconds=task.checkpoint_seconds,
            )  # fmt: skip


class Mesh(Record):
    """Agents spread over the devices of one process, or of several that have joined.

    Attributes:
        devices: how many devices to use, of all processes together; by default all there are.
        model_devices: over how many devices the parameters of an agent are spread.

    >>> Mesh(devices=4).model_devices
    1
    """

    name: ClassVar[str] = "mesh"
    mistake: ClassVar[type[InputError]] = MeshError

    devices: Annotated[int, Field(ge=1)] | None = None
    model_devices: Annotated[int, Field(ge=1)] = 1

    def require_room(self, path: Path | None) -> None:
        """Nothing may be there; the first process looks."""
        if path is None and not is_alone():
            raise MeshError("several processes need a directory that all of them see: give `out`")
        together(lambda: require_free(path) if path is not None and is_first() else None)

    def require_series(self) -> None:
        """A mesh samples one network."""
        raise MeshError("a mesh samples one network: say which with --agents")

    def attempt(self, action: Callable[[], T]) -> T:
        """All processes succeed, or all stop."""
        return together(action)

    def run(self, task: Task) -> None:
        """Bring a run to its end, together with the other processes."""
        prepare_devices(self.devices)
        settings = DeviceSettings(devices=self.devices, model_devices=self.model_devices)
        problem, about = together(lambda: _loaded(task, self._agents(task.plan, settings)))

        def finish(run: RunDirectory) -> None:
            """The first of the processes finishes; what needs all data is left out if it cannot have it."""
            if not is_alone():
                part()
            if is_first():
                finish_run(
                    run, _whole(problem, task), theory=task.theory, show=task.show_share,
                    resume_command=task.resume_command,
                )  # fmt: skip

        with jax.enable_x64(task.plan.dtype == "float64"):
            stepper = mesh_stepper(problem, task.plan, settings)
            live(
                task.path, self.name, stepper, NoCompanion(task.resume_command), finish, about=about,
                progress=task.progress, checkpoint_seconds=task.checkpoint_seconds,
            )  # fmt: skip

    def _agents(self, plan: Plan, settings: DeviceSettings) -> list[int] | None:
        """Whose shards this process loads; all if it is alone."""
        return None if is_alone() else own_agents(plan, settings).tolist()


def _loaded(task: Task, agents: list[int] | None = None) -> tuple[Problem, dict[str, Any]]:
    """The problem of a task, and what its run notes about it: where a study's files are."""
    if task.problem is not None or task.plan.study is None:
        return task.problem or experiments.load_problem(task.plan, agents, task.data), {}
    files = data_files.of_task(task.path, task.data)
    problem = experiments.load_problem(task.plan, agents, files)
    return problem, {data_files.ENTRY: data_files.noted(files, problem)}


def _whole(problem: Problem, task: Task) -> Problem:
    """The problem with all data, if an experiment or the theory asks for it and it can be had."""
    experiment = experiments.find(task.plan.problem)
    if problem.network_size is not None and experiment and (task.theory or experiment.needs_all_data):
        return experiments.load_problem(task.plan)
    return problem


class Peers(_OneProcess):
    """Every agent a node with its own connections, over TLS on this machine.

    Nodes of a problem that is given are threads of this process. On the command line, where the plan names the
    problem, each node is a process that loads its own shard alone. Over several machines: `consilience network init`,
    and a `consilience node` beside each shard.

    Attributes:
        on_loss: what a node does without a neighbour: `wait` for it, or `continue` with the others.
        patience: after how many silent seconds a neighbour counts as lost, if nodes continue.
    """

    name: ClassVar[str] = "peers"

    on_loss: Literal["wait", "continue"] = "wait"
    patience: Annotated[float, Field(gt=0)] = 30.0

    def run(self, task: Task) -> None:
        """Make a network inside the run's directory, run all its nodes here, and merge what they stored."""
        from consilience.engines.peers import require_packages

        require_packages()
        from consilience.deployment.local_network import run_here

        run_here(
            task.plan, task.path, task.problem, data=task.data, theory=task.theory, show=task.show_nodes,
            progress=task.progress,
            on_loss=self.on_loss, patience=self.patience, checkpoint_seconds=task.checkpoint_seconds,
        )  # fmt: skip


ENGINES: dict[str, type[Simulate] | type[Mesh] | type[Peers]] = {one.name: one for one in (Simulate, Mesh, Peers)}


def engine_named(engine: str | Engine) -> Engine:
    """The engine of a name, with its defaults, or the engine itself.

    >>> engine_named("mesh")
    Mesh(devices=None, model_devices=1)
    """
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    return ENGINES[engine]()
