"""Runs compared by how well their models predict rows that they have not seen (PSIS-LOO), from sums over sites."""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience import experiments
from consilience.errors import InputError, RunError
from consilience.experiments.answers import store_loo
from consilience.predictive.comparison import Sums
from consilience.problems import Problem
from consilience.runs.answers import has_scores, row_scores, scores_by_site
from consilience.runs.directory import RunDirectory
from consilience.runs.files import read_json

if TYPE_CHECKING:
    import pandas
    import xarray

FORMAT = 1
log = logging.getLogger("consilience")


@dataclass(frozen=True)
class Comparison:
    """Models and what each site's rows say about them; only sums over rows.

    Attributes:
        names: of the models.
        sites: by the numbers of the sites.
    """

    names: tuple[str, ...]
    sites: dict[int, Sums]

    @property
    def total(self) -> Sums:
        """Of all sites together."""
        return functools.reduce(operator.add, self.sites.values())

    def table(self) -> pandas.DataFrame:
        """A row for each model, the best first."""
        return _table(self.names, self.total)

    def table_by_site(self) -> pandas.DataFrame:
        """A row for each site and model."""
        import pandas

        return pandas.concat({site: _table(self.names, sums) for site, sums in self.sites.items()}, names=["site"])

    def to_dict(self) -> dict[str, Any]:
        """For a file that leaves a site."""
        sites = [{"site": site, **sums.to_dict()} for site, sums in self.sites.items()]
        return {"format": FORMAT, "models": list(self.names), "sites": sites}


def compare(*runs: Any, names: Sequence[str] = (), problems: Sequence[Problem | None] = ()) -> pandas.DataFrame:
    """Which model predicts rows best that it has not seen: a row for each run, the best first.

    `elpd` is the expected log predictive density of left-out rows, summed over all sites' rows, with its standard
    error `se`; `difference` and `se_difference` are to the best; `p_loo` is the effective number of parameters, `bad`
    the number of rows whose estimate is not to be trusted (Pareto k too large).

    Args:
        runs: of the same rows with different models: runs or their directories; at a node, of that node.
        names: of the models; by default the directories' names.
        problems: what each run sampled, where its scores were not stored and its plan names no problem.
    """
    return comparison_of([_opened(run) for run in runs], names, problems).table()


def comparison_of(
    runs: Sequence[RunDirectory], names: Sequence[str] = (), problems: Sequence[Problem | None] = ()
) -> Comparison:
    """What the sites of some runs say about their models."""
    if not runs:
        raise InputError("there is nothing to compare: give the directories of runs")
    given = [*problems, *[None] * (len(runs) - len(problems))]
    for run, problem in zip(runs, given, strict=True):
        _require_scores(run, problem)
        if (run.path / "summary.json").exists() and run.summary.get("converged") is False:
            log.warning("%s has not converged, so its scores are not those of its model. %s", run.path,
                        run.summary["verdict"])  # fmt: skip
    each, rows = [scores_by_site(run) for run in runs], [row_scores(run) for run in runs]
    for run, one in zip(runs, each, strict=True):
        if set(one) != set(each[0]):
            raise RunError(
                f"{run.path} is scored at the sites {_listed(one)}, and {runs[0].path} at {_listed(each[0])}: "
                "compare runs of the same sites"
            )
    sites = {site: _together(site, [one[site] for one in each], rows) for site in sorted(each[0])}
    return Comparison(_names(runs, names), sites)


def read_comparisons(paths: Sequence[Path]) -> Comparison:
    """The sums that several sites wrote, put together."""
    sites: dict[int, Sums] = {}
    names: tuple[str, ...] = ()
    for path in paths:
        found = read_json(path)
        if found.get("format") != FORMAT or "models" not in found:
            raise InputError(f"{path} holds no comparison: give files that `consilience compare … --out` wrote")
        if names and tuple(found["models"]) != names:
            raise InputError(
                f"{path} compares {', '.join(found['models'])}, and {paths[0]} {', '.join(names)}: give the models "
                "the same names in the same order at every site, with --name"
            )
        names = tuple(found["models"])
        for site in found["sites"]:
            if site["site"] in sites:
                raise InputError(
                    f"site {site['site']} is given twice, the second time in {path}: give each site once"
                )
            sites[site["site"]] = Sums.from_dict(site)
    return Comparison(names, dict(sorted(sites.items())))


def _opened(run: Any) -> RunDirectory:
    return run if isinstance(run, RunDirectory) else RunDirectory(run)


def _require_scores(run: RunDirectory, problem: Problem | None) -> None:
    """Compute the scores of a run that has none, where its rows are here."""
    if has_scores(run):
        return
    if not run.complete:
        raise RunError(f"{run.path} is not complete ({run.status['status']}): finish it first")
    if run.plan.sampler.temperature != 1:
        raise RunError(f"{run.path} is no sample of the posterior: its temperature is {run.plan.sampler.temperature}")
    if "nodes" in run.status:
        raise RunError(f"{run.path} was merged from nodes without scores: compare at each node, and merge again")
    own = run.agent_numbers
    store_loo(
        run, problem or experiments.load_problem(run.plan, own if len(own) < run.plan.num_agents else None)
    )  # fmt: skip


def _together(site: int, sums: Sequence[Sums], rows: Sequence[xarray.Dataset | None]) -> Sums:
    """What one site says about all models; row by row where every run has that."""
    known, beside = [one for one in rows if one is not None], Sums.beside(sums)
    if len(known) < len(rows):
        return beside
    digests = {one.attrs["outcomes"].get(str(site), "") for one in known} - {""}
    if len(digests) > 1:
        raise InputError(
            f"the models were fitted to different outcomes at site {site}: compare models of the same rows"
        )
    scores = [one["elpd"].to_numpy()[one["agent"].to_numpy() == site] for one in known]
    return Sums.of_rows(scores, [float(one.lppd[0]) for one in sums], [int(one.bad[0]) for one in sums])


def _names(runs: Sequence[RunDirectory], names: Sequence[str]) -> tuple[str, ...]:
    if names and (len(names) != len(runs) or len(set(names)) < len(names)):
        raise InputError(
            f"there are {len(runs)} runs and the names {', '.join(names)}: give a name of its own to each"
        )
    short = [run.path.resolve().name for run in runs]
    return tuple(names) or tuple(short if len(set(short)) == len(short) else [str(run.path) for run in runs])


def _listed(sites: Any) -> str:
    return ", ".join(map(str, sorted(sites)))


def _table(names: Sequence[str], sums: Sums) -> pandas.DataFrame:
    import pandas

    order = np.argsort(-sums.elpd, kind="stable")
    best = int(order[0])
    return pandas.DataFrame(
        {
            "elpd": sums.elpd[order],
            "se": [sums.error(one) for one in order],
            "difference": sums.elpd[order] - sums.elpd[best],
            "se_difference": [sums.error_of_difference(int(one), best) for one in order],
            "p_loo": sums.parameters[order],
            "rows": sums.rows,
            "bad": sums.bad[order],
        },
        index=pandas.Index([names[one] for one in order], name="model"),
    )
