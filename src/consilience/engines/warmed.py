"""The stepper of corrected samplers that warm up, for engines that hold several agents.

It wraps the engine's plain stepper, which makes the steps. The first steps of a run are the warm-up's windows;
between them `warmup/` chooses coordinates and numbers. Windows that are not needed are left out: the number of the
step jumps to the last steps before the plan's burn-in ends, which let the chains settle. All that was found is part
of the state, so a resumed run continues in the middle of a window, with the same draws.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from consilience.engines.base import Gossiping, Segment, StateForm, Storage, Team
from consilience.engines.program import Stored
from consilience.errors import CheckpointError, PlanError, SamplingWarning, UnstableError
from consilience.kernel.noise import normals
from consilience.kernel.parameters import Parameters, initial_positions
from consilience.kernel.randomness import Purpose, agent_keys
from consilience.kernel.tuning import Tuning
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.warmup.adoption import common
from consilience.warmup.found import described, heating_warnings
from consilience.warmup.network import Network
from consilience.warmup.prediction import heated, left_out
from consilience.warmup.stages import SETTLING_STEPS, Stage, WarmUp
from consilience.warmup.windows import Moments


class Walker(Protocol):
    """A plain stepper of an engine, as a warm-up uses it."""

    problem: Problem
    plan: Plan
    parameters: Parameters
    team: Team
    storage: Storage
    form: StateForm
    block_steps: int
    max_steps: int
    segment_seconds: float
    uses_up_state: bool
    largest_number: float

    def data_digest(self) -> str:
        """Of all data that the team holds."""

    def largest_curvature(self) -> float | None:
        """The largest curvature of an agent's potential where the agents start."""

    def initial_state(self) -> Any:
        """A state of the right shapes."""

    def compile(self) -> None:
        """Compile the program."""

    def walked(self, state: Any, tuning: Any, first_step: int, num_steps: int, stored: Stored) -> tuple[Any, Segment]:
        """Make steps with the numbers of a tuning."""

    def placed(self, positions: np.ndarray) -> Any:
        """The sampler's state at positions `(chains, agents here, size)` in its coordinates."""

    def positions(self, state: Any) -> np.ndarray:
        """The positions in a state, `(chains, agents here, size)`."""

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum over all agents of values `(agents here, …)`, the same in all processes."""

    def adopted(self, values: np.ndarray) -> np.ndarray:
        """The root agent's numbers, at every agent."""

    def is_finite(self, state: Any) -> bool:
        """Whether all positions are finite."""

    def find_diverged(self, state: Any, first_step: int, num_steps: int, tuning: Any) -> tuple[int, int, int] | None:
        """The first position that is not finite."""


class Warmed(NamedTuple):
    """The state of a run that warms up."""

    walk: Any
    """The sampler's state, as the engine has it."""
    tuning: Tuning
    stage: Stage
    moments: Moments
    began: np.ndarray
    """`(chains, agents here, size)` where the window began, in its coordinates."""


class WarmedStepper(Gossiping):
    """Warms up, then samples."""

    def __init__(self, walker: Walker) -> None:
        self.walker, self.problem, self.plan = walker, walker.problem, walker.plan
        self.parameters, self.team, self.storage = walker.parameters, walker.team, walker.storage
        self.block_steps, self.max_steps = walker.block_steps, walker.max_steps
        self.segment_seconds, self.uses_up_state = walker.segment_seconds, walker.uses_up_state
        self.agents = self.storage.agents[self.storage.own]
        network = Network(self.agents, self.plan.num_agents, walker.total, walker.largest_number)
        self.warmup = WarmUp(self.problem, self.plan, self.parameters, network)
        self.form: StateForm = WarmedForm(self)

    def data_digest(self) -> str:
        """Of all data that the team holds."""
        return self.walker.data_digest()

    def largest_curvature(self) -> float | None:
        """Where the agents start, if a step size was given for the model's own coordinates."""
        return self.walker.largest_curvature() if self.plan.sampler.feels_curvature else None

    def initial_state(self) -> Warmed:
        """Before the start, which needs the network and is part of the first segment."""
        shape = (self.plan.num_chains, len(self.agents), self.parameters.size)
        return Warmed(
            self.walker.initial_state(), self.warmup.first_tuning(), self.warmup.first_stage(), self._no_moments(),
            np.zeros(shape),
        )  # fmt: skip

    def _no_moments(self) -> Moments:
        return Moments.none(self.warmup.blank, len(self.agents), self.parameters.size)

    def compile(self) -> None:
        """Compile the steps, so that sampling can be timed apart."""
        self.walker.compile()

    # --- steps -------------------------------------------------------------------------------------------------

    def advance(self, state: Warmed, first_step: int, num_steps: int) -> tuple[Warmed, Segment]:
        """Make at most `num_steps` steps; a window's end ends the segment."""
        if first_step == 0:
            state = self._begun(state)
        if state.stage.is_done:
            walk, segment = self.walker.walked(state.walk, state.tuning, first_step, num_steps, Stored.of(self.plan))
            return state._replace(walk=walk), segment
        return self._in_window(state, first_step, min(num_steps, state.stage.end - first_step))

    def _begun(self, state: Warmed) -> Warmed:
        prepared = self.warmup.begun(*self._starts())
        if self.warmup.length(0) is None or prepared.stage.is_done:
            raise PlanError(
                f"num_warmup = {self.plan.num_warmup} leaves no room for a warm-up: take "
                f"{self.plan.sampler.defaults.num_warmup}, or leave it out"
            )
        return self._at(state, prepared)

    def _starts(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the model starts, and standard normal numbers; of shared parameters by keys without an agent."""
        chains, split, nobody = (
            np.arange(self.plan.num_chains),
            self.parameters.num_shared,
            np.zeros_like(self.agents),
        )
        dtype = jnp.dtype(self.plan.dtype)

        def drawn(purpose: Purpose, agents: np.ndarray) -> np.ndarray:
            keys = agent_keys(self.plan.seed, purpose, chains, agents)
            if purpose is Purpose.INIT:
                found = initial_positions(self.problem, self.parameters, keys, dtype)
            else:
                found = normals(keys, 0, self.parameters.size, dtype)
            return np.asarray(found, np.float64).reshape(*keys.shape, self.parameters.size)

        start, spread = (
            np.concatenate([drawn(one, nobody)[..., :split], drawn(one, self.agents)[..., split:]], -1)
            for one in (Purpose.INIT, Purpose.SPREAD)
        )
        entries = self.parameters.entries
        return start, spread if entries is None else spread * entries

    def _in_window(self, state: Warmed, first_step: int, num_steps: int) -> tuple[Warmed, Segment]:
        stage, every = state.stage, self.plan.store_every
        dropped = int(stage.length) // 4
        stored = Stored(int(stage.start) + dropped, every)
        walk, segment = self.walker.walked(state.walk, state.tuning, first_step, num_steps, stored)
        expected = (int(stage.length) - dropped) // every * self.plan.num_chains
        moments = state.moments.with_draws(segment.draws, state.tuning.whitening, expected)
        state = state._replace(walk=walk, moments=moments)
        nothing = segment._replace(draws=segment.draws[:0], first_draw=0)
        if segment.last_step < stage.end:
            return state, nothing
        prepared = self.warmup.finished(
            state.tuning, moments, stage, state.began, self.walker.positions(walk), segment.last_step
        )
        state = self._at(state, prepared)
        if state.stage.is_done:
            nothing = nothing._replace(last_step=self.plan.burn_in - SETTLING_STEPS)
            for warning in heating_warnings(self.found_so_far(state)):
                warnings.warn(SamplingWarning(warning), stacklevel=2)
        return state, nothing

    def _at(self, state: Warmed, prepared: Any) -> Warmed:
        """At the beginning of a window, or of sampling."""
        tuning, positions, stage = common(prepared, self.walker.adopted)
        return Warmed(self.walker.placed(positions), tuning, stage, self._no_moments(), positions)

    # --- what the life of a run asks ---------------------------------------------------------------------------

    def agree_to_stop(self, satisfied: bool) -> bool:
        """Whether the draws of all agents suffice."""
        return satisfied

    def found(self, state: Warmed) -> dict[str, Any]:
        """What the warm-up found, and what errors it leaves."""
        found = self.found_so_far(state)
        if not state.stage.is_done:
            return found
        try:
            predicted = heated(self.warmup.predicted(state.tuning), found.get("heating"))
        except UnstableError as error:  # of the expansion: the draws are there, and show what they do
            predicted = left_out(str(error))
        return {**found, "predicted": predicted}

    def found_so_far(self, state: Warmed) -> dict[str, Any]:
        """What the warm-up found until now."""
        return described(self.warmup.sampler, state.tuning, state.stage)

    def is_finite(self, state: Warmed) -> bool:
        """Whether all positions are finite; a window that diverges is repeated."""
        return not state.stage.is_done or self.walker.is_finite(state.walk)

    def find_diverged(self, state: Warmed, first_step: int, num_steps: int) -> tuple[int, int, int] | None:
        """The first position that is not finite."""
        return self.walker.find_diverged(state.walk, first_step, num_steps, state.tuning)


class WarmedForm:
    """How such a state is written: the sampler's as the engine writes it, the rest as whole arrays of all agents."""

    def __init__(self, stepper: WarmedStepper) -> None:
        self.stepper = stepper

    def content(self, state: Warmed) -> list[Any]:
        """Those of the sampler's state, then the others that hold something."""
        return [*self.stepper.walker.form.content(state.walk), *self._written(state)]

    def note(self, state: Warmed) -> dict[str, Any]:
        """The sampler's note, a digest of the rest, and its shapes."""
        rest = self._written(state)
        shapes = [[list(leaf.shape), str(leaf.dtype)] for leaf in rest]
        return {"warmup": {"digest": _digest(rest), "shapes": shapes}, **self.stepper.walker.form.note(state.walk)}

    def example(self, note: dict[str, Any]) -> list[Any]:
        """Of the shapes that were written."""
        rest = [np.zeros(shape, dtype) for shape, dtype in note["warmup"]["shapes"]]
        return [*self.stepper.walker.form.example(note), *rest]

    def restored(self, arrays: list[Any], note: dict[str, Any]) -> Warmed:
        """The state of the agents that are here."""
        count = len(note["warmup"]["shapes"])
        rest = [np.asarray(leaf) for leaf in arrays[len(arrays) - count :]]
        if _digest(rest) != note["warmup"]["digest"]:
            raise CheckpointError("its content does not match its digest")
        walk = self.stepper.walker.form.restored(arrays[: len(arrays) - count], note)
        like, found = self.stepper.initial_state()._replace(walk=()), iter(rest)
        leaves, structure = jax.tree.flatten(like)
        own = []
        for leaf, axis in zip(leaves, jax.tree.leaves(_agent_axes(like)), strict=True):
            whole = next(found) if leaf.size else leaf
            own.append(whole if axis < 0 else np.take(whole, self._own(), axis) if leaf.size else leaf)
        return jax.tree.unflatten(structure, own)._replace(walk=walk)

    def _own(self) -> np.ndarray:
        storage = self.stepper.storage
        return np.arange(len(storage.agents))[storage.own]

    def _written(self, state: Warmed) -> list[np.ndarray]:
        rest = state._replace(walk=())
        return [
            self._whole(np.asarray(leaf), axis)
            for leaf, axis in zip(jax.tree.leaves(rest), jax.tree.leaves(_agent_axes(rest)), strict=True)
            if np.size(leaf)
        ]

    def _whole(self, leaf: np.ndarray, axis: int) -> np.ndarray:
        """An array of all agents, from what each process holds of its own."""
        if axis < 0:
            return leaf
        shape = list(leaf.shape)
        shape[axis] = len(self.stepper.storage.agents)
        whole = np.zeros(shape, leaf.dtype)
        whole[(*[slice(None)] * axis, self.stepper.storage.own)] = leaf
        return self.stepper.team.gather(whole).sum(0, dtype=leaf.dtype)


def _agent_axes(state: Warmed) -> Warmed:
    """Which axis of each array is along agents; −1 where none is."""
    axes = jax.tree.map(lambda _: -1, state)
    own = {name: 0 for name in ("own_mean", "own_root", "own_scale", "shear") if hasattr(axes.tuning.whitening, name)}
    anchor = jax.tree.map(lambda leaf: leaf.ndim - 2, state.tuning.anchor)
    tuning = axes.tuning._replace(whitening=axes.tuning.whitening._replace(**own), anchor=anchor)
    return axes._replace(tuning=tuning, moments=axes.moments._replace(first=0, second=0, places=1), began=1)


def _digest(arrays: list[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
