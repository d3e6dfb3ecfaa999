"""What is said about a plan beside its target, and whether it goes together.

Samplers of two kinds are asked for by different options: those with given step sizes count steps, those that tune
themselves count draws. Mistakes are told in the words of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.errors import PlanError
from consilience.samplers import DEFAULT_SAMPLER, SAMPLERS, Sampler, Unison

_OF_DRAWS = {
    "num_draws": "--draws", "num_warmup": "--warmup", "max_draws": "--max-draws", "masked": "--unmasked",
    "summation": "--summation",
}  # fmt: skip
_OF_STEPS = {"burn_in": "--burn-in", "store_every": "--store-every"}
_OF_GOSSIP = {**_OF_STEPS, "batch_size": "--batch-size"}
SELF_TUNING = tuple(kind for kind, sampler in SAMPLERS.items() if sampler.tunes_by_default)
"""The samplers that count draws."""
IN_UNISON = tuple(kind for kind, sampler in SAMPLERS.items() if issubclass(sampler, Unison))
"""Those of them whose agents walk the same chains."""
_BY_GOSSIP = "kinetic"
COUNTING = tuple(kind for kind in SAMPLERS if kind not in SELF_TUNING)
"""The samplers that count steps."""


@dataclass(frozen=True)
class Wishes:
    """What is said about a plan beside its target; `None` leaves an entry as it is.

    Attributes:
        num_agents: the size of the network; without it (and without `graph`) an experiment is its whole series.
        graph: the family of the graph; of an experiment also several, `ring,star`, whose results are compared.
        num_steps: how many steps.
        sampler: the name of the sampler; an experiment and a plan file have their own.
        numbers: entries of the sampler, by name.
        auto: let `suggest` choose the sampler's numbers; one that tunes itself does so anyway.
        entries: other entries of the plan.
        allow: modules that a plan file may name as its problem.
        data: for a study, one file for each site.
    """

    num_agents: int | None = None
    graph: str | None = None
    num_steps: int | None = None
    sampler: str | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    auto: bool = False
    entries: Mapping[str, Any] = field(default_factory=dict)
    allow: Sequence[str] = ()
    data: Sequence[Path] = ()

    @property
    def graphs(self) -> tuple[str, ...]:
        """The families of graphs that are named, each once; a ring if none is.

        >>> Wishes(graph="ring, star,ring").graphs, Wishes().graphs
        (('ring', 'star'), ('ring',))
        """
        named = [one.strip() for one in (self.graph or "ring").split(",")]
        return tuple(dict.fromkeys(one for one in named if one)) or ("ring",)

    @property
    def implied(self) -> str | None:
        """The sampler that is named, or that what is said is for; `None` where nothing tells.

        Who counts steps or says a step size means the paper's algorithm, and who says what only samplers by gossip
        take otherwise the one of them that needs no numbers.

        >>> [Wishes(num_steps=9).implied, Wishes(entries={"batch_size": 8}).implied, Wishes(sampler="hmc").implied]
        ['dula', 'kinetic', 'hmc']
        """
        if self.sampler is not None:
            return self.sampler
        if self.num_steps is not None or self.auto or "burn_in" in self.entries:
            return DEFAULT_SAMPLER
        if {"step_size", "consensus"} & set(self.numbers):
            return DEFAULT_SAMPLER
        in_unison = {name for kind in IN_UNISON for name in SAMPLERS[kind].options}
        by_gossip = (
            any(name in self.entries for name in _OF_GOSSIP)
            or self.entries.get("dtype") == "float32"
            or any(name not in in_unison for name in self.numbers)
        )
        return _BY_GOSSIP if by_gossip else None

    @property
    def counts_draws(self) -> bool:
        """Whether something is said that only samplers take that tune themselves."""
        return any(name in self.entries for name in _OF_DRAWS)

    def require_known(self) -> None:
        """Check that the sampler is one; which numbers it takes is checked when it is made."""
        if self.sampler is not None and self.sampler not in SAMPLERS:
            raise PlanError(f"unknown sampler {self.sampler!r}: choose one of {', '.join(SAMPLERS)}")
        given = [name for name in self.numbers if name != "temperature"]
        if self.auto and given:
            shown = ", ".join(as_option(name) for name in given)
            raise PlanError(f"--auto chooses the step sizes: leave out {shown}, or --auto")

    def require_fitting(self, kind: str) -> None:
        """Check that a sampler takes what is said."""
        if SAMPLERS[kind].tunes_by_default:
            self._require_for_draws(kind)
        else:
            for name, option in _OF_DRAWS.items():
                if name in self.entries:
                    raise PlanError(
                        f"{option} is for samplers that tune themselves ({', '.join(SELF_TUNING)}): {kind} takes "
                        f"--steps and step sizes; leave out {option}, or take --sampler nuts, without --steps"
                    )
        require_taken(SAMPLERS[kind], kind, self.numbers)

    def _require_for_draws(self, kind: str) -> None:
        other = " or ".join(f"--sampler {name}" for name in COUNTING)
        taken = () if kind in IN_UNISON else ("store_every",)
        steps = ["--steps"] if self.num_steps is not None else []
        steps += [option for name, option in _OF_STEPS.items() if name in self.entries and name not in taken]
        if steps:
            raise PlanError(
                f"{kind} counts draws, not steps: in place of {', '.join(steps)} take --warmup and --draws, or none "
                f"of them (it stops when it has converged); or a sampler that counts steps, {other}"
            )
        if kind not in IN_UNISON:
            return
        other = " or ".join(f"--sampler {name}" for name in SAMPLERS if name not in IN_UNISON)
        if "batch_size" in self.entries:
            raise PlanError(f"{kind} needs the gradients of all rows: leave out --batch-size, or take {other}")
        if self.entries.get("dtype") == "float32":
            raise PlanError(f"{kind} needs double precision: leave out --dtype, or take {other}")


def require_taken(sampler: type[Sampler], kind: str, numbers: Mapping[str, float]) -> None:
    """Check that a sampler takes all the numbers that were given for it."""
    unknown = [name for name in numbers if name not in sampler.options]
    if unknown:
        taken = ", ".join(as_option(name) for name in sampler.options)
        raise PlanError(f"{as_option(unknown[0])} is not for the sampler {kind}, which takes {taken}")


def as_option(name: str) -> str:
    """What the command line calls an entry of a sampler.

    >>> as_option("step_size")
    '--step-size'
    """
    return f"--{name.replace('_', '-')}"
