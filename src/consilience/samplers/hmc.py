"""Hamiltonian Monte Carlo with a jittered length, on sums over the network, with private parameters.

The momenta of private parameters stay at their agent, their kinetic energy rides on the sum of each leapfrog step.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from consilience.samplers.unison import Facts, Network, Unison


class HMC(Unison):
    """Hamiltonian Monte Carlo; make one with `hmc()`."""

    takes_private: ClassVar[bool] = True

    kind: Literal["hmc"] = "hmc"

    def length(self, num_shared: int, own_shape: tuple[int, ...]) -> Any:
        """The longest trajectory, from the widest direction."""
        from consilience.samplers.transitions.hmc import first_length

        return first_length(num_shared, own_shape)

    def after_window(self, length: Any) -> Any:
        """The length that the window found."""
        from consilience.samplers.transitions.hmc import after_window

        return after_window(length)

    def move(self, state: Any, keys: Any, network: Network, warming: Any) -> tuple[Any, Facts]:
        """A trajectory of a random length, the same for all chains."""
        from consilience.samplers.transitions.hmc import move

        return move(state, keys, network, warming)

    def method(self, num_agents: int) -> str:
        """HMC; with several agents, on sums over the network."""
        return "HMC" if num_agents == 1 else "HMC in unison"


def hmc(target_acceptance: float = 0.8) -> HMC:
    """Hamiltonian Monte Carlo on sums over the network, also with private parameters; nothing needs to be set.

    Args:
        target_acceptance: the acceptance rate for which the warm-up chooses the step size.

    >>> hmc().takes_private
    True
    """
    return HMC(target_acceptance=target_acceptance)
