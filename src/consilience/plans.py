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

A sampler that tunes itself (`nuts`, `hmc`) counts draws, not steps:

    problem = "examples.hospitals:problem"
    num_warmup = 1000
    num_draws = 500          # or leave it out: sampling ends when it has converged

    [graph]
    kind = "ring"
    num_agents = 3

    [sampler]
    kind = "nuts"
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tomli_w
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, field_serializer, field_validator

from consilience import graphs
from consilience.errors import InputError, PlanError
from consilience.graphs import Graph
from consilience.samplers import SAMPLERS, Corrected, Gossip, Sampler, Unison
from consilience.validation import Record

_MOST_STEPS = 2**31 - 1  # steps are counted in 32 bits inside compiled programs
_MAX_DRAWS = 10_000
_OF_STEPS = ("num_steps", "burn_in", "store_every")
_OF_DRAWS = ("num_warmup", "num_draws", "max_draws", "masked", "summation")

if TYPE_CHECKING:
    AnySampler = Sampler
else:
    AnySampler = Annotated[Union[tuple(SAMPLERS.values())], Field(discriminator="kind")]  # noqa: UP007 - made here


class Plan(Record):
    """Everything that decides a run, besides the problem itself.

    A sampler with given step sizes counts steps: `num_steps`, `burn_in`, `store_every`. One that tunes itself counts
    draws: `num_warmup`, and `num_draws` or the most of them; for it, the numbers of steps follow (in unison a move is
    a step, by gossip a draw is stored after every `store_every` of them).

    Attributes:
        graph: who talks to whom.
        sampler: the algorithm and its schedules.
        num_steps: how many steps every agent makes.
        burn_in: how many of the first steps are not stored.
        store_every: a draw is stored after every so many steps.
        num_warmup: how many moves a sampler that tunes itself has for that, by gossip the most steps; the sampler has
            a default, in unison 1000.
        num_draws: how many draws each chain stores; without it, sampling ends when all parameters have converged.
        max_draws: the most draws of each chain, if their number is not given; by default 10,000.
        masked: whether nodes hide their parts of sums from each other; by default they do, if there are at least 3.
        summation: how nodes make sums: on a `tree`, or by `flood`, which takes fewer hops and more bytes.
        num_chains: independent copies of the whole network; by default 1, and of a sampler that tunes itself 4 in
            unison and 8 by gossip.
        batch_size: rows in a minibatch; `None` is the full shard.
        batches: minibatches from shuffled epochs, or drawn with replacement.
        seed: decides every random number.
        dtype: of parameters and floating-point data.
        problem: the name of an experiment or `module:attribute`, so that a plan file can be run by itself.
        study: in place of it, a regression from files: the entries of a study, its codebook and all priors.

    >>> from consilience import dula, graphs
    >>> Plan(graph=graphs.ring(5), sampler=dula(1e-3, 0.3), num_steps=1000, burn_in=500).num_stored
    500
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    problem: str | None = None
    num_steps: Annotated[int, Field(ge=1, le=_MOST_STEPS)]
    burn_in: Annotated[int, Field(ge=0)] = 0
    store_every: Annotated[int, Field(ge=1)] = 1
    num_warmup: Annotated[int, Field(ge=20, le=_MOST_STEPS // 2)] | None = None
    num_draws: Annotated[int, Field(ge=4, le=_MOST_STEPS // 2)] | None = None
    max_draws: Annotated[int, Field(ge=100, le=_MOST_STEPS // 2)] | None = None
    masked: bool | None = None
    summation: Literal["tree", "flood"] | None = None
    num_chains: Annotated[int, Field(ge=1)] = 1
    batch_size: Annotated[int, Field(ge=1)] | None = None
    batches: Literal["shuffled", "replacement"] = "shuffled"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    dtype: Literal["float32", "float64"] = "float32"
    graph: Graph
    sampler: AnySampler
    study: dict[str, Any] | None = None

    def __init__(self, **entries: Any) -> None:
        sampler = _sampler_of(entries.get("sampler"))
        if sampler is not None and sampler.tunes_itself:
            entries = _counting_draws(entries, sampler)
        elif sampler is not None and any(entries.get(name) is not None for name in _OF_DRAWS):
            given = next(name for name in _OF_DRAWS if entries.get(name) is not None)
            raise PlanError(
                f"'{given}' is for samplers that tune themselves: the sampler {sampler.kind} takes num_steps, "
                "burn_in and store_every"
            )
        super().__init__(**entries)
        if self.study is not None and self.problem is not None:
            raise PlanError(f"the plan has a study and names the problem {self.problem!r}: leave one of them out")
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
    def says_problem(self) -> bool:
        """Whether it says what is to be inferred, by name or as a study."""
        return self.problem is not None or self.study is not None

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

    @property
    def stops_itself(self) -> bool:
        """Whether sampling ends when all parameters have converged."""
        return self.sampler.tunes_itself and self.num_draws is None

    @property
    def begins_anew_without(self) -> bool:
        """Whether agents that are left by others sample what the whole prior and their data say."""
        return isinstance(self.sampler, Unison | Corrected)

    @property
    def is_unison(self) -> bool:
        """Whether all agents walk the same chains."""
        return isinstance(self.sampler, Unison)

    @property
    def has_control_variates(self) -> bool:
        """Whether minibatches have a control variate, anchored where the warm-up has been."""
        sampler = self.sampler
        if self.batch_size is None or not isinstance(sampler, Corrected):
            return False
        return sampler.control_variates and sampler.tunes_itself

    @property
    def gossip(self) -> Gossip:
        """The sampler, where agents each walk a chain of their own."""
        if not isinstance(self.sampler, Gossip):
            raise PlanError(
                f"the sampler {self.sampler.kind} has no step of a single agent: this needs a sampler by gossip, for "
                "example dula"
            )
        return self.sampler

    def replace(self, **changes: Any) -> Plan:
        """The same plan with some entries changed."""
        sampler = changes.get("sampler", self.sampler)
        derived = _derived(sampler) if sampler.tunes_itself else _OF_DRAWS
        if (sampler.tunes_itself, sampler.defaults) != (self.sampler.tunes_itself, self.sampler.defaults):
            derived = (*_OF_STEPS, *_OF_DRAWS, "num_chains", "dtype")
        if "num_draws" in changes:
            derived = (*derived, "max_draws")
        entries = {name: getattr(self, name) for name in type(self).model_fields if name not in derived}
        return Plan(**{**entries, **changes})

    def to_toml(self) -> str:
        """The plan as a TOML document; `Plan.from_toml` reads it."""
        derived = set(_derived(self.sampler)) if self.sampler.tunes_itself else None
        return tomli_w.dumps(self.model_dump(exclude_none=True, exclude=derived))

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
        unsaid = {name for name in (*_OF_DRAWS, "study") if getattr(self, name) is None}
        text = json.dumps(self.model_dump(exclude=unsaid), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


_ANY_SAMPLER: TypeAdapter[Any] = TypeAdapter(AnySampler)


def _sampler_of(value: Any) -> Sampler | None:
    """The sampler that an entry means, if it is one; what is wrong with it is told when the plan is made."""
    if isinstance(value, Sampler):
        return value
    try:
        return _ANY_SAMPLER.validate_python(value) if isinstance(value, dict) else None
    except (ValidationError, InputError):
        return None


def _derived(sampler: Sampler) -> tuple[str, ...]:
    """The entries that follow from others in a plan whose sampler tunes itself."""
    return _OF_STEPS if isinstance(sampler, Unison) else ("num_steps", "burn_in")


def _counting_draws(entries: dict[str, Any], sampler: Sampler) -> dict[str, Any]:
    """The entries of a plan whose sampler tunes itself, with the numbers of steps that follow from them."""
    for name in _derived(sampler):
        if name in entries:
            raise PlanError(
                f"the sampler {sampler.kind} counts draws: take num_warmup and num_draws in place of '{name}'"
            )
    if isinstance(sampler, Unison):
        _require_exact(entries, sampler)
    if entries.get("num_draws") is not None and entries.get("max_draws") is not None:
        raise PlanError("num_draws says how many draws there are: leave out max_draws, or num_draws")
    full = {**_lengths(entries, sampler), "summation": entries.get("summation") or "tree"}
    if entries.get("num_draws") is None and entries.get("max_draws") is None:
        full["max_draws"] = _MAX_DRAWS
    lengths = (full["num_warmup"], full.get("num_draws") or full.get("max_draws"), full["store_every"])
    if all(isinstance(length, int) for length in lengths):
        full["num_steps"], full["burn_in"] = lengths[0] + lengths[1] * lengths[2], lengths[0]
    return full


def _require_exact(entries: dict[str, Any], sampler: Sampler) -> None:
    """Samplers in unison compute with all rows, in double precision."""
    if entries.get("batch_size") is not None:
        raise PlanError(
            f"the sampler {sampler.kind} needs the gradients of all rows: leave out batch_size, or take a sampler "
            "for minibatches (kinetic, langevin, dula, sghmc)"
        )
    if entries.get("dtype") == "float32":
        raise PlanError(f"the sampler {sampler.kind} needs double precision: leave out dtype, or set it to float64")


def _lengths(entries: dict[str, Any], sampler: Sampler) -> dict[str, Any]:
    """The entries with the sampler's defaults; with fewer chains a warm-up by gossip needs more steps."""
    usual = sampler.defaults

    def given(name: str, otherwise: Any) -> Any:
        return otherwise if entries.get(name) is None else entries[name]

    chains = given("num_chains", usual.num_chains)
    warmup = usual.num_warmup
    if not isinstance(sampler, Unison) and isinstance(chains, int) and chains > 0:
        warmup *= max(1, usual.num_chains // chains)
    return {
        **entries,
        "dtype": given("dtype", "float64" if entries.get("batch_size") is None else "float32"),
        "num_chains": chains,
        "num_warmup": given("num_warmup", warmup),
        "store_every": given("store_every", usual.store_every),
    }
