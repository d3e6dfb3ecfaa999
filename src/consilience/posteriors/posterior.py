"""A posterior with a reference: its data as shards, its model as a problem, and draws held against what is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from consilience.adapters import from_numpyro
from consilience.datasets import splits
from consilience.errors import InputError
from consilience.posteriors.recipes import Data, Draws, Recipe, Rows, count_rows
from consilience.posteriors.reference import Reference, reference_of
from consilience.problems import Problem

Split = Literal["natural", "random"]
SPLITS: tuple[Split, ...] = ("natural", "random")


@dataclass(frozen=True, eq=False)
class Posterior:
    """A posterior of posteriordb.

    By the `natural` split agents differ as the data's own groups do, and effects of groups are private to the agent
    of the group. By a `random` split every agent has rows of all kinds, and all parameters are shared.

    Attributes:
        name: as posteriordb calls it.
        content: of its file.
        recipe: how its data become a problem.
    """

    name: str
    content: Mapping[str, Any]
    recipe: Recipe

    @property
    def category(self) -> str:
        """What kind of model it is, in a few words."""
        return str(self.content["category"])

    @property
    def model_in_words(self) -> str:
        """The model, its priors and constraints, in words."""
        return str(self.content["model"])

    @property
    def natural_split(self) -> str:
        """By what agents differ in the natural split, in words."""
        return self.recipe.natural.words

    @property
    def condition_number(self) -> float | None:
        """That of the posterior's covariance on the unconstrained scale; `None` if the file does not know it."""
        geometry = self.content.get("geometry")
        return None if geometry is None else float(geometry["condition_number_of_covariance"])

    @cached_property
    def data(self) -> Data:
        """Columns and scalars, as arrays."""
        return {name: np.asarray(value) for name, value in self.content["data"].items()}

    @cached_property
    def rows(self) -> Rows:
        """All rows together, as the model takes them."""
        return self.recipe.rows(self.data)

    @property
    def num_rows(self) -> int:
        """How many rows all agents have together."""
        return count_rows(self.rows)

    @property
    def num_agents(self) -> int:
        """How many agents the natural split has."""
        return len(self.recipe.natural(self.data))

    @cached_property
    def reference(self) -> Reference:
        """What is known: exact moments where there are some, those of reference draws elsewhere."""
        return reference_of(self.content, self.recipe.without_sd)

    @cached_property
    def drawn_reference(self) -> Reference:
        """The moments of reference draws, also where exact ones are known."""
        return reference_of(self.content, self.recipe.without_sd, drawn=True)

    def problem(self, split: Split = "natural", num_agents: int | None = None, seed: int = 0) -> Problem:
        """The posterior as a problem of several agents.

        Args:
            split: `"natural"`, or `"random"` rows.
            num_agents: of a random split; if not given, as many as the natural split has.
            seed: of a random split.
        """
        require_split(split)
        owners = self._owners(split, num_agents, seed)
        shards = [{name: column[own] for name, column in self.rows.items()} for own in owners]
        data, groups = dict(self.data), self.recipe.groups
        private: tuple[str, ...] = ()
        if split == "natural" and groups is not None:
            private, data[groups.number] = groups.private, np.asarray(groups.per_agent)
            shards = [
                {**shard, groups.column: shard[groups.column] - agent * groups.per_agent}
                for agent, shard in enumerate(shards)
            ]
        # Not checked anew each time: tests hold both splits of each against NumPyro's density of all rows together.
        problem = from_numpyro(self.recipe.model(data), shards, private=private, check=False)
        return replace(problem, name=self.name)

    def places(self, split: Split = "natural", agent: int | None = None) -> np.ndarray:
        """Which entries of the reference an agent knows: all but the private ones of others.

        Args:
            split: as of the problem.
            agent: whose; needed only where some are private.
        """
        require_split(split)
        groups = self.recipe.groups
        if split == "random" or groups is None:
            return np.arange(len(self.reference.names))
        if agent is None or not 0 <= agent < self.num_agents:
            raise InputError(
                f"{self.name} has private parameters: say which agent's by a number from 0 to {self.num_agents - 1}, "
                f"received {agent}"
            )
        own = range(agent * groups.per_agent, (agent + 1) * groups.per_agent)
        found, start = [], 0
        for one in self.content["parameters"]:
            size = int(np.prod(one["dims"], dtype=int))
            is_private = one["name"] in groups.effects
            found += [start + place for place in range(size) if not is_private or place in own]
            start += size
        return np.array(found)

    def measured(self, draws: Draws, split: Split = "natural", agent: int | None = None) -> np.ndarray:
        """`(chain, draw, len(places))`: an agent's draws as the reference's parameters, in the order of `places`.

        Args:
            draws: by variable, constrained, as a run stores them: `(chain, draw, …)`; with the agent's own private
                ones, as in `run.agents[agent]`. Variables that the reference does not know are ignored.
            split: as of the problem.
            agent: whose draws they are; needed only where some are private.
        """
        places = self.places(split, agent)
        try:
            known = self.recipe.quantities({name: np.asarray(values) for name, values in draws.items()})
            columns = [np.asarray(known[one["name"]]) for one in self.content["parameters"]]
        except KeyError as lacking:
            raise InputError(
                f"the draws lack {lacking}, which the model of {self.name} has: they have {', '.join(draws)}"
            ) from None
        columns = [values.reshape(*values.shape[:2], -1) for values in columns]
        found = np.concatenate(columns, -1)
        if found.shape[-1] != len(places):
            raise InputError(
                f"the draws of {self.name} have {found.shape[-1]} parameters, expected {len(places)} by the {split} "
                f"split: give (chain, draw, …) of one agent, with its private parameters only"
            )
        return found

    def _owners(self, split: Split, num_agents: int | None, seed: int) -> list[np.ndarray]:
        natural = self.recipe.natural(self.data)
        if split == "random":
            return splits.equal(self.num_rows, len(natural) if num_agents is None else num_agents, seed)
        if num_agents not in (None, len(natural)):
            raise InputError(
                f"the natural split of {self.name} has {len(natural)} agents, received {num_agents}: leave the "
                'number out, or take split="random"'
            )
        return natural


def require_split(split: str) -> None:
    """Check that a split is one that is known."""
    if split not in SPLITS:
        raise InputError(f"the split is {split!r}: expected one of {', '.join(SPLITS)}")
