"""Contestant: BlackJAX's `sgld` inside `jax.lax.scan`, for a single agent that holds all rows.

BlackJAX's step is `w + ε ∇log p(w|X) + sqrt(2 T ε) v` with `v ~ N(0, I)`. That is our convention too (`α ∇U` beside
`sqrt(2 α)`, not Welling and Teh's `ε/2`), so `ε = α_k`, `T = 1` and `∇log p = −∇U` with nothing to convert; the
full data set is the minibatch. Keys are split in bulk before the loop, and every 10th position is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.setting import STORE_EVERY, require_same_gradient
from benchmarks.timing import Contestant, seconds_of
from consilience import Plan, Problem
from consilience.kernel.gradients import network_gradients
from consilience.kernel.parameters import Parameters

Gradient = Callable[[Any, Any], Any]


def usual_gradient(problem: Problem) -> Gradient:
    """`jax.grad` of the log-posterior as it is written: what a user of BlackJAX gives it."""
    parameters = Parameters.of(problem, jnp.dtype("float32"))

    def log_posterior(position: Any, rows: Any) -> Any:
        tree = parameters.unravel(position)
        return problem.log_likelihood(tree, rows).sum() + problem.log_prior(tree)

    return jax.grad(log_posterior)


def engine_gradient(problem: Problem) -> Gradient:
    """The gradient that our engine uses, arranged for vectorisation: then only the loops differ."""
    gradients = network_gradients(problem, Parameters.of(problem, jnp.dtype("float32")))
    return lambda position, rows: -gradients(position[None, None], rows[None], None, jnp.ones(1), False)[0, 0]


def contestant(problem: Problem, plan: Plan, gradient: Gradient) -> Contestant:
    """The compiled loop over all steps of the plan, which keeps a draw every 10 steps."""
    data = jnp.asarray(problem.shards[0], jnp.float32)
    require_same_gradient(lambda positions: -np.asarray(gradient(positions[0], data))[None], problem)
    step = blackjax.sgld(gradient).step

    @jax.jit
    def sample(key: jax.Array, start: jax.Array) -> jax.Array:
        shape = (plan.num_stored, STORE_EVERY)
        keys = jax.random.split(key, shape)
        step_sizes = plan.sampler.step_size(jnp.arange(plan.num_steps)).reshape(shape)

        def one_step(position: jax.Array, now: Any) -> tuple[jax.Array, None]:
            key, step_size = now
            return step(key, position, data, step_size), None

        def one_draw(position: jax.Array, steps: Any) -> tuple[jax.Array, jax.Array]:
            position, _ = jax.lax.scan(one_step, position, steps)
            return position, position

        return jax.lax.scan(one_draw, start, (keys, step_sizes))[1]

    arguments = (jax.random.key(plan.seed), jnp.zeros(2))
    compiled = sample.lower(*arguments).compile()
    return lambda: seconds_of(lambda: jax.block_until_ready(compiled(*arguments))) / plan.num_steps
