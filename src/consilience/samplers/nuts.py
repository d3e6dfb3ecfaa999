"""NUTS, the no-U-turn sampler, on sums over the network: the draws of NUTS on everybody's data, at every agent.

BlackJAX's kernel (multinomial, iterative) with one sum over the agents for each leapfrog step.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from consilience.samplers.unison import Facts, Network, Unison

Mass = Literal["automatic", "diagonal", "dense"]
_MOST_DENSE = 50


class NUTS(Unison):
    """The no-U-turn sampler; make one with `nuts()`."""

    takes_private: ClassVar[bool] = False

    kind: Literal["nuts"] = "nuts"
    mass: Mass = "automatic"
    """Whether the warm-up estimates the variance of each parameter or the whole covariance.

    Automatic: the whole of up to 50 parameters. It needs no message, and trajectories are shorter.
    """
    max_depth: Annotated[int, Field(ge=1, le=15)] = 10
    """The most doublings of a trajectory."""

    def has_dense_mass(self, num_shared: int) -> bool:
        """As `mass` says."""
        return self.mass == "dense" or (self.mass == "automatic" and num_shared <= _MOST_DENSE)

    def length(self, num_shared: int, own_shape: tuple[int, ...]) -> Any:
        """Trajectories end by themselves."""
        return ()

    def after_window(self, length: Any) -> Any:
        """There is nothing to find."""
        return length

    def move(self, state: Any, keys: Any, network: Network, warming: Any) -> tuple[Any, Facts]:
        """A trajectory of each chain, until it turns."""
        from consilience.samplers.transitions.nuts import move

        return move(state, keys, network, self.max_depth)

    def method(self, num_agents: int) -> str:
        """NUTS; with several agents, on sums over the network."""
        return "NUTS" if num_agents == 1 else "NUTS in unison"


def nuts(target_acceptance: float = 0.8, mass: Mass = "automatic", max_depth: int = 10) -> NUTS:
    """The no-U-turn sampler on sums over the network; nothing needs to be set.

    Args:
        target_acceptance: the acceptance rate for which the warm-up chooses the step size; 0.95 for hard posteriors.
        mass: estimate the variance of each parameter (`diagonal`), or the whole covariance (`dense`); `automatic`:
            the whole of up to 50 parameters.
        max_depth: the most doublings of a trajectory.

    >>> nuts().target_acceptance
    0.8
    """
    return NUTS(target_acceptance=target_acceptance, mass=mass, max_depth=max_depth)
