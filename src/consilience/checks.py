"""What can be said about a plan before it runs: is it stable, and is it inside the paper's theorems?

An *error* means that the dynamics cannot stay bounded; the plan is refused. A *warning* means that it can run, but
that the theorems do not speak about it or that something deserves a look: the paper's own experiments give two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consilience.errors import UnstableError
from consilience.plans import Plan
from consilience.schedules import broken_conditions

if TYPE_CHECKING:
    from consilience.problems import Problem

_CURVATURE_ROWS = 256
_CURVATURE_ROWS_OF_LARGE_MODELS = 64
_POWER_ITERATIONS = 30


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    level: Literal["ok", "warning", "error"]
    topic: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return self.message + (f": {self.remedy}" if self.remedy else "")

    def to_dict(self) -> dict[str, str]:
        """The finding as plain values."""
        return asdict(self)


def check(plan: Plan, problem: Problem | None = None, curvature: float | None = None) -> list[Finding]:
    """Check a plan, and its step size against the problem's curvature if the problem or the curvature is given.

    >>> from consilience import dula, graphs
    >>> plan = Plan(graph=graphs.star(10), sampler=dula(1e-3, 0.3), num_steps=100)
    >>> [finding.topic for finding in check(plan) if finding.level == "error"]
    ['consensus step']
    """
    consensus = _consensus(plan)
    findings = [_graph(plan), consensus, *_conditions(plan), *_temperature(plan)]
    if consensus.level == "error":
        return findings
    if curvature is not None:
        findings.append(_step_size(plan, curvature))
    elif problem is not None:
        findings.append(_step_size(plan, largest_curvature(plan, problem)))
    return findings


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


def _consensus(plan: Plan) -> Finding:
    graph, largest = plan.graph, float(plan.sampler.consensus(0))
    if not graph.num_edges:
        return Finding("ok", "consensus step", "a single agent needs no consensus")
    stable, proven = graph.stable_consensus_limit, graph.proven_consensus_limit
    shown = f"β_0 = {largest:.4g}, β_0 λ_max = {largest * graph.largest_eigenvalue:.4g}"
    if largest >= stable:
        return Finding(
            "error",
            "consensus step",
            f"the consensus step is unstable on this graph ({shown}, must stay below 2)",
            f"start the consensus step below {stable:.4g}; {graph.fastest_consensus:.4g} agrees fastest",
        )
    if largest >= proven:
        return Finding(
            "warning",
            "consensus step",
            f"the consensus step is stable but outside the theorems ({shown}, they ask for less than 1)",
            f"start it below {proven:.4g} to be inside",
        )
    return Finding("ok", "consensus step", f"stable and inside the theorems ({shown})")


def _conditions(plan: Plan) -> list[Finding]:
    sampler = plan.sampler
    broken = broken_conditions(sampler.step_size, sampler.consensus)
    findings = [
        Finding(
            "warning",
            "schedules",
            f"outside the theorems: {text}",
            "take δ_2 between 1/2 + δ_1 and 1, for example δ_1 = 0.05 and δ_2 = 0.6",
        )
        for text in broken
    ]
    return findings or [
        Finding(
            "ok",
            "schedules",
            f"1/2 + δ_1 < δ_2 < 1 holds with δ_1 = {sampler.consensus.exponent:g}, "
            f"δ_2 = {sampler.step_size.exponent:g}",
        )
    ]


def _temperature(plan: Plan) -> list[Finding]:
    temperature = plan.sampler.temperature
    if temperature == 1:
        return []
    what = "optimises, it does not sample" if temperature == 0 else "samples another law than the posterior"
    return [Finding("warning", "temperature", f"temperature {temperature:g} {what}", "use 1 for the posterior")]


def _step_size(plan: Plan, curvature: float) -> Finding:
    n = plan.num_agents
    first, last = (float(plan.sampler.step_size(k)) for k in (0, plan.num_steps - 1))
    pull = float(plan.sampler.consensus(0)) * plan.graph.largest_eigenvalue if plan.graph.num_edges else 0.0
    limit = 2 / (n * curvature) if curvature > 0 else np.inf
    shown = f"n L ≈ {n * curvature:.4g} where the agents start, α_0 n L ≈ {first * n * curvature:.4g}"
    if last >= limit:
        return Finding(
            "error",
            "step size",
            f"the step size is unstable throughout the run ({shown}, must stay below 2)",
            f"start it below {limit:.3g}",
        )
    if first * n * curvature + pull >= 2:
        return Finding(
            "warning",
            "step size",
            f"the first steps may overshoot ({shown}, β_0 λ_max = {pull:.3g}, together 2 or more)",
            f"start the step size below {max(0.0, (2 - pull) / (n * curvature)):.3g} if the run diverges",
        )
    return Finding("ok", "step size", f"stable against the estimated curvature ({shown})")


def largest_curvature(plan: Plan, problem: Problem, agents: np.ndarray | None = None) -> float:
    """The largest curvature `max_i λ_max(∇²U_i)` where the agents start, estimated.

    Power iteration with Hessian-vector products, on up to 256 rows of each shard (64 for a large model), scaled up to
    all of it. `agents` are the numbers of those whose shards the problem has, if it has not all of them.
    """
    import jax

    with jax.enable_x64(plan.dtype == "float64"):
        return _largest_curvature(plan, problem, np.arange(problem.num_agents) if agents is None else agents)


def _largest_curvature(plan: Plan, problem: Problem, agents: np.ndarray) -> float:
    import jax
    import jax.numpy as jnp

    from consilience.gradients import MANY_PARAMETERS, local_gradient
    from consilience.problems import Parameters, initial_positions
    from consilience.randomness import Purpose, agent_keys

    dtype = jnp.dtype(plan.dtype)
    parameters = Parameters.of(problem, dtype)
    keys = agent_keys(plan.seed, Purpose.INIT, np.arange(1), agents)
    start = initial_positions(problem, parameters, keys, dtype)[0]
    most = _CURVATURE_ROWS if parameters.size <= MANY_PARAMETERS else _CURVATURE_ROWS_OF_LARGE_MODELS
    rows = int(min(most, problem.shard_sizes.max()))
    used = np.minimum(problem.shard_sizes, rows)
    weights = jnp.asarray(np.arange(rows) < used[:, None], dtype)
    data = jax.tree.map(lambda leaf: leaf[:, :rows], problem.stacked_shards(dtype))
    gradient = local_gradient(problem, parameters)

    def one_agent(w: jax.Array, shard: Any, weights: jax.Array, scale: jax.Array) -> jax.Array:
        def hessian_times(v: jax.Array) -> jax.Array:
            return jax.jvp(lambda w: gradient(w, shard, weights, scale), (w,), (v,))[1]

        def iterate(_: int, v: jax.Array) -> jax.Array:
            product = hessian_times(v)
            return product / (jnp.linalg.norm(product) + jnp.finfo(dtype).tiny)

        first = jax.random.normal(jax.random.key(0), w.shape, dtype)
        v = jax.lax.fori_loop(0, _POWER_ITERATIONS, iterate, first / jnp.linalg.norm(first))
        return v @ hessian_times(v)  # negative where the potential curves downwards, which is no stiffness

    scale = jnp.asarray(problem.shard_sizes / used, dtype)

    @jax.jit
    def by_agent(*arrays: Any) -> jax.Array:
        """One agent after the other: all at once could need a lot of memory."""
        return jax.lax.map(lambda own: one_agent(*own), arrays)

    curvatures = by_agent(start, data, weights, scale)
    return max(0.0, float(jnp.nanmax(jnp.where(jnp.isfinite(curvatures), curvatures, 0.0))))
