"""A series: several runs of one experiment, and one report that compares them.

    SERIES/
      series.json           which experiment, which runs
      agents-1/, agents-5/  the runs
      summary.json          the main network's summary, with `results` that compare all
      figures/*.png, report.html

Interrupted, it resumes with the runs that are not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from consilience.errors import PlanError, RunError
from consilience.experiments import EXPERIMENTS
from consilience.plans import Plan
from consilience.reports import Section, render_page
from consilience.reports.run_report import details, theory_of
from consilience.reports.tables import shown
from consilience.reports.verdicts import verdict_section
from consilience.runs.directory import require_free
from consilience.runs.files import disk_errors, read_json, write_json
from consilience.runs.loop import ShowProgress
from consilience.sampling.by_graph import compares_graphs, rows_by_graph, sections_by_graph
from consilience.sampling.run import Run
from consilience.sampling.sample import is_finished, resume, sample

ShowRun = Callable[[Plan], ShowProgress | None]


def start_series(name: str, plans: Mapping[str, Plan], out: Path, show: ShowRun) -> None:
    """Run every plan of a series, each in a directory of its own.

    Args:
        name: the experiment.
        plans: by the names of the runs.
        out: the series' directory.
        show: called before each run; returns what shows its progress.
    """
    tuned = next((plan for plan in plans.values() if plan.is_unison), None)
    if tuned is not None:
        raise PlanError(
            f"the series {name} compares networks whose agents each walk a chain of their own: for "
            f"{tuned.sampler.kind} name one network, with --agents {tuned.num_agents}"
        )
    require_free(out)
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        runs = {directory: plan.to_toml() for directory, plan in plans.items()}
        write_json(out / "series.json", {"format": 1, "experiment": name, "runs": runs})
    continue_series(out, show)


def continue_series(path: Path, show: ShowRun) -> None:
    """Do what is left of a series, then compare its runs."""
    series = read_json(_file(path))
    experiment = EXPERIMENTS[series["experiment"]]
    for directory, document in series["runs"].items():
        plan = Plan.from_toml(document)
        where = path / directory
        if (where / "plan.toml").exists():
            if not is_finished(where):
                resume(where, progress=show(plan), theory=True)
        else:
            sample(experiment.problem_of(plan), plan, where, progress=show(plan), theory=True)
    _compare(path)


def report_series(path: Path) -> Path:
    """Redraw the series' report and the reports of its runs."""
    series, runs = read_json(_file(path)), series_runs(path)
    experiment = EXPERIMENTS[series["experiment"]]
    for run in runs.values():
        run.report()
    summaries = {name: run.summary for name, run in runs.items()}
    main = runs.get(experiment.main) or next(iter(runs.values()))
    sizes = ", ".join(map(str, sorted({run.plan.num_agents for run in runs.values()})))
    facts = {
        "networks": f"{sizes} agents",
        "graph": main.plan.graph.name,
        "steps": shown(main.plan.num_steps),
        "chains": shown(main.plan.num_chains),
        "sampling": f"{sum(s['timing']['sampling_seconds'] for s in summaries.values()):.1f} s",
        "steps per second": shown(main.summary["timing"]["steps_per_second"]),
    }
    by_graph = compares_graphs({name: run.plan for name, run in runs.items()})
    subtitle = f"Networks of {sizes} agents sample the same posterior"
    if by_graph:
        facts["graph"] = ", ".join(runs)
        subtitle = f"{sizes} agents on {len(runs)} graphs sample the same posterior"
    folded = {f"{run_name}: {name}": text for run_name, run in runs.items() for name, text in details(run).items()}
    whole = read_json(path / "summary.json")
    told = "" if by_graph else experiment.verdict(summaries)
    verdict = [*verdict_section(whole), *([Section("Verdict", told)] if told else [])]
    own = sections_by_graph(whole, runs) if by_graph else experiment.series_sections(runs)
    sections = [*verdict, *own, *theory_of(main)]
    return render_page(path, experiment.title, subtitle, facts, sections, folded)


def is_series(path: Path) -> bool:
    """Whether a directory holds a series."""
    return _file(path).is_file()


def _file(path: Path) -> Path:
    """Where a series says what it is; version 0.1 and early ones of 0.2 had another name for it."""
    older = path / "study.json"
    return older if older.is_file() else path / "series.json"


def _compare(path: Path) -> None:
    series, runs = read_json(_file(path)), series_runs(path)
    experiment = EXPERIMENTS[series["experiment"]]
    summaries: dict[str, dict[str, Any]] = {name: run.summary for name, run in runs.items()}
    main = summaries.get(experiment.main) or next(iter(summaries.values()))
    found = experiment.series_results(summaries)
    if compares_graphs({name: run.plan for name, run in runs.items()}):
        found["results"] = rows_by_graph(experiment, summaries)
    for row, summary in zip(found["results"], summaries.values(), strict=True):
        row["converged"] = summary.get("converged")
    with disk_errors(path):
        write_json(path / "summary.json", {**main, **found, **verdict_of_all(summaries)})


def verdict_of_all(summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Whether all runs have converged, which have not and why, and what to do about the first of those."""
    short = {name: one for name, one in summaries.items() if one.get("converged") is not True}
    if not short:
        return {"converged": True, "why_not": [], "verdict": f"Converged: all {len(summaries)} runs.", "remedy": ""}
    bad = {name: one for name, one in short.items() if one.get("converged") is False}
    why_not = [f"{name}: {'; '.join(one['why_not'])}" for name, one in short.items()]
    count = f"{len(bad or short)} of {len(summaries)} runs"
    words = "Not converged" if bad else "Not a sample of the posterior"
    remedies = dict.fromkeys(one["remedy"] for one in bad.values() if one.get("remedy"))
    return {
        "converged": False if bad else None, "why_not": why_not, "remedy": next(iter(remedies), ""),
        "verdict": f"{words}: {count} ({'. '.join(why_not)}).",
    }  # fmt: skip


def series_runs(path: Path) -> dict[str, Run]:
    """The runs of a complete series by name."""
    directories = {name: path / name for name in read_json(_file(path))["runs"]}
    missing = [str(where) for where in directories.values() if not (where / "summary.json").exists()]
    if missing:
        raise RunError(
            f"the series {path} is not complete ({', '.join(missing)}): finish it with `consilience resume {path}`"
        )
    return {name: Run(where) for name, where in directories.items()}
