"""A sampler for tests alone that uses all that the contract allows, and that no sampler of ours needs yet.

It speaks after its gradient, its message has two parts, and its state holds a number that is not one of a parameter:
a kinetic step (semi-implicit Euler with friction) whose positions and momenta are both mixed, and a count of steps.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp

from consilience.samplers import Finding, Leaf, Mixing, SpeaksLast, Suggestion
from consilience.samplers.arrays import square_root, tree_map


class State(NamedTuple):
    position: Any
    momentum: Any
    count: Any


class LastWord(SpeaksLast):
    options: ClassVar[dict] = {}
    state_leaves: ClassVar[Any] = State(Leaf.VECTOR, Leaf.VECTOR, Leaf.NUMBERS)

    kind: Literal["last word"] = "last word"
    step_size: float = 0.05
    pull: float = 0.2

    def init(self, position):
        return State(position, tree_map(jnp.zeros_like, position), jnp.zeros(()))

    def position(self, state):
        return state.position

    def coefficients(self, k, n):
        return self.step_size, n * self.step_size, square_root(2.0 * n * self.step_size)

    def share(self, state, gradient, coefficients, noise):
        step, drift, deviation = coefficients
        momentum = tree_map(
            lambda v, g, xi: (1 - step) * v - drift * g + deviation * xi, state.momentum, gradient, noise
        )
        return tree_map(lambda w, v: w + step * v, state.position, momentum), momentum

    def mixing(self, graph, coefficients):
        return Mixing(self.pull)

    def step(self, state, gradient, message, mixed, coefficients, noise):
        return State(mixed[0], mixed[1], state.count + 1)

    def findings(self, graph, num_steps, curvature):
        return [Finding("ok", "nothing", "nothing was checked")]

    def weights(self, steps):
        return 1.0 + 0 * steps

    def edge_rate(self, coefficients):
        return None

    def method(self, num_agents):
        return "last word"

    def describe(self, num_steps):
        return f"step size {self.step_size:g}"

    @classmethod
    def from_numbers(cls, graph, numbers):
        return cls()

    @classmethod
    def suggest(cls, landscape, graph, num_steps, temperature=1.0):
        return Suggestion(cls(), ("for tests",))
