"""The posterior of a run as rows, one for each parameter: mean, spread, interval, ratio, mixing.

What all agents have in common is one row; what is an agent's own has a row for each. Where every agent walks a chain
of its own there is a row for the network,

    mean, standard deviation, quantiles   of the draws of all agents together
    between_agents                        the standard deviation of the agents' means
    R-hat, effective draws                of the worst agent
    R-hat across agents                   do agents agree,

and one for each agent if that is asked for. Quantities that a problem derives are rows too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.diagnostics.agreement import agreement
from consilience.diagnostics.convergence import MOST_DRAWS, effective_draws, mean_error, rhat
from consilience.runs.directory import DERIVED, RunDirectory
from consilience.runs.names import Names, entry_name
from consilience.runs.transforms import Entry, Functions, Transform

if TYPE_CHECKING:
    import xarray

LOW, HIGH = 0.025, 0.975
MOST_AGENTS = MOST_CHOSEN = 32
"""How many agents and parameters are described of those that are too many for all: of more than `MOST_ROWS`."""
MOST_ROWS = 2048
_READ_AT_ONCE = 2**28  # bytes of a variable; of a larger one, entry by entry


def posterior_rows(run: RunDirectory, transform: Transform = None, *, by_agent: bool = False) -> list[dict[str, Any]]:
    """The rows of a run, in the model's order; derived quantities come last.

    Args:
        run: the run.
        transform: a function of draws, elementwise, or such functions by the names of parameters.
        by_agent: a row for each agent instead of one for the network, where every agent walks a chain of its own.
    """
    found = list(_entries(run, transform))
    numbers = _numbers(run)
    if by_agent:
        return [row for entry in found for row in _rows_by_agent(entry, numbers)]
    return [_network_row(entry, numbers) if entry.values.ndim == 3 else _row(entry) for entry in found]


def both_rows(run: RunDirectory) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of the network, and those of its agents."""
    rows, own, numbers = [], [], _numbers(run)
    for entry in _entries(run, None):
        each = _rows_by_agent(entry, numbers)
        rows += [_joined(entry, each)] if entry.values.ndim == 3 else each
        own += each
    return rows, own


def shared_digest(draws: Any) -> str:
    """A digest of the draws of shared parameters in unison: all agents have the same."""
    digest = hashlib.sha256()
    for name in draws.attrs["parameters"]:
        if "agent" not in draws[name].dims:
            digest.update(np.ascontiguousarray(draws[name].to_numpy()).tobytes())
    return digest.hexdigest()


def num_parameters(draws: xarray.Dataset) -> int:
    """How many scalar parameters an agent has; the most, where they differ."""
    return sum(int(np.prod(_own_shape(draws[name]), dtype=int)) for name in draws.attrs["parameters"])


def derived_of(run: RunDirectory, draws: xarray.Dataset) -> xarray.Dataset | None:
    """What the problem derives from these draws, if that was stored."""
    found = run.derived
    return None if found is None else found.sel(draw=found["draw"].isin(draws["draw"]))


def evenly(count: int, most: int) -> np.ndarray:
    """At most `most` of the numbers `0 … count − 1`, evenly spread.

    >>> evenly(10, 4).tolist(), evenly(3, 5).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def scope(run: RunDirectory) -> str:
    """Which parameters and agents the rows of a run are about, in words."""
    draws, agents, described = run.latest_draws, run.agent_numbers, _numbers(run)
    alike = not run.plan.is_unison
    chosen = _chosen(draws, len(described) if alike else 1)
    what = "every parameter" if chosen is None else f"{len(chosen):,} of {num_parameters(draws):,} parameters"
    where = "every agent" if len(described) == len(agents) else f"{len(described)} of {len(agents):,} agents"
    return f"{what} at {where}"


def _numbers(run: RunDirectory) -> list[int]:
    """The agents that are described: of a large network by gossip, some."""
    agents = run.agent_numbers
    if run.plan.is_unison or len(agents) * num_parameters(run.draws) <= MOST_ROWS:
        return agents
    return [agents[place] for place in evenly(len(agents), MOST_AGENTS)]


def _entries(run: RunDirectory, transform: Transform) -> Iterator[Entry]:
    draws = run.latest_draws
    derived = derived_of(run, draws)
    names, agents, alike = Names.of(draws, derived), _numbers(run), not run.plan.is_unison
    functions = Functions(transform)
    chosen = _chosen(draws, len(agents) if alike else 1)
    for entry in _of_dataset(draws, names, agents, alike, False, chosen):
        yield functions.applied(entry)
    if derived is not None:
        for entry in _of_dataset(derived, names, agents, alike, True, None):
            yield functions.applied(entry)
    functions.require_used()


def _chosen(draws: xarray.Dataset, agents: int) -> set[tuple[str, tuple[int, ...]]] | None:
    """Of a large model by gossip, the entries that are described, evenly chosen."""
    every = num_parameters(draws)
    if agents == 1 or every * agents <= MOST_ROWS:
        return None
    places = [(name, place) for name in draws.attrs["parameters"] for place in np.ndindex(*_own_shape(draws[name]))]
    return {places[number] for number in evenly(every, MOST_CHOSEN)}


def _of_dataset(
    draws: xarray.Dataset,
    names: Names,
    agents: list[int],
    alike: bool,
    derived: bool,
    chosen: set[tuple[str, tuple[int, ...]]] | None,
) -> Iterator[Entry]:
    for name in draws.attrs["parameters"]:
        variable = draws[name].sel(agent=agents) if "agent" in draws[name].dims else draws[name]
        wanted = [place for place in np.ndindex(*_own_shape(variable)) if chosen is None or (name, place) in chosen]
        if not wanted:
            continue
        values: Any = variable.to_numpy() if variable.nbytes <= _READ_AT_ONCE else variable
        whose: Iterable[int | None] = [None]
        if "agent" in variable.dims and (not alike or name in (*names.private, *names.derived)):
            whose = agents
        for number, agent in enumerate(whose):
            for place in wanted:
                column = np.asarray(values[(..., *place)], float)
                column = column if agent is None else column[:, number]
                if agent is not None and np.isnan(column).all():
                    continue  # filling: agents may have fewer private parameters than others
                label = names.entry(name, place, agent)
                yield Entry(entry_name(name, place), label, names.ratios.get(name), derived, column, agent)


def _own_shape(variable: Any) -> tuple[int, ...]:
    """The shape of a parameter in one draw of one agent."""
    return variable.shape[3:] if "agent" in variable.dims else variable.shape[2:]


def _rows_by_agent(entry: Entry, agents: list[int]) -> list[dict[str, Any]]:
    if entry.values.ndim == 2:
        return [_row(entry)]
    return [_row(entry._replace(values=entry.values[:, place], agent=agent)) for place, agent in enumerate(agents)]


def _network_row(entry: Entry, agents: list[int]) -> dict[str, Any]:
    return _joined(entry, _rows_by_agent(entry, agents))


def _joined(entry: Entry, each: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of the network, from those of its agents."""

    def worst(name: str, pick: Any) -> float | None:
        known = [row[name] for row in each]
        return None if None in known else pick(known)

    return {
        **_described(entry._replace(values=np.moveaxis(entry.values, 1, 0).reshape(-1, entry.values.shape[2]))),
        "between_agents": _between([row["mean"] for row in each]),
        "rhat_across_agents": _plain(agreement(entry.values[..., None])[0]) if len(each) > 1 else None,
        "rhat": worst("rhat", max),
        **{name: worst(name, min) for name in ("ess", "ess_tail")},
        "mean_error": worst("mean_error", max),
    }


def _between(means: list[float | None]) -> float | None:
    known = [mean for mean in means if mean is not None]
    return float(np.std(known)) if len(known) == len(means) > 1 else None


def _row(entry: Entry) -> dict[str, Any]:
    """From `(chains, draws)`."""
    column = entry.values[:, :: max(1, entry.values.shape[1] // MOST_DRAWS), None]
    if not np.isfinite(entry.values).all():
        return {**_described(entry), **dict.fromkeys(("rhat", "ess", "ess_tail", "mean_error"))}
    measured = {
        "rhat": rhat(column),
        "ess": effective_draws(column),
        "ess_tail": effective_draws(column, "tail"),
        "mean_error": mean_error(column),
    }
    numbers = {name: _plain(value[0]) for name, value in measured.items()}
    return {**_described(entry), **numbers}


def _described(entry: Entry) -> dict[str, Any]:
    """Names, moments and quantiles; of a ratio the median, which it shares with what it is the exponential of."""
    low, middle, high = (float(one) for one in np.quantile(entry.values, (LOW, 0.5, HIGH)))
    with np.errstate(over="ignore"):
        ratio = {
            "ratio_name": entry.ratio,
            **{
                name: _plain(np.exp(one))
                for name, one in (("ratio", middle), ("ratio_low", low), ("ratio_high", high))
            },
        }
    return {
        "parameter": entry.parameter,
        "label": entry.label,
        **({} if entry.agent is None else {"agent": entry.agent}),
        **({DERIVED: True} if entry.derived else {}),
        "mean": _plain(entry.values.mean()),
        "standard_deviation": _plain(_spread(entry.values)),
        "low": _plain(low),
        "high": _plain(high),
        **(ratio if entry.ratio else {}),
    }


def _spread(values: np.ndarray) -> Any:
    with np.errstate(invalid="ignore"):  # of draws that are no numbers it is none
        return values.std()


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
