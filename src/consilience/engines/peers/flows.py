"""What has flowed over each edge of a corrected sampler's node, and how it is undone when the edge is lost.

The correction of an agent is made of what its edges did: `s_i = Σ_j F_ij`, where every step adds to `F_ij` what the
edge took from the agent's message. Exchanges are linear, so that follows the recurrence of messages. With `x_k` the
messages of the step's exchanges (`samplers/mixing.py`), an edge has taken

    f_0 = 0,    f_{k+1} = p_k (f_k + a_ij (x_i,k − x_j,k)/a) − (p_k − 1) f_{k−1}

after `k` exchanges, and `Q y = y − Σ_j f_K`. In an exchange without the edge nothing is added in the bracket. If both
ends use an edge in the same exchanges, `F_ij = −F_ji`, and the corrections of all agents add up to 0.

When an edge is lost, each of its ends takes its own `F` off its correction, with the next step, and begins with 0
should the edge come back. So neither the exchange that only one of them made nor an agent that never returns is left
in anybody's correction: those of agents that are joined to each other add up to 0, whoever is gone. They find anew
what the edge had brought them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.peers.agent_step import AgentStep, Arrays
from consilience.kernel.chebyshev import Exchanged, begun, ended, exchanged
from consilience.kernel.tuning import Tuning
from consilience.samplers import Corrected


class Flows:
    """The ledgers of one node's edges.

    Args:
        step: what the node computes.
    """

    def __init__(self, step: AgentStep) -> None:
        assert isinstance(step.plan.sampler, Corrected)
        self._step, self._sampler = step, step.plan.sampler
        self._places = {number: place for place, number in enumerate(step.weights)}
        self._weights = np.array([*step.weights.values()], float)
        self._size, shared = step.parameters.size, step.parameters.num_shared
        self.ledger = np.zeros((len(step.weights), step.plan.num_chains, shared))
        """`(neighbours, chains, shared)`: `F_ij`, in double precision; part of checkpoints."""
        self._taken: Exchanged
        self._exchange, self._gains = jax.jit(self._exchanged), jax.jit(self._gained)

    def begin(self, message: Arrays) -> None:
        """Begin a step, before the first exchange of its message."""
        none = [jnp.zeros((len(self._weights), *own.shape), own.dtype) for own in message]
        self._taken = begun(self._step.as_message(none))

    def exchange(self, said: Arrays, others: Arrays, tuning: Tuning | None) -> None:
        """Note an exchange in which the agent said one thing and the neighbours `(neighbours, …)` others."""
        self._taken = self._exchange(self._taken, said, others, tuning)

    def end(self, tuning: Tuning | None) -> None:
        """Add what the edges did in a step, after its last exchange."""
        self.ledger += np.asarray(self._gains(self._taken, tuning), float)

    def without(self, state: Any, lost: Collection[int]) -> Any:
        """The sampler's state without what flowed over lost edges; their ledgers begin anew."""
        places = [self._places[number] for number in lost if self.ledger[self._places[number]].any()]
        if not places:
            return state
        gains = np.zeros((self.ledger.shape[1], 1, self._size))
        gains[:, 0, : self.ledger.shape[2]] = self.ledger[places].sum(0)
        self.ledger[places] = 0.0
        return self._sampler.relieved(state, jnp.asarray(gains, self._step.dtype))

    def _exchanged(self, sofar: Exchanged, said: Arrays, others: Arrays, tuning: Tuning | None) -> Exchanged:
        def given(own: Any, theirs: Any) -> Any:
            weights = jnp.asarray(self._weights.reshape(-1, *[1] * own.ndim), own.dtype)
            return weights * (theirs - own)

        apart = [given(jnp.asarray(own), jnp.asarray(theirs)) for own, theirs in zip(said, others, strict=True)]
        return exchanged(sofar, self._step.as_message(apart), self._step.mixing(tuning))

    def _gained(self, sofar: Exchanged, tuning: Tuning | None) -> Any:
        nothing = jax.tree.map(jnp.zeros_like, sofar.now)
        return self._sampler.gained(ended(nothing, sofar, self._step.mixing(tuning)))
