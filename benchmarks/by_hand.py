"""A user's own model against the same update written by hand: a time for one step of all chains.

By hand means what somebody who knows JAX would write for this one model: shards padded to the longest, the gradient
in closed form as two `einsum`s (or `jax.grad` of a network's batched loss), a `lax.scan` over steps with the noise of
ten of them made at once, a draw kept every tenth step. Before it is timed, each must give the engine's gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.setting import bare
from benchmarks.table import Line
from benchmarks.timing import Contestant, best_of_each, seconds_of
from consilience import Plan, Problem, dula, graphs
from consilience.engines.simulate import Simulation
from consilience.models.mixture import NOISE_VARIANCE, VARIANCES, tied_mixture

_STEP_SIZE, _CONSENSUS, _EVERY = 1e-6, 0.1, 10
_TARGET, _REPETITIONS, _SECONDS = 1.2, 7, 0.1


class Cell(NamedTuple):
    """A model, and its sizes."""

    model: str
    sizes: tuple[int, ...]
    """Rows of each agent."""
    num_features: int
    num_chains: int

    def __str__(self) -> str:
        least, most = min(self.sizes), max(self.sizes)
        rows = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        agents = f"{len(self.sizes):,} agents × {rows}"
        return f"{self.model}, {agents}, {self.num_features} features, {self.num_chains} chains"


def unequal(num_agents: int, most: int) -> tuple[int, ...]:
    """Sizes from 3 to `most`, evenly apart in their logarithm."""
    return tuple(np.geomspace(3, most, num_agents).round().astype(int).tolist())


CELLS = (
    Cell("linear", unequal(7, 300), 6, 1),
    Cell("linear", unequal(7, 300), 6, 4),
    Cell("linear", (300,) * 5, 6, 4),
    Cell("linear", unequal(7, 300), 12, 4),
    Cell("linear", (300,) * 5, 20, 16),
    Cell("linear", (1_000,) * 10, 30, 4),
    Cell("linear", (50,) * 3, 2, 64),
    Cell("linear", unequal(100, 300), 6, 4),
    Cell("linear", (20,) * 1_000, 6, 1),
    Cell("linear", (1_000,) * 5, 200, 4),
    Cell("logistic", unequal(7, 300), 6, 4),
    Cell("logistic", (1_000,) * 10, 30, 4),
    Cell("poisson", (300,) * 5, 6, 16),
    Cell("poisson", unequal(20, 1_000), 12, 4),
    Cell("student", unequal(7, 300), 6, 4),
    Cell("student", (300,) * 5, 20, 1),
    Cell("network", (300,) * 5, 6, 4),
    Cell("network", unequal(7, 300), 12, 1),
    Cell("mixture", (20,) * 5, 1, 1),
    Cell("mixture", unequal(7, 300), 1, 16),
)


def models() -> Iterator[Line]:
    """A step of each cell."""
    for cell in CELLS:
        yield Line(f"{cell}: step / by hand", *_side_by_side(cell), _TARGET)


# --- models, as users write them ---------------------------------------------------------------------------------


def _link(model: str, linear: Any, outcomes: Any, log_scale: Any) -> Any:
    """The log-likelihood of each row from its linear predictor."""
    if model == "linear":
        return -0.5 * (outcomes - linear) ** 2
    if model == "logistic":
        return outcomes * linear - jnp.logaddexp(0.0, linear)
    if model == "poisson":
        return outcomes * linear - jnp.exp(linear)
    residual = (outcomes - linear) * jnp.exp(-log_scale)  # Student's errors with 4 degrees of freedom
    return -2.5 * jnp.log1p(residual**2 / 4) - log_scale


_HIDDEN = 8


def problem_of(cell: Cell) -> Problem:
    """The model as a user writes it, with made rows."""
    model, features = cell.model, cell.num_features
    rng = np.random.default_rng(0)
    if model == "mixture":
        return tied_mixture([rng.normal(size=size) for size in cell.sizes])
    shards = [(rng.normal(size=(size, features)) / 3, rng.integers(0, 2, size).astype(float)) for size in cell.sizes]
    start: dict[str, Any]
    if model == "network":
        first, second = rng.normal(size=(features, _HIDDEN)), rng.normal(size=_HIDDEN)
        start = {"first": first, "bias": np.zeros(_HIDDEN), "second": second}
    else:
        start = {"w": np.zeros(features)} | ({"log_scale": np.zeros(())} if model == "student" else {})

    def log_likelihood(w: Any, rows: Any) -> Any:
        inputs, outcomes = rows
        if model == "network":
            return -0.5 * (outcomes - jnp.tanh(inputs @ w["first"] + w["bias"]) @ w["second"]) ** 2
        return _link(model, inputs @ w["w"], outcomes, w.get("log_scale"))

    def log_prior(w: Any) -> Any:
        return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(w))

    return Problem(log_likelihood, log_prior, lambda key: jax.tree.map(jnp.float32, start), shards)


# --- the same by hand --------------------------------------------------------------------------------------------


def gradients_by_hand(cell: Cell, problem: Problem) -> Callable[[Any], Any]:
    """From positions `(chains, agents, size)` to `∇U_i`; vectors have the order of the model's names."""
    stacked = problem.stacked_shards(np.float32)
    mask = jnp.asarray(np.arange(max(cell.sizes)) < np.array(cell.sizes)[:, None], jnp.float32)
    share, model, features = 1 / len(cell.sizes), cell.model, cell.num_features
    if model == "mixture":
        return _mixture_by_hand(stacked, mask, share)
    inputs, outcomes = stacked
    if model == "network":
        return _network_by_hand(inputs, outcomes, mask, share, features)

    def gradients(w: Any) -> Any:
        weights = w[..., 1:] if model == "student" else w  # "log_scale" comes before "w"
        linear = jnp.einsum("arp,cap->car", inputs, weights)
        if model == "student":
            precision = jnp.exp(-w[..., :1])
            residual = (outcomes - linear) * precision
            pull = 5 * residual / (4 + residual**2)
            slope = pull * precision * mask
            scale = ((pull * residual - 1) * mask).sum(-1, keepdims=True)
            own = jnp.einsum("car,arp->cap", slope, inputs)
            return share * w - jnp.concatenate([scale, own], -1)
        mean = {"linear": lambda x: x, "logistic": jax.nn.sigmoid, "poisson": jnp.exp}[model](linear)
        return share * w - jnp.einsum("car,arp->cap", (outcomes - mean) * mask, inputs)

    return gradients


def _mixture_by_hand(x: Any, mask: Any, share: float) -> Callable[[Any], Any]:
    def gradients(w: Any) -> Any:
        first, second = w[..., :1], w[..., 1:]
        residual = x - first
        weight = jax.nn.sigmoid(second * (2 * residual - second) / (2 * NOISE_VARIANCE)) * mask
        slopes = [residual * mask - weight * second, weight * (residual - second)]
        likelihood = jnp.stack([slope.sum(-1) for slope in slopes], -1) / NOISE_VARIANCE
        return share * w / jnp.array(VARIANCES) - likelihood

    return gradients


def _network_by_hand(inputs: Any, outcomes: Any, mask: Any, share: float, features: int) -> Callable[[Any], Any]:
    def loss(w: Any) -> Any:
        bias, first, second = jnp.split(w, [_HIDDEN, _HIDDEN * (features + 1)], -1)
        first = first.reshape(*w.shape[:2], features, _HIDDEN)
        hidden = jnp.tanh(jnp.einsum("arp,caph->carh", inputs, first) + bias[:, :, None])
        residual = outcomes - jnp.einsum("carh,cah->car", hidden, second)
        return 0.5 * (residual**2 * mask).sum() + 0.5 * share * (w**2).sum()

    return jax.grad(loss)


def _by_hand(cell: Cell, problem: Problem, num_steps: int, start: Any) -> Contestant:
    gradients, agents = gradients_by_hand(cell, problem), len(cell.sizes)
    laplacian = jnp.asarray(_graph(agents).laplacian.toarray(), jnp.float32) if agents < 200 else None

    def disagreement(w: Any) -> Any:
        if laplacian is not None:
            return jnp.einsum("ij,cjp->cip", laplacian, w)
        return 2 * w - jnp.roll(w, 1, 1) - jnp.roll(w, -1, 1)

    def step(w: Any, noise: Any) -> Any:
        drift = _CONSENSUS * disagreement(w) + _STEP_SIZE * agents * gradients(w)
        return w - drift + math.sqrt(2 * _STEP_SIZE * agents) * noise, None

    def ten(w: Any, key: Any) -> Any:
        w, _ = jax.lax.scan(step, w, jax.random.normal(key, (_EVERY, *w.shape)))
        return w, w

    program = jax.jit(lambda w, key: jax.lax.scan(ten, w, jax.random.split(key, num_steps // _EVERY)))
    program = program.lower(start, jax.random.key(0)).compile()
    return lambda: seconds_of(lambda: jax.block_until_ready(program(start, jax.random.key(0)))) / num_steps


def _graph(num_agents: int) -> Any:
    return graphs.ring(num_agents)


def _plan(cell: Cell, num_steps: int) -> Plan:
    return Plan(
        graph=_graph(len(cell.sizes)), sampler=dula(step_size=_STEP_SIZE, consensus=_CONSENSUS), num_steps=num_steps,
        num_chains=cell.num_chains, store_every=_EVERY,
    )  # fmt: skip


def _side_by_side(cell: Cell) -> tuple[float, float]:
    """Seconds for a step of all chains, ours and by hand."""
    problem = problem_of(cell)
    few = _plan(cell, 10 * _EVERY)
    engine = Simulation(problem, few)
    start = jnp.asarray(engine.positions(engine.initial_state()))
    w = start + 0.1 * jax.random.normal(jax.random.key(1), start.shape)
    _require_same(cell, problem, engine, w)
    once = _by_hand(cell, problem, 10 * _EVERY, start)
    once()
    num_steps = _EVERY * max(10, int(_SECONDS / once()) // _EVERY)
    contestants: dict[str, Contestant] = {
        "ours": bare(problem, _plan(cell, num_steps)),
        "by hand": _by_hand(cell, problem, num_steps, start),
    }
    best = best_of_each(contestants, _REPETITIONS)
    return best["ours"], best["by hand"]


def _require_same(cell: Cell, problem: Problem, engine: Simulation, w: Any) -> None:
    shards, weights, scale = engine._data.arrays
    ours = jax.jit(lambda w: engine._gradients(w, engine._data.used(shards), weights, scale, False))(w)
    np.testing.assert_allclose(ours, gradients_by_hand(cell, problem)(w), rtol=2e-3, atol=2e-3)
