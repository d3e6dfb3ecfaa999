"""A run as a user meets it: draws, summary, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience import experiments, reports
from consilience.errors import RunError
from consilience.problems import Problem
from consilience.runs.directory import RunDirectory
from consilience.runs.posterior import posterior_rows
from consilience.runs.row_files import columns_of, name_of
from consilience.runs.transforms import Transform
from consilience.sampling.predictions import predictions

if TYPE_CHECKING:
    import pandas


class Run(RunDirectory):
    """A run: its draws, its summary, and a report.

    Attributes:
        path: the directory.
        plan: the plan the run follows.
    """

    def summary_table(self, transform: Transform = None, *, by_agent: bool = False) -> pandas.DataFrame:
        """Means, 95 % intervals and mixing, a row for each parameter, by the name that people know it by.

        Args:
            transform: a function that is applied to draws before they are described, such as `np.exp`; or functions
                by the names of parameters, `{"coefficients": np.exp}`.
            by_agent: where every agent walks a chain of its own, a row for each agent instead of one for the network.
        """
        import pandas

        rows = self.rows(transform, by_agent=by_agent)
        columns = {name: [row.get(name) for row in rows] for name in columns_of(rows)}
        index = pandas.Index([name_of(row) for row in rows], name="parameter")
        whole = {"agent": "Int64"} if "agent" in columns else {}  # nobody's own where it is shared
        numbers = {name: float for name in columns if name not in ("agent", "ratio_name", "derived")}
        table = pandas.DataFrame(columns, index=index).astype({**whole, **numbers})
        return table.assign(derived=table["derived"].eq(True)) if "derived" in table else table

    def rows(self, transform: Transform = None, *, by_agent: bool = False) -> list[dict[str, Any]]:
        """The rows of `summary_table` as dictionaries, as `summary.json` has them."""
        if transform is None and not by_agent and (self.path / "summary.json").exists():
            known = self.summary.get("posterior")
            if isinstance(known, list):  # older runs of gmm have something else there, others by gossip nothing
                return known
        return posterior_rows(self, transform, by_agent=by_agent)

    def predict(
        self,
        rows: Any,
        *,
        agent: int | str | None = None,
        problem: Problem | None = None,
        interval: float = 0.95,
    ) -> pandas.DataFrame:
        """What the posterior says about the outcomes of new rows, from at most 2,000 draws, evenly chosen.

        A number or a count has `mean`, with `low` and `high` the interval of the expected outcome over draws, and
        `outcome_low` and `outcome_high`, within which the outcome itself is expected. One that is 0 or 1 has the
        first three: its mean is the probability of 1. A class has the `class` that is most probable, its
        `probability` with the `deviation` over draws, `entropy` and its `epistemic` part in nats, and all
        probabilities.

        Args:
            rows: arrays as in a shard, which may lack the outcome; or the name of a file.
            agent: whose own parameters to take, where there are private ones: a site's number, or `"new"` for a site
                that nobody has seen, whose own are drawn given the others. On a node it is that node's, if not given.
            problem: the problem of the run; not needed for a study, or if the plan names it.
            interval: how much of the probability the intervals hold.
        """
        return predictions(self, rows, agent=agent, problem=problem, interval=interval)

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
        with self.opened_once():
            sections = experiment.sections(self) if experiment and analysed else []
            return reports.write_report(self, sections)
