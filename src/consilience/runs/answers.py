"""What a run's directory holds of checks and scores, read back.

checks.json   by site: what the model says of its rows beside what was observed there, in bins
loo.json      by site: sums of leave-one-out scores over its rows
loo.zarr      each row's score; only where the rows are
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.predictive.comparison import Sums
from consilience.runs.directory import RunDirectory
from consilience.runs.files import read_json

if TYPE_CHECKING:
    import xarray

CHECKS, LOO = "checks.json", "loo"


def checks_of(run: RunDirectory) -> list[dict[str, Any]]:
    """The checks of each site, with its `agent` and by outcome; empty if there are none."""
    return read_json(run.path / CHECKS)["sites"] if (run.path / CHECKS).exists() else []


def has_scores(run: RunDirectory) -> bool:
    """Whether leave-one-out scores were stored."""
    return (run.path / f"{LOO}.json").exists()


def scores_by_site(run: RunDirectory) -> dict[int, Sums]:
    """The sums of each site's scores."""
    return {
        site["agent"]: Sums(
            site["rows"], np.array([site["elpd"]]), np.array([[site["elpd_squares"]]]), np.array([site["lppd"]]),
            np.array([site["bad"]]),
        )
        for site in read_json(run.path / f"{LOO}.json")["sites"]
    }  # fmt: skip


def row_scores(run: RunDirectory) -> xarray.Dataset | None:
    """Each row's score, if the rows were here; a merged run has none."""
    return run.read_beside(LOO).load() if (run.path / f"{LOO}.zarr").exists() else None
