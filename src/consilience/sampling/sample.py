"""Sample a posterior over a network of agents, or resume where a run was left."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from consilience.deployment.merging import NETWORK
from consilience.errors import InputError, RunError
from consilience.graphs import Graph
from consilience.planning.defaults import default_plan
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs.life import CHECKPOINT_SECONDS, require_continuable
from consilience.runs.loop import ShowProgress
from consilience.sampling.engines import ENGINES, Engine, Peers, ShowNodes, Simulate, Task, engine_named
from consilience.sampling.run import Run


def sample(
    problem: Problem,
    plan: Plan | Graph,
    out: str | Path | None = None,
    *,
    engine: str | Engine = "simulate",
    progress: ShowProgress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    theory: bool = False,
) -> Run:
    """Sample the posterior of a problem over a network of agents.

    Args:
        problem: what to infer.
        plan: how; or only the graph, and sampler, warm-up and length are chosen: NUTS (HMC with private parameters)
            if at most 2,000 parameters are shared, four chains, until every parameter has converged or 10,000 draws
            of each chain are made.
        out: the directory for the run, which must not hold one yet; by default a temporary one.
        engine: where to sample: `simulate` keeps all agents in one program, `mesh` spreads them over all devices,
            `peers` makes each a node with its own connections; or one of `Simulate()`, `Mesh(…)` and `Peers(…)`.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        theory: hold the finished run against the theorems too, for its report; takes some seconds.
    """
    if not isinstance(problem, Problem):
        raise InputError(
            f"the problem must be a cs.Problem, not {type(problem).__name__}: make one of your functions"
        )
    if not isinstance(plan, Plan | Graph):
        raise InputError(
            f"the plan must be a cs.Plan or a graph, not {type(plan).__name__}: take for example cs.graphs.ring"
            f"({len(problem.shards)}), or cs.Plan.load(path) for a file"
        )
    plan = default_plan(problem, plan) if isinstance(plan, Graph) else plan
    chosen = engine_named(engine)
    chosen.require_room(None if out is None else Path(out))
    path = Path(tempfile.mkdtemp(prefix="consilience-") if out is None else out)
    chosen.run(Task(path, plan, problem, progress, checkpoint_seconds, theory))
    return Run(path)


def resume(
    path: str | Path,
    problem: Problem | None = None,
    *,
    engine: Engine | None = None,
    progress: ShowProgress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    theory: bool = False,
    show_nodes: ShowNodes = lambda _: None,
    data: Sequence[str | Path] = (),
) -> Run:
    """Continue a run that was interrupted; its draws will be the same as without the interruption.

    Args:
        path: the run's directory.
        problem: the problem of the run; not needed if its plan names an experiment or `module:attribute`.
        engine: which devices continue a run of the engine `mesh`; by default all.
        progress: called now and then with how far the run is.
        checkpoint_seconds: how often to write a checkpoint.
        theory: hold the finished run against the theorems too, for its report; takes some seconds.
        show_nodes: called now and then with what each node says of itself, if there are nodes.
        data: of a study, the files of all sites in their order, if they are not where they were.
    """
    path = Path(path)
    if not (path / "plan.toml").exists() and (path / NETWORK / "plan.toml").is_file():
        plan, chosen = Plan.load(path / NETWORK / "plan.toml"), engine or Peers()
    else:
        plan, chosen = (engine or Simulate()).attempt(lambda: _to_continue(path, engine))
        if is_finished(path):
            return Run(path)
    files = tuple(Path(one) for one in data)
    chosen.run(Task(path, plan, problem, progress, checkpoint_seconds, theory, show_nodes, files))
    return Run(path)


def is_finished(path: Path) -> bool:
    """Whether a run is complete and has its summary."""
    return Run(path).complete and (path / "summary.json").exists()


def _to_continue(path: Path, engine: Engine | None) -> tuple[Plan, Engine]:
    """The plan of a run and the engine to continue it with."""
    run = Run(path)
    name = run.status["engine"]
    if is_finished(path):
        return run.plan, engine_named(name)
    if name == Peers.name:
        raise RunError(f"{run.path} is a node's run: start the node again, with `consilience node FILE`")
    if name not in ENGINES:
        raise RunError(f"{run.path} is a run of the engine {name!r}, which this version does not have")
    require_continuable(path)
    if engine is not None and engine.name != name:
        raise InputError(f"{run.path} is a run of the engine {name}: it cannot be resumed with {engine.name}")
    return run.plan, engine or engine_named(name)
