"""A cell whose method needs no network: every agent samples its own subposterior, and the results are combined once.

Subposteriors are sampled by our own NUTS with one agent, once for all methods that take their draws. Where one is
improper, or its agent's rows do not identify all parameters, the cell has failed: it has no mode with a positive
definite curvature, which is looked for first, as NUTS would walk for hours, or its chains do not converge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience import graphs
from consilience.baselines import (
    consensus_monte_carlo,
    modes_and_curvatures,
    parametric_product,
    product,
    semiparametric_product,
)
from consilience.errors import ConsilienceError, Interrupted, ProblemError
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.plans import Plan
from consilience.posteriors import Posterior
from consilience.problems import Problem
from consilience.samplers import nuts
from consilience.sampling.run import Run
from consilience.yardstick.cells import Cell, Request
from consilience.yardstick.measures import judged
from consilience.yardstick.methods import METHODS
from consilience.yardstick.sampled import ShowRun, finished, problem_of

_CHAINS, _DRAWS = 4, 2500


def takes_draws(cell: Cell) -> bool:
    """Whether a cell's method combines draws that every agent made alone."""
    return METHODS[cell.method].plan is None and cell.method != "one-shot"


def directory_of_draws(where: Path, cell: Cell) -> Path:
    """Where these draws are, for all methods of a split, beside the directory of a cell."""
    return where.parent / f"alone-{cell.split}-{cell.num_agents}"


def alone(posterior: Posterior, cell: Cell, request: Request, where: Path, show: ShowRun) -> list[Run]:
    """The run of every agent, as it is there or made; refused at once if a subposterior has no mode."""
    problem, place = _shared(posterior, cell, request), directory_of_draws(where, cell)
    agents = [(agent, place / f"agent-{agent}") for agent in range(cell.num_agents)]
    if not all((path / "summary.json").is_file() for _, path in agents):
        with jax.enable_x64(True):
            modes_and_curvatures(problem, _start(problem, Parameters.of(problem, np.float64), request.seed))
    return [_alone(problem, agent, request.seed, path, show) for agent, path in agents]


def _shared(posterior: Posterior, cell: Cell, request: Request) -> Problem:
    """The problem, if agents share all parameters."""
    problem = problem_of(posterior, cell, request.seed)
    if problem.private:
        raise ProblemError(
            f"agents have parameters of their own ({', '.join(problem.private)}), of which a product of what agents "
            "find alone says nothing"
        )
    return problem


def combined(posterior: Posterior, cell: Cell, request: Request, where: Path, show: ShowRun) -> dict[str, Any]:
    """The measures of a cell, from what every agent finds alone."""
    problem = _shared(posterior, cell, request)
    with jax.enable_x64(True):
        parameters = Parameters.of(problem, np.float64)
        if not takes_draws(cell):
            normals = modes_and_curvatures(problem, _start(problem, parameters, request.seed))
            draws = product(normals).draws((_CHAINS, _DRAWS), request.seed)
            costs: Mapping[str, float] = {"rounds": 1, "bytes": _bytes_of_moments(cell.num_agents, parameters.size)}
        else:
            runs = alone(posterior, cell, request, where, show)
            draws, costs = _of_draws(cell.method, runs, problem, parameters, request.seed)
        variables = parameters.variables(draws)
    found = judged([posterior.measured(variables, "random")], [posterior.reference])
    per_draw = {
        f"{name}_per_effective_{moment}": total / found[f"ess_{moment}"]
        for name, total in costs.items()
        for moment in ("mean", "square")
    }
    return {
        **found, **per_draw, "rounds": 1, "warmup_rounds": 0, "divergences": None, "converged": None,
        "verdict": "nothing checks a product of subposteriors", "sampler": cell.method,
        "chains": draws.shape[0], "draws": draws.shape[1], "run": None,
    }  # fmt: skip


def _start(problem: Problem, parameters: Parameters, seed: int) -> np.ndarray:
    """`(d,)` where descents begin."""
    keys = jax.random.split(jax.random.key(seed), 1)
    return np.asarray(initial_positions(problem, parameters, keys, jnp.float64))[0]


def _bytes_of_moments(num_agents: int, size: int) -> float:
    """A vector and a symmetric matrix from every agent."""
    return 8 * num_agents * (size + size * (size + 1) / 2)


def _of_draws(
    method: str, runs: Sequence[Run], problem: Problem, parameters: Parameters, seed: int
) -> tuple[np.ndarray, Mapping[str, float]]:
    """Draws of the product, and what they cost, from the run of each agent."""
    draws = np.stack([_unconstrained(run, problem, parameters) for run in runs])
    gradients = np.mean([run.summary["gradients"] - run.summary["warmup_gradients"] for run in runs]) * _CHAINS
    costs = {"rounds": 1, "gradients": float(gradients), "bytes": 8.0 * draws.size}
    if method == "consensus":
        return consensus_monte_carlo(draws), costs
    if method == "parametric":
        moments = _bytes_of_moments(problem.num_agents, parameters.size)
        return parametric_product(draws, seed), {**costs, "bytes": moments}
    return semiparametric_product(draws, seed), costs


def _alone(problem: Problem, agent: int, seed: int, path: Path, show: ShowRun) -> Run:
    """An agent's draws of its own subposterior, if it has one."""
    own = problem.of_agent(agent)
    plan = Plan(graph=graphs.ring(1), sampler=nuts(), num_draws=_DRAWS, num_chains=_CHAINS, seed=seed)
    try:
        run = finished(own, path, plan, show)
    except Interrupted:
        raise
    except ConsilienceError as error:
        raise ProblemError(f"agent {agent} alone cannot sample its subposterior: {error}") from error
    if not run.summary["converged"]:
        raise ProblemError(
            f"agent {agent} alone has a subposterior that is improper, not identified by its rows, or hard to "
            f"sample: {'; '.join(run.summary['why_not'])}"
        )
    return run


def _unconstrained(run: Run, problem: Problem, parameters: Parameters) -> np.ndarray:
    """`(chains, draws, d)` flat vectors of a run's draws."""
    found = run.draws
    structure = jax.tree.structure(problem.inits[0](jax.random.key(0)))
    arrays = [jnp.asarray(found[name].to_numpy(), jnp.float64) for name in found.attrs["parameters"]]
    flat = jax.jit(jax.vmap(jax.vmap(parameters.ravel)))(jax.tree.unflatten(structure, arrays))
    return np.asarray(flat)
