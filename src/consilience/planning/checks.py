"""What can be said about a plan before it runs: is it stable, and is it inside the paper's theorems?

The sampler itself answers (`Sampler.findings`); what is said here holds for every one. The paper's own experiments
give two warnings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.errors import UnstableError
from consilience.plans import Plan
from consilience.samplers import Corrected, Finding, Unison

if TYPE_CHECKING:
    from consilience.problems import Problem


def check(plan: Plan, problem: Problem | None = None, curvature: float | None = None) -> list[Finding]:
    """Check a plan, and its step size against the problem's curvature if the problem or the curvature is given.

    >>> from consilience import dula, graphs
    >>> plan = Plan(graph=graphs.star(10), sampler=dula(1e-3, 0.3), num_steps=100)
    >>> [finding.topic for finding in check(plan) if finding.level == "error"]
    ['consensus step']
    """
    if curvature is None and problem is not None and plan.sampler.feels_curvature:
        from consilience.kernel.curvature import largest_curvature

        curvature = largest_curvature(problem, plan.seed, plan.dtype)
    found = [_graph(plan), *plan.sampler.findings(plan.graph, plan.num_steps, curvature)]
    found += [*_batches(plan), *_temperature(plan)]
    return [*found, *_private(plan, problem)] if problem is not None else found


def revealed(plan: Plan, problem: Problem | None = None) -> list[Finding]:
    """What nodes would learn of each other's data from messages, and from sums over the network."""
    if plan.num_agents == 1:
        return []
    if plan.is_unison:
        return [_by_sums(plan, "a sum"), *_by_private(problem)]
    return [*_by_messages(plan), *([_by_sums(plan, "a sum of the warm-up")] if plan.sampler.tunes_itself else [])]


def _by_sums(plan: Plan, sum_: str) -> Finding:
    """What nodes learn from sums."""
    if plan.num_agents == 2:
        message = f"of two agents each can take its own part from {sum_}, and has the other's: nothing hides it"
        return Finding("warning", "masks", message, "a third agent")
    if plan.masked is False:
        message = f"without masks a node sees the gradients of agents whose parts of {sum_} pass through it"
        return Finding("warning", "masks", message, "leave out masked = false (--unmasked)")
    return Finding(
        "ok", "masks", f"between nodes, an agent's part of {sum_} is hidden; the sum itself is known to all"
    )


def _by_private(problem: Problem | None) -> list[Finding]:
    """What sums tell of single agents that move private parameters by random numbers that all know."""
    if problem is None or not problem.private:
        return []
    message = "from many sums a patient member can compute what an agent's private parameters depend on, masks or not"
    return [Finding("warning", "private parameters", message, "a model without them, if no agent may be told apart")]


def _by_messages(plan: Plan) -> list[Finding]:
    """What neighbours learn from messages of gossip."""
    if plan.sampler.kind != "kinetic" and not plan.gossip.has_common_noise:
        return []
    why = "the noise is known to all" if plan.gossip.has_common_noise else "position and momentum together tell it"
    message = f"a neighbour can read an agent's gradients from its messages, without noise ({why})"
    return [Finding("warning", "messages", message, "langevin with noise of its own adds noise to all that is sent")]


def counted(num_agents: int) -> str:
    """So many agents, in words."""
    return f"{num_agents:,} agent{'s' if num_agents != 1 else ''}"


def require_stable(findings: list[Finding]) -> None:
    """Raise an error for a plan that cannot stay bounded."""
    errors = [str(finding) for finding in findings if finding.level == "error"]
    if errors:
        raise UnstableError("; ".join(errors))


def _graph(plan: Plan) -> Finding:
    graph = plan.graph
    return Finding(
        "ok",
        "graph",
        f"{graph.name} of {counted(graph.num_agents)}, {graph.num_edges} edges, connected"
        + (
            f"; λ₂ = {graph.algebraic_connectivity:.4g}, λ_max = {graph.largest_eigenvalue:.4g}"
            if graph.num_edges
            else ""
        ),
    )


def _private(plan: Plan, problem: Problem) -> list[Finding]:
    """A sampler in unison may not take private parameters."""
    if not problem.private or not isinstance(plan.sampler, Unison) or plan.sampler.takes_private:
        return []
    names = ", ".join(problem.private)
    return [Finding("error", "private parameters", f"{plan.sampler.kind} does not take any ({names})", "take hmc")]


def _batches(plan: Plan) -> list[Finding]:
    """Corrected samplers need control variates for minibatches."""
    if plan.batch_size is None or not isinstance(plan.sampler, Corrected):
        return []
    if plan.has_control_variates:
        return [Finding("ok", "minibatches", "with control variates, anchored where the warm-up has been")]
    message = "without control variates the noise of minibatches heats: draws are wider than the posterior"
    if plan.sampler.tunes_itself:
        return [Finding("warning", "minibatches", message, "leave out control_variates = false")]
    return [Finding("warning", "minibatches", message, 'a warm-up finds their anchor: leave out whitening = "none"')]


def _temperature(plan: Plan) -> list[Finding]:
    temperature = plan.sampler.temperature
    if temperature == 1:
        return []
    what = "optimises, it does not sample" if temperature == 0 else "samples another law than the posterior"
    return [Finding("warning", "temperature", f"temperature {temperature:g} {what}", "use 1 for the posterior")]
