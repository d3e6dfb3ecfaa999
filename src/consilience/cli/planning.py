"""The commands that think before anything runs: `theory` and `suggest`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.commands import (
    Agents,
    BatchSize,
    Consensus,
    GraphName,
    Json,
    Steps,
    StepSize,
    Target,
    Temperature,
    default_path,
)

Choices = Annotated[
    list[str] | None, typer.Argument(help="What to compare: graph=ring,star,complete agents=5,10,50.")
]
Compare = Annotated[bool, typer.Option("--compare", help="Compare graphs and numbers of agents, which follow.")]
Tolerance = Annotated[float, typer.Option("--tolerance", help="What KL(p_k ‖ p*) should fall below, in nats.")]
TheoryOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="Directory for the page (by default runs/theory-NAME-TIME).")
]
PlanOut = Annotated[Path | None, typer.Option("--out", "-o", help="Write the plan to this TOML file.")]
Proven = Annotated[bool, typer.Option("--proven", help="Write the plan that is inside the theorems instead.")]


def theory(
    target: Target,
    choices: Choices = None,
    compare: Compare = False,
    tolerance: Tolerance = 0.1,
    agents: Agents = None,
    graph: GraphName = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    step_size: StepSize = None,
    consensus: Consensus = None,
    temperature: Temperature = None,
    out: TheoryOut = None,
    as_json: Json = False,
) -> None:
    """Say whether a plan converges, how fast and in how many steps; with constants, bounds and figures."""
    from consilience import comparisons
    from consilience.assessments import assess
    from consilience.cli import display
    from consilience.experiments import load_problem
    from consilience.reports.theory_page import write_theory
    from consilience.runs.directory import require_free
    from consilience.targets import main_plan
    from consilience.theory.iterations import require_tolerance

    if bool(choices) != compare:
        raise typer.BadParameter("to compare, write for example --compare graph=ring,star agents=5,10")
    require_tolerance(tolerance)
    path = out or default_path(target, "theory-")
    require_free(path)
    varied = comparisons.parse_choices(choices or [])
    plan = main_plan(
        target, num_agents=agents, graph=graph, num_steps=steps, batch_size=batch_size, step_size=step_size,
        consensus=consensus, temperature=temperature,
    )  # fmt: skip
    problem = load_problem(plan)
    with display.working(quiet=as_json) as show:
        assessment = assess(problem, plan, show)
        draws = assessment.pilot.averages[-1] if assessment.pilot else None
        rows = comparisons.compare(problem, plan, varied, tolerance, show, draws) if compare else []
        described, page = write_theory(assessment, tolerance, rows, path)
    if as_json:
        typer.echo(json.dumps({**described, "report": str(page)}, indent=2))
    else:
        display.print_theory(described, page)


def suggest(
    target: Target,
    agents: Agents = None,
    graph: GraphName = None,
    steps: Steps = None,
    proven: Proven = False,
    out: PlanOut = None,
    as_json: Json = False,
) -> None:
    """Choose step sizes for a problem, a graph and a budget of steps, and say why."""
    from consilience import suggestions
    from consilience.cli import display
    from consilience.errors import PlanError
    from consilience.experiments import load_problem
    from consilience.runs.files import disk_errors, write_text
    from consilience.targets import main_plan

    plan = main_plan(target, num_agents=agents, graph=graph, num_steps=steps, auto=True)
    with display.working(quiet=as_json) as show:
        show("finding the constants of the problem")
        found = suggestions.suggest(load_problem(plan), plan.graph, plan.num_steps, plan)
    both = [found.practical, *([found.proven] if found.proven else [])]
    if out is not None:
        if proven and found.proven is None:
            raise PlanError(f"there is no plan inside the theorems: {found.why_not_proven}")
        with disk_errors(out.parent):
            write_text(out, (both[-1] if proven else both[0]).plan.to_toml())
    if as_json:
        plans = {one.name: {"plan": one.plan.model_dump(), "reasons": one.reasons} for one in both}
        typer.echo(json.dumps(plans, indent=2))
    else:
        display.print_suggestions(both, found.why_not_proven)
        if out is not None:
            typer.echo(f"\nPlan: {out}")
