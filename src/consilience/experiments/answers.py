"""What a finished run holds for people beside its summary: derived quantities, for every draw.

It is computed where the data is: by the process that sampled all agents, or by each node for its own rows. A run is
complete whether or not all of it could be computed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from consilience.errors import StorageError
from consilience.predictive import derived_draws
from consilience.problems import Problem
from consilience.runs.directory import RunDirectory
from consilience.runs.posterior import DERIVED

log = logging.getLogger("consilience")


def store_derived(run: RunDirectory, problem: Problem) -> None:
    """Keep what the problem derives from its parameters, for every draw, as `derived.zarr`."""
    if problem.derived is None:
        return
    found = derived_draws(problem, run.draws.load())
    variables = {name: (one.dims, one.to_numpy()) for name, one in found.data_vars.items()}
    coordinates = {name: (one.dims, one.to_numpy()) for name, one in found.coords.items()}
    run.store_beside(DERIVED, variables, coordinates, found.attrs)


def without_failing(what: str, action: Callable[..., Any], *given: Any) -> None:
    """Do what a run may go without: if the user's functions fail at it, that is said, and nothing else."""
    try:
        action(*given)
    except (StorageError, OSError):  # the disk: that does concern the run
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[:1]
        log.warning("the run goes without %s: %s", what, f"{type(error).__name__}: {''.join(first)}")
