"""The commands that think before anything runs: `check`, `theory`, `suggest` and `mesh plan`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli.options import Json, Target, default_path, takes_plan
from consilience.cli.processes import Devices, ModelDevices

if TYPE_CHECKING:
    from consilience.plans import Plan
    from consilience.sampling.targets import Wishes

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
Bandwidth = Annotated[float, typer.Option("--bandwidth", help="Bytes a second that a device sends (assumed).")]
Latency = Annotated[float, typer.Option("--latency", help="Seconds that a message takes at least (assumed).")]

mesh = typer.Typer(help="Agents spread over many devices: what a mesh would cost.", no_args_is_help=True)


@takes_plan()
def check(target: Target, wishes: Wishes, as_json: Json = False) -> None:
    """Say whether a plan is stable, which errors it leaves, what nodes learn of each other, without running it."""
    from consilience.cli import display, study_display
    from consilience.engines.matching import require_matching
    from consilience.experiments import load_problem
    from consilience.planning import checks
    from consilience.planning.foresight import errors_left
    from consilience.sampling.targets import plans_for
    from consilience.studies import is_study

    if is_study(target) and not wishes.num_agents and not wishes.data:
        study_display.print_study_file(target, as_json)
        return
    results: list[tuple[Any, Any]] = []
    for plan in (one.plan for one in plans_for(target, wishes).values()):
        problem = load_problem(plan, data=wishes.data) if plan.problem or wishes.data else None
        if problem is not None:
            require_matching(problem, plan)
        findings = checks.check(plan, problem)
        if all(finding.level != "error" for finding in findings):
            findings += errors_left(plan, problem)
        results.append((plan, [*findings, *checks.revealed(plan, problem)]))
        if plan.study is not None and not as_json:
            study_display.print_study(plan)
    if as_json:
        typer.echo(json.dumps([[finding.to_dict() for finding in findings] for _, findings in results], indent=2))
    else:
        display.print_findings(results)
    if any(finding.level == "error" for _, findings in results for finding in findings):
        raise typer.Exit(2)


@takes_plan("auto")
def theory(
    target: Target,
    wishes: Wishes,
    choices: Choices = None,
    compare: Compare = False,
    tolerance: Tolerance = 0.1,
    out: TheoryOut = None,
    as_json: Json = False,
) -> None:
    """Say whether a plan converges, how fast and in how many steps; with constants, bounds and figures."""
    from consilience.cli import display
    from consilience.experiments import load_problem
    from consilience.planning.assessment_values import described
    from consilience.planning.assessments import assess
    from consilience.reports.theory_page import write_theory
    from consilience.runs.directory import require_free
    from consilience.sampling.targets import main_plan
    from consilience.theory import comparisons, require_dula
    from consilience.theory.iterations import require_tolerance

    if bool(choices) != compare:
        raise typer.BadParameter("to compare, write for example --compare graph=ring,star agents=5,10")
    require_tolerance(tolerance)
    path = out or default_path(target, "theory-")
    require_free(path)
    varied = comparisons.parse_choices(choices or [])
    plan = main_plan(target, wishes).plan
    require_dula(plan.sampler)
    problem = load_problem(plan, data=wishes.data)
    with display.working(quiet=as_json) as show:
        assessment = assess(problem, plan, show)
        draws = assessment.pilot.averages[-1] if assessment.pilot else None
        rows = (
            comparisons.compare(problem, plan, varied, tolerance, show, draws, load_problem if plan.problem else None)
            if compare
            else []
        )
        values = described(assessment, tolerance, rows)
        page = write_theory(values, assessment.plan_documents, path)
    if as_json:
        typer.echo(json.dumps({**values, "report": str(page)}, indent=2))
    else:
        display.print_theory(values, page)


@takes_plan("auto")
def suggest(
    target: Target, wishes: Wishes, proven: Proven = False, out: PlanOut = None, as_json: Json = False
) -> None:
    """Choose a sampler's numbers for a problem, a graph and a budget of steps, and say why."""
    from consilience.cli import display
    from consilience.errors import PlanError
    from consilience.experiments import load_problem
    from consilience.planning import suggestions
    from consilience.runs.files import disk_errors, write_text
    from consilience.samplers import SAMPLERS
    from consilience.sampling.targets import main_plan
    from consilience.sampling.wishes import as_option

    wishes.require_known()
    given = [as_option(name) for name in wishes.numbers if name not in ("temperature", "target_acceptance")]
    if given:
        raise PlanError(f"suggest chooses the step sizes: leave out {', '.join(given)}")
    with display.working(quiet=as_json) as show:
        show("warming up")
        kind = wishes.sampler and SAMPLERS[wishes.sampler]
        if ":" in target and wishes.num_steps is None and kind and not kind.tunes_by_default:
            raise PlanError(f"{target} is your own problem: say for how many steps of {wishes.sampler}, with --steps")
        if kind and kind.tunes_by_default:
            resolved = main_plan(target, wishes)
        else:
            only_weighed = wishes.num_steps is not None
            resolved = main_plan(target, dataclasses.replace(wishes, sampler=None), only_weighed=only_weighed)
        plan = resolved.plan
        if not plan.is_unison:
            found = suggestions.suggest(
                load_problem(plan, data=wishes.data), plan.graph, plan.num_steps, plan, sampler=wishes.sampler,
                choose=resolved.unsaid,
            )  # fmt: skip
    if plan.is_unison:
        _nothing_to_suggest(plan, proven, out, as_json)
        return
    both = [found.practical, *([found.proven] if found.proven else [])]
    if out is not None:
        if proven and found.proven is None:
            raise PlanError(f"there is no plan inside the theorems: {found.why_not_proven}")
        with disk_errors(out.parent):
            write_text(out, (both[-1] if proven else both[0]).plan.to_toml())
    if as_json:
        plans = {one.name: {"plan": one.plan.model_dump(), "reasons": one.reasons} for one in both}
        typer.echo(json.dumps({**plans, "warm_up": found.found}, indent=2))
    else:
        display.print_suggestions(both, found.why_not_proven)
        if out is not None:
            typer.echo(f"\nPlan: {out}")


def _nothing_to_suggest(plan: Plan, proven: bool, out: Path | None, as_json: bool) -> None:
    """Say that the sampler needs no numbers; write the plan all the same, if that is wanted."""
    from consilience.cli import display
    from consilience.errors import PlanError
    from consilience.runs.files import disk_errors, write_text

    if proven:
        raise PlanError("the theorems are about D-ULA: give --steps, or --sampler dula, for a plan inside them")
    if out is not None:
        with disk_errors(out.parent):
            write_text(out, plan.to_toml())
    if as_json:
        reasons = [f"{plan.sampler.kind} tunes itself"]
        typer.echo(json.dumps({"practical": {"plan": plan.model_dump(), "reasons": reasons}}, indent=2))
        return
    display.print_nothing_to_suggest(plan)
    if out is not None:
        typer.echo(f"\nPlan: {out}")


@mesh.command("plan")
@takes_plan("auto")
def mesh_plan(
    target: Target,
    wishes: Wishes,
    devices: Devices = None,
    model_devices: ModelDevices = None,
    bandwidth: Bandwidth = 1.25e9,
    latency: Latency = 50e-6,
    as_json: Json = False,
) -> None:
    """Say what a mesh would hold, send and gain, from its layout and the compiled program, without running it."""
    from consilience.cli import network_display
    from consilience.engines.mesh.costs import Rates, costs_of
    from consilience.engines.mesh.devices import DeviceSettings, prepare_devices
    from consilience.engines.mesh.engine import MeshSimulation
    from consilience.errors import MeshError
    from consilience.experiments.loading import sized_problem
    from consilience.sampling.targets import main_plan

    prepare_devices(devices)
    made = main_plan(target, wishes, only_weighed=True).plan
    if made.is_unison:
        raise MeshError(
            f"what is weighed is a step of gossip, and the sampler {made.sampler.kind} makes sums over all devices "
            "instead: take --sampler dula, or another one by gossip"
        )
    problem, repeated = sized_problem(made, wishes.data)
    rates = Rates(bandwidth=bandwidth, latency=latency)
    settings = DeviceSettings(devices=devices, model_devices=model_devices or 1)
    costs = costs_of(MeshSimulation(problem, made, settings), rates)
    if as_json:
        typer.echo(json.dumps({**costs.to_dict(), "rates": vars(rates), "data_repeated": repeated}, indent=2))
    else:
        network_display.print_costs(made, costs.to_dict(), vars(rates), repeated)
