"""How to infer: everything that decides a run's draws, validated, in and out of TOML.

A plan file looks like this:

    problem = "gmm"          # or "module:attribute"
    num_steps = 200000
    store_every = 10
    seed = 0

    [graph]
    kind = "ring"
    num_agents = 5

    [sampler]
    kind = "dula"
    step_size = { kind = "from_to", start = 0.01, end = 0.0001, num_steps = 200000, exponent = 0.55 }
    consensus = 0.3
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tomli_w
from pydantic import ConfigDict, Field, field_serializer, field_validator

from consilience import graphs
from consilience.errors import InputError, PlanError
from consilience.graphs import Graph
from consilience.samplers import SAMPLERS, Sampler
from consilience.validation import Record

_MOST_STEPS = 2**31 - 1  # steps are counted in 32 bits inside compiled programs

if TYPE_CHECKING:
    AnySampler = Sampler
else:
    AnySampler = Annotated[Union[tuple(SAMPLERS.values())], Field(discriminator="kind")]  # noqa: UP007 - made here


class Plan(Record):
    """Everything that decides a run, besides the problem itself.

    Attributes:
        graph: who talks to whom.
        sampler: the algorithm and its schedules.
        num_steps: how many steps every agent makes.
        burn_in: how many of the first steps are not stored.
        store_every: a draw is stored after every so many steps.
        num_chains: independent copies of the whole network.
        batch_size: rows in a minibatch; `None` is the full shard.
        batches: minibatches from shuffled epochs, or drawn with replacement.
        seed: decides every random number.
        dtype: of parameters and floating-point data.
        problem: the name of an experiment or `module:attribute`, so that a plan file can be run by itself.

    >>> from consilience import dula, graphs
    >>> Plan(graph=graphs.ring(5), sampler=dula(1e-3, 0.3), num_steps=1000, burn_in=500).num_stored
    500
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    problem: str | None = None
    num_steps: Annotated[int, Field(ge=1, le=_MOST_STEPS)]
    burn_in: Annotated[int, Field(ge=0)] = 0
    store_every: Annotated[int, Field(ge=1)] = 1
    num_chains: Annotated[int, Field(ge=1)] = 1
    batch_size: Annotated[int, Field(ge=1)] | None = None
    batches: Literal["shuffled", "replacement"] = "shuffled"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    dtype: Literal["float32", "float64"] = "float32"
    graph: Graph
    sampler: AnySampler

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        if self.num_stored < 1:
            raise PlanError(
                f"the plan stores no draw: {self.num_steps} steps less {self.burn_in} of burn-in are fewer than "
                f"store_every = {self.store_every}; take more steps or store more often"
            )

    @field_validator("graph", mode="before")
    @classmethod
    def _graph_from_recipe(cls, value: Any) -> Any:
        return graphs.from_recipe(value) if isinstance(value, dict) else value

    @field_serializer("graph")
    def _graph_to_recipe(self, graph: Graph) -> dict[str, Any]:
        return graph.to_recipe()

    @property
    def num_agents(self) -> int:
        """The number of agents, `n`."""
        return self.graph.num_agents

    @property
    def num_stored(self) -> int:
        """How many draws each agent of each chain stores."""
        return int(self.draw_at(self.num_steps))

    def draw_at(self, step: Any) -> Any:
        """The number of the draw that step `step` (from 0) works towards, an integer or an array of them.

        It is negative while the run burns in. As a step works towards the first draw that is not complete before it,
        this is also how many draws are complete after so many steps, where it is not negative.

        >>> from consilience import dula, graphs
        >>> plan = Plan(graph=graphs.ring(3), sampler=dula(1e-3, 0.3), num_steps=20, burn_in=4, store_every=3)
        >>> [plan.draw_at(step) for step in (0, 3, 4, 6, 7)], plan.step_of_draw(0)
        ([-2, -1, 0, 0, 1], 7)
        """
        return (step - self.burn_in) // self.store_every

    def step_of_draw(self, number: Any) -> Any:
        """After how many steps the draw of that number is complete: the place of a draw among the steps."""
        return self.burn_in + (number + 1) * self.store_every

    def draws_after(self, num_steps: int) -> int:
        """How many draws are complete after so many steps."""
        return max(0, int(self.draw_at(min(num_steps, self.num_steps))))

    def replace(self, **changes: Any) -> Plan:
        """The same plan with some entries changed."""
        entries = {name: getattr(self, name) for name in type(self).model_fields}
        return Plan(**{**entries, **changes})

    def to_toml(self) -> str:
        """The plan as a TOML document; `Plan.from_toml` reads it."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """The plan in a TOML document."""
        try:
            entries = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(f"not a TOML document: {error}") from None
        except RecursionError:
            raise PlanError("not a plan: its entries are nested too deeply") from None
        return cls(**entries)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """The plan in a TOML file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PlanError(f"there is no plan file {path}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"the plan file {path} cannot be read: {error}") from None
        except InputError as error:
            raise PlanError(f"{path}: {error}") from None

    def digest(self) -> str:
        """A hash of the plan's entries: the identity of a run."""
        text = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
