"""What an experiment is: a problem, a plan, and what to report about its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from consilience.graphs import Graph
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.reports import Section
from consilience.runs import RunDirectory


@runtime_checkable
class Repeating(Protocol):
    """An experiment whose chains are repetitions with data of their own: they do not converge to one law."""

    def num_draws(self, plan: Plan, store_every: int) -> int:
        """How many draws of a chain a sampler that tunes itself makes, in place of a plan that counts steps."""


class Experiment(Protocol):
    """A problem, a plan and a report, for networks of several sizes."""

    @property
    def name(self) -> str:
        """What the command line calls it."""

    @property
    def title(self) -> str:
        """What it is, for people."""

    @property
    def main(self) -> str:
        """Which run of the series stands for it."""

    @property
    def needs_all_data(self) -> bool:
        """Whether `analyse` compares with what the data of all agents says: then a node cannot do it alone."""

    def plans(self, num_steps: int | None = None) -> dict[str, Plan]:
        """The runs that the whole series compares, each with a name that can be a directory's."""

    def problem_of(self, plan: Plan, agents: Sequence[int] | None = None) -> Problem:
        """The problem that a plan samples: the data split among its agents, by its seed if that is random.

        With agents, their shards alone, in that order; no other agent's shard is made.
        """

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The paper's plan for so many agents; another graph or number of steps adapts its schedules."""

    def analyse(
        self, run: RunDirectory, problem: Problem, summary: dict[str, Any], show: Callable[[float], None]
    ) -> None:
        """Add to the summary of a finished run; may store what reports need in its directory.

        What takes long calls `show` with the share that is done.
        """

    def sections(self, run: RunDirectory) -> list[Section]:
        """What the report of one run shows about this experiment."""

    def series_results(self, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Entries of the series' summary that compare its runs."""

    def verdict(self, summaries: Mapping[str, dict[str, Any]]) -> str:
        """What the series shows, in plain words and from its numbers: reproduced, better or worse, and why."""

    def series_sections(self, runs: Mapping[str, RunDirectory]) -> list[Section]:
        """What the report of the whole series shows."""
