"""How a node's codebook gets the values that its sites find together, before the node samples.

The values are written beside the node's run directory, `RUN.codebook.toml`, and every one of them is said before it
is used. They become part of the node's plan, and so of its identity: nodes whose values differ refuse each other.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import tomli_w

from consilience.engines.peers.clock import Clock, SteadyClock
from consilience.engines.peers.gathering import Gathering, identity
from consilience.engines.peers.settings import NodeSettings
from consilience.engines.peers.transport import Connect
from consilience.errors import DataError, Interrupted, NetworkError, Stopped
from consilience.plans import Plan
from consilience.runs.files import disk_errors, write_text
from consilience.studies import Codebook, Study, of_run
from consilience.studies.codebook import read_text, read_toml
from consilience.studies.filling import Filled, fill_together, open_numbers

log = logging.getLogger("consilience.peers")


def plan_of_node(
    plan: Plan, settings: NodeSettings, data: Path, connect: Connect, clock: Clock | None, stop: threading.Event
) -> tuple[Plan, bytes | None]:
    """The plan with its study's codebook filled in together with the other nodes, and what neighbours are told of it.

    Args:
        plan: the network's; without a study, or with a full codebook, it stays as it is.
        settings: who and where the node is.
        data: its own file.
        connect: opens its connections.
        clock: by which it waits.
        stop: set by whoever wants it to end.
    """
    study = of_run(plan)
    if study is None or not study.unfilled:
        return plan, None
    place = settings.run.with_name(f"{settings.run.name}.codebook.toml")
    found = _kept(place, plan)
    if found is None:
        found = _found_together(study, plan, settings, data, connect, clock or SteadyClock(), stop)
        with disk_errors(place.parent):
            write_text(place, tomli_w.dumps(found))
        _key_file(settings).unlink(missing_ok=True)  # there is no part of this node's left to hide
    codebook = Codebook(**found["codebook"])
    for line in found["said"]:
        log.info("agent %d: %s", settings.agent, line)
    filled = study.with_filled(codebook)
    return plan.replace(study=filled.entries()), json.dumps(found).encode()


def _kept(place: Path, plan: Plan) -> dict[str, Any] | None:
    """What was found before, if it is of this plan."""
    if not place.is_file():
        return None
    found = read_toml(read_text(place, "codebook"))
    return found if found.get("run") == identity(plan) else None


def _key_file(settings: NodeSettings) -> Path:
    return settings.run.with_name(f"{settings.run.name}.codebook.key")


def _found_together(
    study: Study,
    plan: Plan,
    settings: NodeSettings,
    data: Path,
    connect: Connect,
    clock: Clock,
    stop: threading.Event,
) -> dict[str, Any]:
    wanted = study.used_codebook
    key_file = _key_file(settings)
    key_file.parent.mkdir(parents=True, exist_ok=True)
    gathering = Gathering(plan, settings, key_file, 2 * len(open_numbers(wanted)), clock, stop)
    log.info("agent %d: %s will come from all sites", settings.agent, ", ".join(study.unfilled))
    try:
        gathering.open(connect)
        filled = fill_together(wanted, data, plan.num_agents, gathering)
        return _noted(plan, filled)
    except Stopped:
        if gathering.result is None:
            raise Interrupted(
                f"agent {settings.agent} was stopped before the sites had agreed on a codebook"
            ) from None
        return _checked(gathering.result, wanted)
    finally:
        gathering.close()


def _noted(plan: Plan, filled: Filled) -> dict[str, Any]:
    entries = filled.codebook.model_dump(mode="json", exclude_none=True)
    return {"run": identity(plan), "said": list(filled.found), "codebook": entries}


def _checked(result: dict[str, Any], wanted: Codebook) -> dict[str, Any]:
    """A neighbour's result, which may differ from what was agreed on in the open entries alone."""
    try:
        codebook = Codebook(**result["codebook"])
        said = [str(line)[:2000] for line in result["said"]]
    except (DataError, KeyError, TypeError) as error:
        raise NetworkError(f"a neighbour's codebook cannot be used: {error}") from None
    open_entries = {f"columns.{name}" for name in wanted.unfilled}
    other = [name for name in wanted.differences(codebook) if name not in open_entries]
    if other or codebook.unfilled:
        raise NetworkError(f"a neighbour's codebook differs in {', '.join(other or codebook.unfilled)}")
    return {**result, "said": said, "codebook": codebook.model_dump(mode="json", exclude_none=True)}
