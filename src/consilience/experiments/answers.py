"""What a finished run holds for people beside its summary.

    derived.zarr   what the problem derives from its parameters, for every draw
    checks.json    what the model says of each site's rows beside what was observed there, in bins
    loo.json       how well it predicts rows that it has not seen: sums over each site's rows
    loo.zarr       the same for every row; it stays where the rows are

It is computed where the data is: by the process that sampled all agents, or by each node for its own rows. A run is
complete whether or not all of it could be computed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from consilience.errors import InputError, StorageError
from consilience.predictive import checks, derived_draws, leave_one_out
from consilience.predictive.blocks import some_rows
from consilience.predictive.draws import is_double, model_draws, thinned
from consilience.predictive.outcomes import Pieces
from consilience.problems import Problem, cast_floats
from consilience.runs.answers import CHECKS, LOO
from consilience.runs.directory import DERIVED, RunDirectory
from consilience.runs.files import write_json
from consilience.runs.posterior import num_parameters

if TYPE_CHECKING:
    import xarray

log = logging.getLogger("consilience")
_MOST_SITES = 32
_MOST_ROWS = 20_000  # of all sites here together; their scores are a matter of seconds
_MOST_WORK = 1e10  # rows, draws and parameters multiplied


class Site(NamedTuple):
    """An agent whose rows are here, with the draws that hold there."""

    agent: int
    rows: Any
    draws: xarray.Dataset


def store_derived(run: RunDirectory, problem: Problem) -> None:
    """Keep what the problem derives from its parameters, for every draw, as `derived.zarr`."""
    if problem.derived is None:
        return
    found = derived_draws(problem, run.draws.load())
    variables = {str(name): (one.dims, one.to_numpy()) for name, one in found.data_vars.items()}
    coordinates = {str(name): (one.dims, one.to_numpy()) for name, one in found.coords.items()}
    run.store_beside(DERIVED, variables, coordinates, found.attrs)


def store_scores(run: RunDirectory, problem: Problem) -> None:
    """Check a finished run against the rows that are here, and score it, unless that takes more than seconds."""
    if problem.outcomes is None or problem.replicas is not None or run.plan.sampler.temperature != 1:
        return
    store_checks(run, problem)
    draws = min(leave_one_out.MOST_DRAWS, run.latest_draws.sizes["draw"] * run.plan.num_chains)
    rows = int(problem.shard_sizes.sum())
    if rows > _MOST_ROWS or rows * draws * num_parameters(run.draws) > _MOST_WORK:
        log.info("the run goes without leave-one-out scores, which would take long; `consilience compare` makes them")
        return
    store_loo(run, problem)


def store_checks(run: RunDirectory, problem: Problem) -> None:
    """Keep what the model says of each site's rows beside what was observed there, as `checks.json`."""
    outcomes = problem.outcomes
    if outcomes is None:
        raise InputError("nothing is known about the problem's outcomes")
    sites = list(sites_of(run, problem, checks.MOST_DRAWS))
    sites = [sites[place] for place in np.unique(np.linspace(0, len(sites) - 1, _MOST_SITES).astype(int))]
    rows = [some_rows(site.rows, checks.MOST_ROWS) for site in sites]
    with jax.enable_x64(is_double(run.draws)):
        program = checks.check_program(outcomes, run.plan.seed)
        block = max(len(jax.tree.leaves(one)[0]) for one in rows)
        found = [
            checks.check_site(outcomes, program, pieces_of(problem, site), one, block)
            for site, one in zip(sites, rows, strict=True)
        ]
    by_site = [{"agent": site.agent, "outcomes": one} for site, one in zip(sites, found, strict=True)]
    write_json(run.path / CHECKS, {"format": 1, "sites": by_site})


def store_loo(run: RunDirectory, problem: Problem) -> None:
    """Keep the leave-one-out scores of the rows that are here: sums as `loo.json`, each row's as `loo.zarr`."""
    sites = list(sites_of(run, problem, leave_one_out.MOST_DRAWS))
    num_draws = sites[0].draws.sizes["draw"] * sites[0].draws.sizes["chain"]
    longest = max(len(jax.tree.leaves(site.rows)[0]) for site in sites)
    block, limit = leave_one_out.rows_at_once(longest, num_draws), leave_one_out.trusted_shape(num_draws)
    found = []
    with jax.enable_x64(is_double(run.draws)):
        program = leave_one_out.likelihood_program(problem)
        for site in sites:
            efficiency = leave_one_out.relative_efficiency(site.draws)
            pieces = pieces_of(problem, site)
            found.append(leave_one_out.leave_one_out(program, pieces, site.rows, block, efficiency))
    sums = [
        {
            "agent": site.agent, "rows": len(one.elpd), "elpd": float(one.elpd.sum()),
            "elpd_squares": float((one.elpd**2).sum()), "lppd": float(one.lppd.sum()),
            "bad": int((one.pareto_k > limit).sum()),
        }
        for site, one in zip(sites, found, strict=True)
    ]  # fmt: skip
    whose = np.concatenate([np.full(len(one.elpd), site.agent) for site, one in zip(sites, found, strict=True)])
    values = {name: np.concatenate([getattr(one, name) for one in found]) for name in found[0]._fields}
    run.store_beside(
        LOO, {**{name: (("row",), one) for name, one in values.items()}, "agent": (("row",), whose)}, {},
        {"outcomes": {str(site.agent): _digest(problem, site) for site in sites}},
    )  # fmt: skip
    write_json(run.path / f"{LOO}.json", {"format": 1, "num_draws": num_draws, "trusted_k": limit, "sites": sums})


def sites_of(run: RunDirectory, problem: Problem, most: int) -> Iterator[Site]:
    """The agents whose rows the problem holds, each with at most so many draws."""
    here = run.agent_numbers
    agents = list(range(run.plan.num_agents)) if problem.num_agents == run.plan.num_agents else here
    if problem.num_agents != len(agents):
        raise InputError(f"the problem has the rows of {problem.num_agents} agents, and the run is of {len(agents)}")
    draws = thinned(run.latest_draws, most).load()
    for agent, rows in zip(agents, problem.shards, strict=True):
        own = draws.sel(agent=agent) if "agent" in draws.dims else draws
        yield Site(agent, cast_rows(rows, draws), own)


def cast_rows(rows: Any, draws: xarray.Dataset) -> Any:
    """Rows in the precision of draws."""
    dtype = draws[draws.attrs["parameters"][0]].dtype
    with jax.enable_x64(dtype == np.float64):
        return jax.tree.map(np.asarray, cast_floats(rows, dtype))


def pieces_of(problem: Problem, site: Site) -> Pieces:
    """The draws that hold at a site."""
    return Pieces([lambda: model_draws(problem, site.draws)])


def without_failing(what: str, action: Callable[..., Any], *given: Any) -> None:
    """Do what a run may go without: if the user's functions fail at it, that is said, and nothing else."""
    try:
        action(*given)
    except (StorageError, OSError):  # the disk: that does concern the run
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[:1]
        log.warning("the run goes without %s: %s", what, f"{type(error).__name__}: {''.join(first)}")


def _digest(problem: Problem, site: Site) -> str:
    """Of a site's outcomes, by which it sees that two models were fitted to the same."""
    if problem.outcomes is None:
        return ""
    digest = hashlib.sha256()
    for name, values in sorted(problem.outcomes.observed(site.rows).items()):
        digest.update(f"{name}{np.shape(values)}".encode() + np.asarray(values, float).tobytes())
    return digest.hexdigest()
