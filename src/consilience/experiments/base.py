"""What an experiment is: a problem, a plan, and what to report about its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from consilience.graphs import Graph
from consilience.plans import Plan
from consilience.problems import Problem
from consilience.reports import Section
from consilience.runs import RunDirectory


class Experiment(Protocol):
    """A problem, a plan and a report, for networks of several sizes."""

    @property
    def name(self) -> str:
        """What the command line calls it."""

    @property
    def title(self) -> str:
        """What it is, for people."""

    @property
    def networks(self) -> tuple[int, ...]:
        """The numbers of agents that the whole study compares."""

    @property
    def main_network(self) -> int:
        """The one of them whose figures stand for the study."""

    def problem(self, num_agents: int) -> Problem:
        """The problem, its data split among so many agents."""

    def plan(self, num_agents: int, graph: Graph | None = None, num_steps: int | None = None) -> Plan:
        """The paper's plan for so many agents; another graph or number of steps adapts its schedules."""

    def analyse(self, run: RunDirectory, problem: Problem, summary: dict[str, Any]) -> None:
        """Add to the summary of a finished run; may store what reports need in its directory."""

    def sections(self, run: RunDirectory) -> list[Section]:
        """What the report of one run shows about this experiment."""

    def study_results(self, summaries: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
        """Entries of the study's summary that compare the networks."""

    def study_sections(self, runs: Mapping[int, RunDirectory]) -> list[Section]:
        """What the report of the whole study shows."""
