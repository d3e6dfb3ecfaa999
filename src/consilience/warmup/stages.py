"""What happens before, between and after the windows of a warm-up.

Chains that have data of their own, as repetitions of an experiment have, share coordinates and numbers: curvature is
looked at with the first chain's data, moments are those of all chains, and only the gradients at an anchor differ.

All of it is the same arithmetic at every agent, from sums that all receive; what is an agent's own (its private
parameters, how they go along with the shared ones) stays at the agent. A window that diverged is repeated with half
its step size. The first three windows are always made, further ones until the coordinates are about right.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from consilience.errors import DivergedError
from consilience.graphs.spanning import num_hops
from consilience.kernel.parameters import Parameters
from consilience.kernel.tuning import Tuning, blank_tuning
from consilience.kernel.variates import Anchor
from consilience.kernel.whitening import Dense, Diagonal, Whitening, identity
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.samplers import Coordinates, Corrected
from consilience.samplers.corrected import MOST_HEATING
from consilience.warmup.curvature import Curvature, curvature
from consilience.warmup.derivatives import LocalPotentials
from consilience.warmup.given import in_coordinates
from consilience.warmup.large import LargePotentials, large_curvature
from consilience.warmup.network import Network
from consilience.warmup.newton import newton
from consilience.warmup.prediction import MOST_NUMBERS, NOT_AT_NODES, left_out, predicted
from consilience.warmup.variates import BatchGradients, largest_noise
from consilience.warmup.windows import Moments, Window, require_bounded, rescaled

SETTLING_STEPS = 50
"""Steps after the last window that are not stored."""
SPREAD = 0.5
"""How far chains start from the centre, in standard deviations of the normal approximation."""
_FARTHEST = 1e3  # coordinates beyond count as diverged
_MOST_HALVINGS = 6
_MOST_COOLINGS = 40
_MOST_RECORDS = 16
RECORD = ("steps", "step_size", "exchanges", "curvature", "excess", "least", "largest", "moved")
"""What is remembered of each window."""


class Stage(NamedTuple):
    """Where a warm-up stands, as arrays that a checkpoint holds."""

    window: Any
    """The number of the window that is being made."""
    start: Any
    """The step at which it began."""
    length: Any
    """Its steps; 0 when the warm-up is done."""
    halvings: Any
    """How often its step size was halved."""
    rounds: Any
    """Exchanges and hops of sums so far."""
    sums: Any
    gradients: Any
    curvature: Any
    """`Λ` and `ℓ` by which the present numbers were chosen."""
    is_settled: Any
    """Whether the coordinates were about right in the last window."""
    records: Any
    """`(16, 8)` what is remembered of each window."""
    noise: Any
    """`σ²` of minibatches without and with a control variate; no numbers before they are known."""

    @property
    def end(self) -> int:
        """The step after which the window is complete."""
        return int(self.start) + int(self.length)

    @property
    def is_done(self) -> bool:
        """Whether there is no further window."""
        return int(self.length) == 0


class Prepared(NamedTuple):
    """With what the next window, or sampling, begins."""

    tuning: Tuning
    positions: np.ndarray
    """`(chains, agents here, size)` in the tuning's coordinates."""
    stage: Stage


class WarmUp:
    """The warm-up of one plan, for the agents that are here."""

    def __init__(self, problem: Problem, plan: Plan, parameters: Parameters, network: Network) -> None:
        assert isinstance(plan.sampler, Corrected)
        self.problem, self.plan, self.sampler, self.network = problem, plan, plan.sampler, network
        self.parameters, self.num_shared = parameters, parameters.num_shared
        self.budget, self.hops = plan.burn_in - SETTLING_STEPS, num_hops(plan.graph, plan.summation)
        here = len(network.agents)
        plain = identity(self.num_shared, here, parameters.size - self.num_shared)
        self.blank = in_coordinates(plan.sampler.whitening, plain)

    # --- before the first window -------------------------------------------------------------------------------

    def first_tuning(self) -> Tuning:
        """A tuning of the right shapes, before anything is known."""
        here, size = len(self.network.agents), self.parameters.size
        return blank_tuning(self.blank, here, size, self.plan.has_control_variates, self.problem.chains_apart)

    def first_stage(self) -> Stage:
        """Before the start."""
        nothing = np.zeros((), np.int64)
        return Stage(
            nothing, nothing, nothing, nothing, nothing, nothing, nothing, np.zeros(2), np.zeros((), bool),
            np.full((_MOST_RECORDS, len(RECORD)), np.nan), np.full(2, np.nan),
        )  # fmt: skip

    def begun(self, start: np.ndarray, spread: np.ndarray) -> Prepared:
        """Coordinates and numbers for the first window.

        Args:
            start: `(chains, agents here, size)` where the model starts, shared parts the same at all agents.
            spread: the same of standard normal numbers.
        """
        before = self.network.sums
        whitening, positions, places = self.blank, start, start[:1]
        stage, approximated = self.first_stage(), self.sampler.whitening == "found"
        if isinstance(whitening, Dense) and approximated:
            whitening, places = self._laplace(start[0])
            positions = SPREAD * spread
        elif isinstance(self.sampler.whitening, Coordinates):
            positions, places = SPREAD * spread, np.asarray(whitening.position(0 * start[:1]), np.float64)
        known = self.curvature_at(whitening, places)
        anchor = self._anchor(places[0])
        if isinstance(whitening, Dense) and approximated:
            stage = self._with_noise(stage, anchor, whitening, np.asarray(whitening.position(spread), np.float64))
        tuning = self._tuned(whitening, known, anchor, stage, first=True)
        stage = self._counted(stage, before)
        return Prepared(tuning, positions, self._next(stage, 0, 0, known))

    def _laplace(self, start: np.ndarray) -> tuple[Dense, np.ndarray]:
        """Coordinates by Newton's normal approximation, and `(1, agents here, size)` where it is centred."""
        found = newton(self.small, self.network, start, self._num_parameters())
        own, mean = found.positions[:, self.num_shared :], found.positions[0, : self.num_shared]
        return Dense(mean, found.root, own, found.own_root, found.shear), found.positions[None]

    def foreseen(self, start: np.ndarray) -> Tuning:
        """About what the warm-up will find, without any window: by Newton's normal approximation alone.

        Args:
            start: `(agents here, size)` where the model starts, the same at all agents.
        """
        whitening, places = self._laplace(start)
        if self.sampler.whitening != "found":
            assert isinstance(self.blank, Dense)  # no more is predicted of larger models
            whitening = whitening._replace(root=self.blank.root)
        return self._tuned(whitening, self.curvature_at(whitening, places), None, self.first_stage())

    def _num_parameters(self) -> int:
        """Of the whole network; agents' private ones may differ in number."""
        entries = self.parameters.entries
        here = len(self.network.agents)
        own = np.full(here, self.parameters.size - self.num_shared)
        if entries is not None:
            own = entries[:, self.num_shared :].sum(1)
        if not own.any() and not self.parameters.private:
            return self.num_shared
        summed = self.network.summed(own.astype(float))
        assert summed is not None
        return self.num_shared + int(summed[0])

    # --- after a window ----------------------------------------------------------------------------------------

    def finished(
        self, tuning: Tuning, moments: Moments, stage: Stage, began: np.ndarray, ended: np.ndarray, step: int
    ) -> Prepared:
        """Coordinates and numbers for what follows a window.

        Args:
            tuning: of the window.
            moments: of its draws.
            stage: of the warm-up.
            began: `(chains, agents here, size)` where the window began, in its coordinates.
            ended: the same where it ended.
            step: after how many steps that is.
        """
        before, d = self.network.sums, self.num_shared
        stage = stage._replace(
            rounds=stage.rounds + int(tuning.exchanges) * stage.length, gradients=stage.gradients + stage.length
        )
        whitening = tuning.whitening
        last = np.asarray(whitening.position(np.asarray(ended, np.float64)))
        reached = np.where(np.abs(ended).max((0, 2)) < _FARTHEST, 0.0, np.nan)
        square = moments.second[:, :d, :d] if isinstance(whitening, Dense) else moments.second[:, :d]
        summed = self.network.summed(
            moments.first[:, :d],
            square,
            moments.places.swapaxes(0, 1)[..., :d],
            last.swapaxes(0, 1)[..., :d],
            reached,
        )
        if summed is None:
            return self._again(tuning, self._counted(stage, before), began, step)
        count = int(moments.num_draws) * self.network.num_agents
        mean = summed[0] / count
        second = summed[1] / count
        covariance = second - (np.outer(mean, mean) if second.ndim == 2 else mean**2)
        window = Window(mean, covariance)
        if self.sampler.whitening == "found":
            require_bounded(window, stage.records[: int(stage.window), RECORD.index("largest")], self._remedy())
        stage = self._recorded(stage, tuning, window)
        centre = self._centre(tuning.whitening, window, moments)
        positions, places = self._averaged(last, summed[3]), self._averaged(moments.places, summed[2])
        if self.sampler.whitening == "found":
            drawn = int(moments.num_draws) * self.plan.store_every
            effective = drawn * self.sampler.independent_share(float(tuning.step_size))
            whitening = rescaled(whitening, window, moments, effective)
        known = self.curvature_at(whitening, places)
        anchor = self._anchor(centre)
        stage = self._with_noise(stage, anchor, whitening, places)
        new = self._tuned(whitening, known, anchor, stage)
        stage = self._next(self._counted(stage, before), int(stage.window) + 1, step, known)
        if stage.is_done:
            new = new._replace(temperature=np.float64(self.sampler.temperature))
        return Prepared(new, whitening.coordinates(positions), stage)

    def _averaged(self, own: np.ndarray, shared: np.ndarray) -> np.ndarray:
        """Positions `(…, agents here, size)` whose shared parts are the average over all agents, from their sum."""
        mean = shared[:, None, :] / self.network.num_agents
        return np.concatenate(
            [np.broadcast_to(mean, (*own.shape[:2], self.num_shared)), own[..., self.num_shared :]], -1
        )

    # --- minibatches -------------------------------------------------------------------------------------------

    def _centre(self, whitening: Whitening, window: Window, moments: Moments) -> np.ndarray:
        """`(agents here, size)` the mean of a window: of shared parameters that of all agents."""
        own = moments.first[:, self.num_shared :] / int(moments.num_draws)
        shared = np.broadcast_to(window.mean, (len(own), self.num_shared))
        return np.asarray(whitening.position(np.concatenate([shared, own], -1)), np.float64)

    def _anchor(self, centre: np.ndarray) -> Anchor | None:
        return self.batches.anchor(centre) if self.plan.has_control_variates else None

    def _with_noise(self, stage: Stage, anchor: Anchor | None, whitening: Whitening, places: np.ndarray) -> Stage:
        """With the noise that minibatches have at some draws."""
        if self.plan.batch_size is None:
            return stage
        noise = self.batches.noise(anchor, whitening, places)
        return stage._replace(noise=largest_noise(self.network, noise, self.num_shared))

    @cached_property
    def batches(self) -> BatchGradients:
        """Gradients of minibatches."""
        return BatchGradients(self.problem, self.plan)

    def _remedy(self) -> str:
        """What may help where a warm-up does not stay where the posterior is."""
        if self.plan.batch_size is None:
            return "check that the posterior is proper (a prior on every parameter), or give it other coordinates"
        if not self.plan.has_control_variates:
            return "the noise of minibatches is the likely cause: leave out control_variates = false"
        return (
            f"the noise of minibatches is the likely cause: take a larger batch_size (it is {self.plan.batch_size}), "
            "or all rows (leave it out)"
        )

    def _again(self, tuning: Tuning, stage: Stage, began: np.ndarray, step: int) -> Prepared:
        """The same window with half the step size."""
        halvings = int(stage.halvings) + 1
        length = int(stage.length)
        if halvings > _MOST_HALVINGS or step + length > self.budget:
            raise DivergedError(
                f"the warm-up diverged, and again with its step size halved {halvings - 1} times (now "
                f"{float(tuning.step_size):.3g}): check the model for overflow far from the data, or give it other "
                "coordinates; more steps of warm-up allow for more trials (num_warmup)"
                + ("" if self.plan.batch_size is None else f"; {self._remedy()}")
            )
        stage = stage._replace(start=np.int64(step), halvings=np.int64(halvings))
        return Prepared(tuning._replace(step_size=tuning.step_size / 2), began, stage)

    def _next(self, stage: Stage, window: int, step: int, known: Curvature) -> Stage:
        """The stage of the window of that number, if it is needed and there is room for it."""
        length = self.length(window)
        needed = window < len(self.sampler.windows) or not stage.is_settled
        if not needed or length is None or step + length > self.budget:
            length = 0
        return stage._replace(
            window=np.int64(window), start=np.int64(step), length=np.int64(length), halvings=np.int64(0),
            curvature=np.array(known),
        )  # fmt: skip

    def length(self, window: int) -> int | None:
        """The steps of a window; longer with fewer chains, shorter if there is no room for the first three."""
        sampler = self.sampler
        lengths = (*sampler.windows, *sampler.further_windows)
        if window >= len(lengths):
            return None
        chains = max(1, sampler.defaults.num_chains // self.plan.num_chains)
        stretch = min(chains, self.budget / sum(sampler.windows))
        return max(4 * self.plan.store_every, int(lengths[window] * stretch))

    def predicted(self, tuning: Tuning) -> dict[str, Any]:
        """The errors that the numbers found leave at every agent (`prediction.py`), or why that is not told."""
        reason = self.why_not_predicted()
        if reason is not None:
            return left_out(reason)
        assert isinstance(tuning.whitening, Dense)
        here = np.broadcast_to(tuning.whitening.mean, (self.plan.num_agents, self.num_shared))
        return predicted(self.sampler, self.plan.graph, tuning, self.small.at(here))

    def why_not_predicted(self) -> str | None:
        """Why nobody can tell the errors that are left, if so."""
        size = self.plan.num_agents * self.parameters.size
        if len(self.network.agents) < self.plan.num_agents:
            return NOT_AT_NODES
        if self.parameters.size > self.num_shared:
            return "there are private parameters"
        if size > MOST_NUMBERS or not isinstance(self.blank, Dense):
            return f"{size:,} numbers are more than {MOST_NUMBERS} (agents times parameters)"
        return None

    def curvature_at(self, whitening: Whitening, places: np.ndarray) -> Curvature:
        """`Λ` and `ℓ` in some coordinates, at positions `(draws, agents here, size)`."""
        if isinstance(whitening, Diagonal):
            return large_curvature(self._large, self.network, whitening, places)
        return curvature(self.small, self.network, whitening, places)

    @cached_property
    def small(self) -> LocalPotentials:
        """Values, gradients and Hessians of the agents here."""
        return LocalPotentials(self.problem)

    @cached_property
    def _large(self) -> LargePotentials:
        return LargePotentials(self.problem, self.plan.dtype)

    def _tuned(
        self, whitening: Whitening, known: Curvature, anchor: Anchor | None, stage: Stage, first: bool = False
    ) -> Tuning:
        sampler = self.sampler
        step = sampler.step_size or sampler.step_for(known.largest) * (0.5 if first else 1.0)
        if sampler.step_size is None and isinstance(whitening, Dense):
            step = self._cooled(step, stage)
        exchanges = sampler.exchanges or sampler.exchanges_on(self.plan.graph, known.excess)
        return Tuning(np.float64(step), np.int64(exchanges), np.float64(1.0), whitening, anchor)

    def _cooled(self, step: float, stage: Stage) -> float:
        """A step size at which the noise that control variates leave heats by at most 5 %.

        That noise grows with the draws' distance from the anchor, so much of it feeds itself: draws run off. In large
        models, which have no dense whitening, no anchor stands for the posterior, and the figure is only told.
        """
        noise = float(stage.noise[1]) / (self.sampler.temperature or 1.0)
        if not self.plan.has_control_variates or not np.isfinite(noise):
            return step
        for _ in range(_MOST_COOLINGS):
            if self.sampler.heating(step, noise) <= MOST_HEATING:
                break
            step *= 0.8
        return step

    def _counted(self, stage: Stage, before: int) -> Stage:
        """With the sums that were made since."""
        made = self.network.sums - before
        return stage._replace(sums=stage.sums + made, rounds=stage.rounds + made * self.hops)

    def _recorded(self, stage: Stage, tuning: Tuning, window: Window) -> Stage:
        values = window.eigenvalues
        row = [
            int(stage.length), float(tuning.step_size), int(tuning.exchanges), *stage.curvature, values[0],
            values[-1], np.abs(window.mean).max(),
        ]  # fmt: skip
        records = stage.records.copy()
        records[int(stage.window) % _MOST_RECORDS] = row
        return stage._replace(records=records, is_settled=np.array(window.is_settled))
