"""Where all agents of all chains are after a plan's last step, by the bare engine."""

import jax
import numpy as np

from consilience.engines.simulate import Simulation


def final_positions(problem, plan, engine=None):
    """`(chains, agents · size)`: every chain is an independent draw of the whole network's state."""
    with jax.enable_x64(plan.dtype == "float64"):
        engine = engine or Simulation(problem, plan)
        state, step = engine.initial_state(), 0
        while step < plan.num_steps:
            steps = min(engine.max_steps, plan.num_steps - step)
            state, segment = engine.advance(state, step, steps)
            step = segment.last_step
        positions = np.asarray(jax.vmap(jax.vmap(plan.sampler.position))(state), float)
    return positions.reshape(plan.num_chains, -1)
