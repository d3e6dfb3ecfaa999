"""What is made of a run whose steps are all stored: its summary, its experiment's comparisons, the theory's word."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from consilience.errors import ConditionError, ProblemError
from consilience.experiments.answers import store_derived, store_scores, without_failing
from consilience.experiments.catalogue import find
from consilience.planning.assessment_values import TOLERANCE, described
from consilience.planning.assessments import Sampled, assess_run
from consilience.problems import Problem
from consilience.runs.directory import RunDirectory
from consilience.runs.files import disk_errors, write_json, write_text
from consilience.runs.row_files import as_csv
from consilience.runs.summary import flat_draws, summarise
from consilience.theory import require_dula

log = logging.getLogger("consilience")
ShowShare = Callable[[float], None]


def finish_run(
    run: RunDirectory,
    problem: Problem | None,
    *,
    theory: bool = False,
    show: ShowShare = lambda _: None,
    resume_command: str = "",
    extra: Callable[[dict[str, Any]], dict[str, Any]] = lambda summary: {},
) -> None:
    """Write the summary of a complete run, with what its experiment adds, and what the theory says about it.

    Args:
        run: the run.
        problem: what it inferred; without it, or with a part of the data, what needs all data is left out.
        theory: hold it against the theorems too, which takes some seconds, beside the experiment's comparisons.
        show: called with the share of the experiment's comparisons that is done.
        resume_command: what to say to the shell if the disk refuses.
        extra: from a summary to further entries.
    """
    kept = f" All draws are safe; `{resume_command}` finishes the run." if resume_command else ""
    whole = problem is not None and problem.network_size is None
    asked = theory and whole and not run.plan.sampler.tunes_itself
    with run.opened_once(), ThreadPoolExecutor(1) as beside, disk_errors(run.path, kept):
        if problem is not None:
            without_failing("what its problem derives", store_derived, run, problem)
        summary = summarise(run)
        if problem is not None and asked:
            import scipy.optimize  # before there are two threads, which must not load the same packages
            import scipy.sparse.linalg  # noqa: F401

            answered = beside.submit(write_run_theory, run, problem)
        experiment = find(run.plan.problem)
        if problem is not None and experiment is None:
            without_failing("checks and scores of its rows", store_scores, run, problem)
        analysed = experiment is not None and problem is not None and (whole or not experiment.needs_all_data)
        if experiment is not None and problem is not None and analysed:
            experiment.analyse(run, problem, summary, show)
        run.update_status(analysed=analysed)
        write_text(run.path / "summary.csv", as_csv(summary["posterior"]))
        write_json(run.path / "summary.json", {**summary, **extra(summary)})  # last: a run that has it is finished
    if asked:
        answered.result()  # it is there, and so is what the disk said


def write_run_theory(run: RunDirectory, problem: Problem) -> None:
    """Hold a finished run against the theory; the run is complete whether or not there is an answer for it."""
    try:
        require_dula(run.plan.sampler)
        draws, _ = flat_draws(run, np.arange(run.plan.num_agents))
        metrics = run.metrics
        sampled = Sampled(
            metrics["step"].to_numpy(),
            metrics["consensus_error"].to_numpy().mean(0),
            draws.mean(1).reshape(-1, draws.shape[-1]),
        )
        with jax.enable_x64(run.plan.dtype == "float64"):  # of this thread
            values = described(assess_run(run.plan, problem, sampled), TOLERANCE)
    except (ProblemError, ConditionError) as error:  # too large, not known well enough, or another sampler
        log.info("no theory for this run: %s", error)
        return
    except Exception as error:  # a run must not fail for it
        log.warning("the theory failed for this run: %r", error)
        return
    with disk_errors(run.path):
        write_json(run.path / "theory.json", values)
