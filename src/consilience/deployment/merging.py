"""The runs of all nodes put together into one, with the summary and the report that `simulate` gives.

A node's directory holds its own agent's draws. Where all of them are in one place, the draws that every node has, by
their numbers, become one run of the whole network. They are copied a block at a time, and the consensus error is
computed from them on the way: of shared parameters, on the scale on which they are stored. The data is needed only
for what an experiment compares and for the theory; without it both are left out.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience import experiments
from consilience.deployment.merged_answers import copy_answers
from consilience.errors import InputError, RunError
from consilience.experiments.finishing import finish_run
from consilience.kernel.consensus import consensus_error
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.runs.directory import FORMAT, RunDirectory, create_metrics, private_names
from consilience.runs.files import disk_errors, read_json, write_json, write_text
from consilience.runs.growing import GrowingGroup, Variable
from consilience.runs.posterior import shared_digest
from consilience.runs.provenance import provenance
from consilience.validation.differences import differing

NETWORK = "network"
"""Where in a run's directory the network that made it lives, if it was made in one go."""

log = logging.getLogger("consilience")
_DRAFT = ".merging"
_BLOCK_BYTES = 2**25
_OF_A_NODE = ("agent", "rounds_per_second", "messages", "traffic", "rejections", "restarts", "participation")


def merge(
    paths: Sequence[Path],
    out: Path,
    problem: Problem | None = None,
    *,
    theory: bool = False,
    allow: Sequence[str] = (),
    show: Callable[[float], None] = lambda _: None,
) -> RunDirectory:
    """One run of a whole network, from the run directories of all its nodes.

    Args:
        paths: the nodes' directories, in any order; where agents were lost and others continued, those of the others.
        out: the directory for the whole run; one that was merged before is replaced.
        problem: the whole problem; by default what the plan names, where its data is here. Without all agents it is
            not used.
        theory: hold the run against the theorems too.
        allow: modules that the plan may name as its problem.
        show: called with the share of an experiment's comparisons that is done.
    """
    nodes = _in_order([RunDirectory(path) for path in paths])
    _require_replaceable(out)
    whole = len(nodes) == nodes[0].plan.num_agents
    problem = (problem or _whole_problem(nodes[0].plan, allow)) if whole else None
    with disk_errors(out):
        draft = out / _DRAFT
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _write_facts(draft, nodes)
        _copy_draws(draft, nodes)
        copy_answers(RunDirectory(draft), nodes)
        facts = [_facts_of(node) for node in nodes]
        shares = np.mean([one["participation"] for one in facts], 0).tolist()
        finish_run(
            RunDirectory(draft), problem, theory=theory, show=show,
            extra=lambda summary: {"nodes": facts, "participation": shares},
        )  # fmt: skip
        _put_in_place(draft, out)
    return RunDirectory(out)


def network_draws(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """The draws that several nodes have in common, `(chain, agent, draw, …)` by variable, in the agents' order."""
    sources = [run.draws for run in sorted(map(RunDirectory, paths), key=lambda run: run.agent_numbers[0])]
    places = _common_draws([source["draw"].to_numpy() for source in sources])
    parts = [source.isel(draw=where) for source, where in zip(sources, places, strict=True)]
    return {name: _together(name, parts) for name in sources[0].attrs["parameters"]}


def _in_order(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    """The nodes' runs by agent, after checking that they make one finished network."""
    first, found = runs[0], dict[int, RunDirectory]()
    for run in runs:
        if run.plan.digest() != first.plan.digest():
            different = ", ".join(differing(first.plan.model_dump(), run.plan.model_dump()))
            raise RunError(
                f"{run.path} follows another plan than {first.path} (it differs in {different}): give the nodes of "
                "one network"
            )
        agents = run.agent_numbers
        if run.status["engine"] != "peers" or "nodes" in run.status:
            raise RunError(f"{run.path} is no node's run, but a whole one: give the directories of nodes only")
        if agents[0] in found:
            raise RunError(f"agent {agents[0]} is given twice, as {found[agents[0]].path} and {run.path}: give one")
        found[agents[0]] = run
    missing = sorted(set(range(first.plan.num_agents)) - set(found))
    if missing and not all(continues_after_loss(run) for run in runs):
        raise RunError(
            f"the network has {first.plan.num_agents} agents, but the run of agent {', '.join(map(str, missing))} is "
            "not given: name the directories of all nodes"
        )
    for agent, run in sorted(found.items()):
        if not run.complete or not (run.path / "summary.json").exists():
            raise RunError(
                f"agent {agent} has not finished ({run.path} is {run.status['status']}): wait for it, or start it "
                "again with `consilience node`"
            )
    return [found[agent] for agent in sorted(found)]


def continues_after_loss(node: RunDirectory) -> bool:
    """Whether a node belongs to a network that continues without lost agents; some may then be missing at the end."""
    return "participation" in node.draws.variables


def _require_replaceable(out: Path) -> None:
    """Check that nothing but an earlier merge, or the network itself, is where the run is to be."""
    if (out / "plan.toml").exists():
        if "nodes" not in RunDirectory(out).status:
            raise RunError(f"{out} already holds a run: choose another directory with --out")
    elif out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file: choose a directory with --out")
    elif out.exists() and not (out / _DRAFT).exists() and {place.name for place in out.iterdir()} - {NETWORK}:
        raise RunError(f"{out} is not empty: choose another directory with --out")


def _whole_problem(plan: Plan, allow: Sequence[str]) -> Problem | None:
    if plan.study is not None:  # nobody needs all sites' rows in one place
        return None
    try:
        experiments.require_allowed(plan.problem, allow, "add --allow {}")
        return experiments.load_problem(plan)
    except InputError as error:
        log.warning("the report goes without what needs the data: %s", error)
        return None


def _facts_of(node: RunDirectory) -> dict[str, Any]:
    summary = node.summary
    return {name: summary[name] for name in _OF_A_NODE if name in summary}


def _found_by_all(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the warm-up found: the same at all nodes but for the scales of their own parameters."""
    each = [state["adaptation"] for state in states]
    own = {agent: scales for found in each for agent, scales in found.get("private_scales", {}).items()}
    return {**each[0], **({"private_scales": own} if own else {})}


def _write_facts(draft: Path, nodes: Sequence[RunDirectory]) -> None:
    plan, states = nodes[0].plan, [node.status for node in nodes]
    timings = [state["timing"] for state in states]
    slowest = max(timing["sampling_seconds"] for timing in timings)
    digests = "".join(state["data_digest"] for state in states)
    status = {
        "format": states[0].get("format", FORMAT),
        "status": "complete",
        "step": max(state["step"] for state in states),
        **({"adaptation": _found_by_all(states)} if "adaptation" in states[0] else {}),
        "plan_digest": plan.digest(),
        "data_digest": hashlib.sha256(digests.encode()).hexdigest(),
        "engine": "peers",
        "problem_name": states[0]["problem_name"],
        "nodes": len(nodes),
        "timing": {
            "compile_seconds": max(timing["compile_seconds"] for timing in timings),
            "sampling_seconds": slowest,
            "steps_per_second": max(state["step"] for state in states) / slowest if slowest else 0.0,
        },
    }
    write_json(draft / "status.json", status)
    origins = [read_json(node.path / "provenance.json") for node in nodes]
    write_json(draft / "provenance.json", {**provenance("peers"), "nodes": origins})
    write_text(draft / "plan.toml", plan.to_toml())


def _copy_draws(draft: Path, nodes: Sequence[RunDirectory]) -> None:
    """Write the draws that all nodes have, and the consensus error of each."""
    plan, sources = nodes[0].plan, [node.draws for node in nodes]
    if plan.is_unison:
        _require_replicas(nodes)
        _copy_replicas(draft, nodes)
        return
    places = _common_draws([source["draw"].to_numpy() for source in sources])
    draws = _draw_group(draft / "draws.zarr", sources, len(places[0]))
    metrics = create_metrics(draft / "metrics.zarr", plan, ["consensus_error"], len(places[0]))
    growing = [str(name) for name, array in sources[0].variables.items() if "draw" in array.dims]
    names, private = sources[0].attrs["parameters"], private_names(sources[0])
    size = sum(int(np.prod(sources[0][name].shape[3:])) for name in names)
    block = max(1, _BLOCK_BYTES // (plan.num_chains * len(nodes) * size * np.dtype(plan.dtype).itemsize))
    for start in range(0, len(places[0]), block):
        parts = [
            source.isel(draw=where[start : start + block]).load()
            for source, where in zip(sources, places, strict=True)
        ]
        values = {name: _together(name, parts) for name in growing}
        draws.append(values)
        error = sum(_apart(values[name]) for name in names if name not in private)
        metrics.append({"consensus_error": np.asarray(error, plan.dtype), "step": values["step"]})


def _require_replicas(nodes: Sequence[RunDirectory]) -> None:
    """Check that nodes in unison have the same draws of shared parameters, to the bit, where they have the same."""
    sources = [node.draws for node in nodes]
    places = _common_draws([source["draw"].to_numpy() for source in sources])
    parts = [source.isel(draw=where) for source, where in zip(sources, places, strict=True)]
    digests = [shared_digest(part) for part in parts]
    for node, part, digest in zip(nodes, parts, digests, strict=True):
        if "participation" in part.coords and not part["participation"].equals(parts[0]["participation"]):
            raise RunError(
                f"{node.path} continued with other agents than {nodes[0].path} after the network was cut: merge each "
                "part by itself"
            )
        if digest != digests[0]:
            raise RunError(
                f"{node.path} has other draws of shared parameters than {nodes[0].path}: they are no replicas of one "
                "run; was a run directory replaced by another one's?"
            )


def _copy_replicas(draft: Path, nodes: Sequence[RunDirectory]) -> None:
    """Write shared parameters once, and every agent's own beside each other; all nodes measured the same."""
    sources, plan = [node.draws for node in nodes], nodes[0].plan
    places = _common_draws([source["draw"].to_numpy() for source in sources])
    sources = [source.isel(draw=where).load() for source, where in zip(sources, places, strict=True)]
    count = sources[0].sizes["draw"]
    draws = _draw_group(draft / "draws.zarr", sources, count)
    growing = [str(name) for name, array in sources[0].variables.items() if "draw" in array.dims]
    draws.append({
        name: _together(name, sources) if _is_of_agents(sources[0][name].dims) else sources[0][name].to_numpy()
        for name in growing
    })  # fmt: skip
    measured = nodes[0].metrics.load()
    names = [str(name) for name in measured.data_vars]
    metrics = create_metrics(draft / "metrics.zarr", plan, names, measured.sizes["time"])
    metrics.append({name: measured[name].to_numpy() for name in [*names, "step"]})


def _is_of_agents(dims: Sequence[Any]) -> bool:
    """Whether each node has a variable for itself: private parameters, and who took part in its draws."""
    return "agent" in dims or (dims[0] == "draw" and len(dims) > 1)


def _common_draws(numbers: Sequence[np.ndarray]) -> list[np.ndarray]:
    """For each node, where the draws are whose numbers all nodes have.

    >>> [found.tolist() for found in _common_draws([np.array([0, 1, 2, 5]), np.array([1, 2, 3, 5])])]
    [[1, 2, 3], [0, 1, 3]]
    """
    common = numbers[0]
    for others in numbers[1:]:
        common = np.intersect1d(common, others)
    if not len(common):
        raise RunError("no draw is there from every node: the network stored none together")
    return [np.searchsorted(own, common) for own in numbers]


def _together(name: str, parts: Sequence[Any]) -> np.ndarray:
    """One variable of all nodes: side by side along `agent`, or that of the first where all are the same."""
    if "agent" in parts[0][name].dims:
        sizes = _widest(parts)
        filled = [_filled(part[name].to_numpy(), [sizes[one] for one in part[name].dims[3:]]) for part in parts]
        return np.concatenate(filled, parts[0][name].dims.index("agent"))
    if parts[0][name].dims == ("draw",):
        return parts[0][name].to_numpy()
    return np.stack([part[name].to_numpy() for part in parts])


def _widest(sources: Sequence[Any]) -> dict[Any, int]:
    """The size of every dimension where it is longest: nodes differ in how many private parameters they have."""
    return {one: max(source.sizes[one] for source in sources) for one in sources[0].sizes}


def _filled(values: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Values `(chains, agents, draws, …)` with as many entries as asked for; those that were missing are NaN."""
    missing = [wanted - there for wanted, there in zip(sizes, values.shape[3:], strict=True)]
    if not any(missing):
        return values
    return np.pad(values, [(0, 0)] * 3 + [(0, count) for count in missing], constant_values=np.nan)


def _apart(values: np.ndarray) -> np.ndarray:
    """`(chains, draws)`: the part of one variable `(chains, agents, draws, …)` in the consensus error."""
    agents_last = np.moveaxis(values.astype(float), 1, 2)
    return consensus_error(agents_last.reshape(*agents_last.shape[:3], -1))


def _draw_group(path: Path, sources: Sequence[Any], num_draws: int) -> GrowingGroup:
    """A new group with the nodes' variables; what each node has for itself, as `participation`, gets an agent too."""
    growing, fixed = {}, {}
    for name, array in sources[0].variables.items():
        dims, sizes = array.dims, {**_widest(sources), "agent": len(sources), "draw": num_draws}
        if "draw" in dims:
            stored_once = dims == ("draw",) or dims[0] == "chain"
            own = dims if "agent" in dims or stored_once else ("agent", *dims)
            growing[name] = Variable(own, tuple(sizes[one] for one in own), array.dtype)
        else:
            fixed[name] = (dims, _numbers(sources) if name == "agent" else array.to_numpy())
    beside = [name for name in ("step", "weight", "step_size") if name in growing]
    note = {**sources[0].attrs, "coordinates": " ".join(beside)}
    return GrowingGroup.create(path, "draw", growing, fixed, note, group="posterior")


def _numbers(sources: Sequence[Any]) -> np.ndarray:
    return np.concatenate([source["agent"].to_numpy() for source in sources])


def _put_in_place(draft: Path, out: Path) -> None:
    """Move a finished run to its place, the plan last: without one a directory is no run."""
    (out / "plan.toml").unlink(missing_ok=True)
    for place in sorted(draft.iterdir(), key=lambda place: place.name == "plan.toml"):
        old = out / place.name
        if old.is_dir():
            shutil.rmtree(old)
        place.replace(old)
    draft.rmdir()
