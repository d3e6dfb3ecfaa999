"""A whole network on this machine for one run: its files inside the run's directory, its nodes, one merged result."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from consilience.deployment.merging import NETWORK, merge
from consilience.deployment.networks import make_network, node_files, node_runs, require_data, set_data
from consilience.deployment.nodes import run_node
from consilience.deployment.processes import Show, continues_after_loss, start_network
from consilience.engines.peers.settings import NodeSettings
from consilience.errors import Interrupted, NetworkError
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs.directory import RunDirectory
from consilience.runs.loop import ShowProgress
from consilience.runs.signals import stopped_by_signals

_POLL_SECONDS = 0.2


def run_here(
    plan: Plan, path: Path, problem: Problem | None = None, *, data: Sequence[Path] = (), theory: bool = False,
    show: Show = lambda _: None, progress: ShowProgress | None = None, **options: Any,
) -> RunDirectory:  # fmt: skip
    """Sample a plan by a network of nodes on this machine, or continue where one was left; one run in the end.

    Args:
        plan: what to sample.
        path: the run's directory.
        problem: what to infer; then nodes are threads. Without it each is a process that loads what the plan names;
            so are nodes in unison, whose compiled programs wait for each other and would use up JAX's threads.
        data: for a study, one file for each node; by default those that the nodes' own files name.
        theory: hold the merged run against the theorems too.
        show: called now and then with what each node says of itself.
        progress: called now and then with how far the first node is, if nodes are threads.
        options: entries of every node's file.
    """
    network = path / NETWORK
    if problem is None and not plan.says_problem:
        raise NetworkError('the plan names no problem: add `problem = "gmm"` or `problem = "module:attribute"` to it')
    as_threads = problem is not None and not plan.is_unison
    if not as_threads and not plan.says_problem:
        raise NetworkError(
            f"nodes of the sampler {plan.sampler.kind} are processes of their own, which must find the problem: put "
            'it into a module and name it in the plan, `problem = "module:attribute"`; or take the engine simulate'
        )
    if not (network / "plan.toml").is_file():
        make_network(plan, network, data=data, **options)
    elif data:
        set_data(network, data)
    require_data(network, path)
    resume = Interrupted(f"the nodes left checkpoints, continue with: consilience resume {path}")
    try:
        if problem is not None and as_threads:
            _run_threads(network, problem, progress)
        else:
            start_network(network, show)
    except (KeyboardInterrupt, Interrupted):
        raise resume from None
    return merge(node_runs(network), path, problem, theory=theory, allow=_allowed(network))


def merge_network(network: Path) -> RunDirectory:
    """The run of a whole network, or of what is left of it, in its directory `report`."""
    paths = node_runs(network)
    if continues_after_loss(network):
        paths = [path for path in paths if (path / "summary.json").is_file()]
    return merge(paths, network / "report", theory=True, allow=_allowed(network))


def _allowed(network: Path) -> Sequence[str]:
    """The modules that the network's own files allow."""
    return NodeSettings.load(node_files(network)[0]).allow


def _run_threads(network: Path, problem: Problem, progress: ShowProgress | None) -> None:
    """Run all nodes as threads of this process, until they are done; if one fails the others are stopped."""
    files, stop = node_files(network), threading.Event()
    (network / "runs").mkdir(exist_ok=True)
    with stopped_by_signals(stop), ThreadPoolExecutor(len(files), "consilience-node") as threads:
        jobs: list[Future[RunDirectory]] = [
            threads.submit(
                run_node,
                NodeSettings.load(path),
                problem.of_agent(agent),
                stop=stop,
                progress=None if agent else progress,
            )
            for agent, path in enumerate(files)
        ]
        left = set(jobs)
        while left:
            ended, left = wait(left, _POLL_SECONDS, FIRST_EXCEPTION)
            if any(job.exception() for job in ended):
                stop.set()
    failed = [error for error in (job.exception() for job in jobs) if error is not None]
    told = [error for error in failed if not isinstance(error, Interrupted)]
    for error in [*told, *failed]:
        raise error
