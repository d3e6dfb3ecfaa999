"""What the table has: a cell for each posterior, method, graph and split; and what was asked for, checked."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from consilience import graphs, posteriors
from consilience.errors import InputError
from consilience.posteriors import SPLITS
from consilience.validation import Record
from consilience.yardstick.methods import METHODS

BUDGET, QUICK_BUDGET = 200_000, 20_000
_QUICK_POSTERIORS = (
    "arK-arK",
    "eight_schools-eight_schools_noncentered",
    "kilpisjarvi_mod-kilpisjarvi",
    "mesquite-logmesquite",
)
_QUICK_METHODS = ("pooled", "nuts", "kinetic", "dula", "consensus", "one-shot")
NOWHERE = "none"
"""Stands for the graph, or the split, of a cell that has none."""


class Cell(NamedTuple):
    """One entry of the table."""

    posterior: str
    method: str
    graph: str
    """The family; `none` of a method that exchanges no messages over a network."""
    split: str
    """`natural`, `random`, or `none` if all rows are together."""
    num_agents: int

    @property
    def directory(self) -> str:
        """Where it is kept, below the table's directory.

        >>> Cell("arK-arK", "nuts", "ring", "natural", 5).directory
        'cells/arK-arK/nuts-ring-natural-5'
        """
        return f"cells/{self.posterior}/{self.method}-{self.graph}-{self.split}-{self.num_agents}"

    @property
    def place(self) -> str:
        """Method, graph and split in words, without the posterior."""
        said = [self.method, *(one for one in (self.graph, self.split) if one != NOWHERE)]
        return ", ".join(said)


class Request(Record):
    """Which cells are wanted, and how long each method may take.

    Attributes:
        posteriors: their names. methods: of `METHODS`. graphs: families. splits: `natural`, `random`.
        num_agents: of random splits; if not given, as many as the natural split has.
        budget: rounds of methods with given step sizes. Those that tune themselves are made longer once if they have
            fewer than 5,000 effective draws: by gossip up to so many rounds after the warm-up, in unison up to 25,000
            draws of each chain.
        minutes: that one attempt at a cell may take; then it has failed, and the others are made.
        seed: decides every random number.
    """

    posteriors: tuple[str, ...]
    methods: tuple[str, ...]
    graphs: tuple[str, ...] = ("ring",)
    splits: tuple[str, ...] = ("natural",)
    num_agents: Annotated[int, Field(ge=2)] | None = None
    budget: Annotated[int, Field(ge=100)] = BUDGET
    minutes: Annotated[float, Field(gt=0)] = 60.0
    seed: Annotated[int, Field(ge=0)] = 0

    @classmethod
    def of(cls, *, quick: bool = False, **given: Any) -> Request:
        """What is wanted if only some of it is said; `quick` is a choice for a few minutes.

        Args:
            quick: four small posteriors, six methods, a small budget.
            given: entries; empty ones count as not given.
        """
        said = {name: value for name, value in given.items() if value not in (None, (), [])}
        usual: dict[str, Any] = {"posteriors": tuple(posteriors.available()), "methods": tuple(METHODS)}
        if quick:
            usual = {"posteriors": _QUICK_POSTERIORS, "methods": _QUICK_METHODS, "budget": QUICK_BUDGET}
        request = cls(**{**usual, **said})
        _require_known("posterior", request.posteriors, posteriors.names())
        _require_known("method", request.methods, METHODS)
        _require_known("split", request.splits, SPLITS)
        for family in request.graphs:
            graphs.named(family, 5)
        if request.num_agents is not None and "random" not in request.splits:
            raise InputError(
                f"{request.num_agents} agents are asked for, but a natural split has its own number: leave it out, "
                "or ask for random splits"
            )
        return request

    def cells(self) -> Iterator[Cell]:
        """All of them, posterior by posterior; a method without a graph has no cell for each of them."""
        for name in self.posteriors:
            natural = _natural_agents(name)
            for method in self.methods:
                kind = METHODS[method]
                for split in self.splits if kind.has_agents else (NOWHERE,):
                    agents = 1 if split == NOWHERE else natural
                    if split == "random" and self.num_agents is not None:
                        agents = self.num_agents
                    for graph in self.graphs if kind.has_graph else (NOWHERE,):
                        yield Cell(name, method, graph, split, agents)


@functools.cache
def _natural_agents(name: str) -> int:
    return posteriors.load(name).num_agents


def _require_known(what: str, given: Sequence[str], known: Sequence[str] | Any) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(known)}"
            raise InputError(f"unknown {what} {name!r}: {hint}")
