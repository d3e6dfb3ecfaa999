"""A run as a user meets it: draws, summary, report."""

from __future__ import annotations

from pathlib import Path

from consilience import experiments, reports
from consilience.errors import RunError
from consilience.runs.directory import RunDirectory


class Run(RunDirectory):
    """A run: its draws, its summary, and a report.

    Attributes:
        path: the directory.
        plan: the plan the run follows.
    """

    def report(self) -> Path:
        """Draw the figures and write `report.html`, from this directory alone."""
        if not self.complete:
            raise RunError(
                f"{self.path} is not complete ({self.status['status']}): finish it with "
                f"`consilience resume {self.path}`"
            )
        experiment = experiments.find(self.plan.problem)
        status = self.status
        analysed = status.get("analysed", status["engine"] != "peers")  # older runs do not say it
        sections = experiment.sections(self) if experiment and analysed else []
        return reports.write_report(self, sections)
