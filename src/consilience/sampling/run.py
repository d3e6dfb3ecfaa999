"""A run as a user meets it: draws, summary, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from consilience import experiments, reports
from consilience.errors import RunError
from consilience.runs.directory import RunDirectory

if TYPE_CHECKING:
    import pandas


class Run(RunDirectory):
    """A run: its draws, its summary, and a report.

    Attributes:
        path: the directory.
        plan: the plan the run follows.
    """

    def summary_table(self) -> pandas.DataFrame:
        """Means, 95 % intervals and mixing, a row for each parameter (and agent, where it is the agent's own).

        Of agents that each walk a chain of their own: mean and spread at every agent.
        """
        import pandas

        summary = self.summary
        if isinstance(summary.get("posterior"), list):  # older runs of gmm have something else there
            table = pandas.DataFrame(summary["posterior"]).set_index("parameter")
            if "agent" in table:  # nobody's own where it is shared
                table.insert(0, "agent", table.pop("agent").astype("Int64"))
            return table
        columns = {
            name: [row[name] for row in summary["agents"]] for name in ("mean", "standard_deviation", "rhat", "ess")
        }
        return pandas.DataFrame(
            {name: np.ravel(values) for name, values in columns.items()},
            index=pandas.MultiIndex.from_product(
                [[row["agent"] for row in summary["agents"]], summary["parameters"]], names=["agent", "parameter"]
            ),
        )

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
