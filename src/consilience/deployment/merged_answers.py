"""What nodes found each for itself, put together into the run of the whole network."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from consilience.runs.answers import CHECKS, LOO, checks_of, has_scores
from consilience.runs.directory import DERIVED, RunDirectory
from consilience.runs.files import read_json, write_json

log = logging.getLogger("consilience")


def copy_answers(whole: RunDirectory, nodes: Sequence[RunDirectory]) -> None:
    """Put derived quantities, checks and scores of all nodes beside each other, where every node has them.

    Of checks the whole run gets what each node's own directory has, counts in bins; of scores the sums over a site's
    rows, and no row's own.
    """
    checks = [site for node in nodes for site in checks_of(node)]
    if checks:
        write_json(whole.path / CHECKS, {"format": 1, "sites": checks})
    if all(has_scores(node) for node in nodes):
        scores = [read_json(node.path / f"{LOO}.json") for node in nodes]
        sites = [site for one in scores for site in one["sites"]]
        write_json(whole.path / f"{LOO}.json", {**scores[0], "sites": sites})
    if all((node.path / f"{DERIVED}.zarr").exists() for node in nodes):
        _copy_derived(whole, nodes)


def _copy_derived(whole: RunDirectory, nodes: Sequence[RunDirectory]) -> None:
    """What depends on an agent's own draws side by side along `agent`, anything else once; draws that are merged."""
    import xarray

    kept = whole.draws["draw"].to_numpy()
    parts = [node.read_beside(DERIVED).sel(draw=kept).load() for node in nodes]
    own = [name for name, one in parts[0].data_vars.items() if "agent" in one.dims]
    if any(part[name].shape != parts[0][name].shape for part in parts for name in own):
        log.warning("the report goes without derived quantities: agents have different numbers of them")
        return
    variables: dict[Any, Any] = {
        name: (one.dims, xarray.concat([part[name] for part in parts], "agent").transpose(*one.dims).to_numpy())
        if name in own
        else (one.dims, one.to_numpy())
        for name, one in parts[0].data_vars.items()
    }
    coordinates: dict[Any, Any] = {"draw": ("draw", kept)}
    if own:
        coordinates["agent"] = ("agent", [int(part["agent"].item()) for part in parts])
    whole.store_beside(DERIVED, variables, coordinates, parts[0].attrs)
