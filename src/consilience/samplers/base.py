"""What a sampler is: a few pure functions of one agent, over any pytree of parameters.

An engine calls, for every agent `i` and step `k`,

    disagreement = Σ_j a_ij (share(state_i) − share(state_j))
    state        = step(state, ∇U_i(position(state)), disagreement, coefficients(k, n), noise)

and differs from other engines only in how the neighbours' messages arrive. Coefficients and noise (standard
normal numbers) do not depend on the state, so that an engine may compute them for many steps at once: one step
at a time they would cost more than all the rest of a small model's step.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

State = TypeVar("State")
Message = TypeVar("Message")
Coefficients = TypeVar("Coefficients")


class Sampler(Protocol[State, Message, Coefficients]):
    """The functions every sampler provides; `tests/samplers/test_contract.py` checks them."""

    def init(self, position: Any) -> State:
        """The state of an agent that starts at `position`."""

    def share(self, state: State) -> Message:
        """What the agent tells its neighbours."""

    def coefficients(self, k: Any, n: int) -> Coefficients:
        """The numbers of step `k` of `n` agents (step sizes, noise scale), the same for every agent."""

    def step(
        self, state: State, gradient: Any, disagreement: Message, coefficients: Coefficients, noise: Any
    ) -> State:
        """One step.

        `gradient` is (an estimate of) `∇U_i`, `disagreement` is `Σ_j a_ij (m_i − m_j)`, and `noise` holds
        standard normal numbers shaped like the position.
        """

    def position(self, state: State) -> Any:
        """The parameters in the state: what is stored as a draw."""
