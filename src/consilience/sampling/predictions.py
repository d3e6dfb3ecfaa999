"""Predictions from a run: by which model, from which draws, of which site; and the table that comes out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from consilience import experiments
from consilience.errors import InputError, RunError
from consilience.predictive.classes import ClassPredictions
from consilience.predictive.draws import is_double, model_draws, thinned
from consilience.predictive.new_rows import require_rows
from consilience.predictive.outcomes import Pieces, Predicted, predict
from consilience.problems import Outcomes, Problem
from consilience.runs.directory import RunDirectory, private_names

if TYPE_CHECKING:
    import pandas

log = logging.getLogger("consilience")
NEW_SITE = "new"
_MOST_DRAWS = 2000


def predictions(
    run: RunDirectory, rows: Any, *, agent: int | str | None, problem: Problem | None, interval: float
) -> pandas.DataFrame:
    """A row for each of the new rows; see `Run.predict`."""
    if not (isinstance(interval, float) and 0 < interval < 1):
        raise InputError(f"interval is {interval!r}: give a share of the probability between 0 and 1, such as 0.95")
    if not run.complete:
        raise RunError(f"{run.path} is not complete ({run.status['status']}): finish it first")
    problem = problem or problem_of(run)
    if problem.outcomes is None:
        raise InputError(
            f"nothing is known about the outcomes of {problem.name!r}: give its Problem `outcomes`, or make it with "
            "cs.from_numpyro, cs.from_flax or a study"
        )
    if isinstance(rows, str | Path):
        rows = read_rows(run, Path(rows), problem)
    with jax.enable_x64(is_double(run.draws)):
        pieces = _pieces(run, problem, problem.outcomes, agent)
        example = jax.tree.map(lambda leaf: leaf[0], next(iter(pieces)).parameters)
        require_rows(rows, problem.shards[0], problem.outcomes, example)
        _say_whether_converged(run)
        found = predict(problem.outcomes, pieces, rows, interval=interval, seed=run.plan.seed)
    return _table(found)


def problem_of(run: RunDirectory) -> Problem:
    """The problem of a run, from its plan: a study's model, for which no data is needed, or what the plan names."""
    study = study_of(run)
    if study is not None:
        return study.model()
    if run.plan.problem is None:
        raise InputError(
            f"the plan of {run.path} names no problem: give the one that the run sampled, run.predict(rows, "
            "problem=problem), or on the command line --problem module:attribute"
        )
    own = run.agent_numbers
    return experiments.load_problem(run.plan, own if len(own) < run.plan.num_agents else None)


def study_of(run: RunDirectory) -> Any:
    """The study of a run, if it is a regression from files."""
    try:
        from consilience.studies.study import of_run
    except ImportError:  # what studies need is not installed, so it is none
        return None
    return of_run(run.plan)


def read_rows(run: RunDirectory, path: Path, problem: Problem) -> Any:
    """Rows from a file: a table, by the study's codebook or with the columns of the data; or arrays of NumPy."""
    study = study_of(run)
    if study is not None:
        return study.new_rows(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if path.suffix == ".npz":
        return dict(np.load(path, allow_pickle=False))
    example = problem.shards[0]
    if path.suffix not in (".csv", ".parquet") or not isinstance(example, dict):
        raise InputError(
            f"{path} is no file that this run's model takes rows from: give arrays in a .npz file, by the names of "
            "the data's arrays, or a .csv file if the data is columns by name"
        )
    import pandas

    table = pandas.read_csv(path) if path.suffix == ".csv" else pandas.read_parquet(path)
    return {name: table[name].to_numpy() for name in table.columns if name in example}


def _pieces(run: RunDirectory, problem: Problem, outcomes: Outcomes, agent: int | str | None) -> Pieces:
    """The draws that say something about the wanted site."""
    draws = run.latest_draws
    if run.plan.sampler.temperature == 0:  # a point estimate
        draws = draws.isel(draw=[-1])
    agents = _whose(run, outcomes, agent)
    each = [thinned(draws if one is None else draws.sel(agent=one), _MOST_DRAWS // len(agents)) for one in agents]
    names = draws.attrs["parameters"]
    return Pieces(
        [lambda own=own: model_draws(problem, own) for own in each],  # type: ignore[misc]
        sum(own[name].nbytes for own in each for name in names),
        outcomes if agent == NEW_SITE else None,
        run.plan.seed,
    )


def _whose(run: RunDirectory, outcomes: Outcomes, agent: int | str | None) -> list[int | None]:
    """The agents whose draws to take; nobody's where all hold the same."""
    draws, there = run.draws, run.agent_numbers
    private = private_names(draws)
    if agent == NEW_SITE and private and outcomes.draw_private is None:
        raise InputError(
            f"{', '.join(private)} of a new site cannot be drawn: give the problem's outcomes `draw_private`"
        )
    if isinstance(agent, bool) or not (agent is None or agent == NEW_SITE or isinstance(agent, int)):
        raise InputError(f'agent is {agent!r}: give the number of a site, or "new" for one that nobody has seen')
    if isinstance(agent, int) and not 0 <= agent < run.plan.num_agents:
        raise InputError(f"there is no site {agent}: the run has the sites 0 to {run.plan.num_agents - 1}")
    if "agent" not in draws.dims:
        return [None]
    if isinstance(agent, int):
        if agent not in there:
            raise InputError(
                f"this run holds what belongs to site {', '.join(map(str, there))}, not to site {agent}: predict "
                "there, or for a new site"
            )
        return [agent]
    if agent is None and private and len(there) > 1:
        raise InputError(
            f"{', '.join(private)} differs from site to site: say of which the rows are (agent=0, --site 0), or that "
            'they are of a new one (agent="new", --new-site)'
        )
    return [there[0]] if run.plan.is_unison else list(there)


def _say_whether_converged(run: RunDirectory) -> None:
    if (run.path / "summary.json").exists() and run.summary.get("converged") is False:
        log.warning("these predictions are from a run that has not converged. %s", run.summary["verdict"])


def _table(found: dict[str, Predicted | ClassPredictions]) -> pandas.DataFrame:
    """The columns of each outcome; with its name before them if there are several."""
    import pandas

    columns: dict[str, Any] = {}
    for name, one in found.items():
        before = f"{name}." if len(found) > 1 else ""
        own = _class_columns(one) if isinstance(one, ClassPredictions) else _number_columns(one)
        columns |= {f"{before}{title}": values for title, values in own.items()}
    table = pandas.DataFrame(columns)
    table.index.name = "row"
    return table


def _number_columns(one: Predicted) -> dict[str, np.ndarray]:
    found = {}
    for place in np.ndindex(*one.mean.shape[1:]):
        entry = f"[{', '.join(map(str, place))}]" if place else ""
        for title, values in one._asdict().items():
            if values is not None:
                found[f"{title}{entry}"] = values[(slice(None), *place)]
    return found


def _class_columns(one: ClassPredictions) -> dict[str, np.ndarray]:
    probabilities = {
        f"probability[{place}]": one.probabilities[:, place] for place in range(one.probabilities.shape[1])
    }
    return {
        "class": one.labels,
        "probability": one.confidence,
        "deviation": one.confidence_deviation,
        "entropy": one.entropy,
        "epistemic": one.epistemic,
        **probabilities,
    }
