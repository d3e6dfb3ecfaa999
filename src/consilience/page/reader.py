"""Makes snapshots of one place, again and again; it reads files, takes what nodes answered, and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.page.agents import Agent, Hearing, alike, all_wait, seen_by
from consilience.page.agreeing import distances, same_draws
from consilience.page.curves import Curve, Curves, curves_of, priors_of
from consilience.page.history import MOST_AGENTS, Entry, History, Line, metrics_of
from consilience.page.measures import EVERYTHING, Verdict, scope_of, verdict_of, verdict_so_far
from consilience.page.memory import Memory
from consilience.page.places import Place, plan_of
from consilience.page.snapshot import Progress, Snapshot, progress_of
from consilience.page.tables import classified, log_of, message_rows, participation_of, warmup_of
from consilience.plans import Plan
from consilience.runs.directory import RunDirectory
from consilience.runs.posterior import evenly

MOST_ROWS = 24
"""How many parameters are followed on the way to convergence, evenly chosen of more."""
MOST_SHOWN = 6
"""How many curves a page begins with."""
_MOST_LABELS, _MOST_SUMMARISED = 5000, 200
_SILENT_SECONDS = 60.0
_SHAPES = ("ring", "path", "star", "grid", "torus", "barbell")
_ENGINES = {"simulate": "in one process", "mesh": "on a mesh of devices", "peers": "nodes of a network"}


class Reader:
    """Reads one place; a call of `snapshot` reads what is new.

    Args:
        hearing: what the place's nodes answer.
    """

    def __init__(self, hearing: Hearing | None = None) -> None:
        self.hearing, self.memory = hearing or Hearing(), Memory()

    def snapshot(self, place: Place, wanted: Sequence[str] = (), now: float | None = None) -> Snapshot:
        """What is to be seen now, with curves of the wanted parameters (by label) beside the first ones."""
        plan = plan_of(place)
        runs = [RunDirectory(path) for path in ([place.run] if place.run else place.nodes.values())]
        if not runs:
            return self._before(place, plan)
        return _Look(self, place, plan, runs, wanted, time.time() if now is None else now).snapshot()

    def _before(self, place: Place, plan: Plan) -> Snapshot:
        """Nobody has begun to sample."""
        return Snapshot(
            title=_title(plan, place.path.resolve().name),
            subtitle=_subtitle(plan, ""),
            state="waiting",
            verdict=Verdict("No draws yet.", "unknown"),
            progress=Progress("waiting for the first node", 0.0),
            network=self.memory.network(plan),
            agents=self.hearing.agents({})
            or [Agent(number, "unknown", "is being asked") for number in range(plan.num_agents)],
            log=log_of(place.logs),
        )


class _Look:
    """One look at the runs of a place."""

    def __init__(
        self, reader: Reader, place: Place, plan: Plan, runs: list[RunDirectory], wanted: Sequence[str], now: float
    ) -> None:
        self.memory, self.hearing = reader.memory, reader.hearing
        self.place, self.plan, self.runs, self.now = place, plan, runs, now
        self.status = [run.status for run in runs]
        self.histories = [self.memory.history(run) for run in runs]
        for one in self.histories:
            one.refresh()
        self.longest = max(self.histories, key=lambda one: one.length)
        self.labels = _labels(self.longest)
        self.followed = [list(self.labels)[i] for i in evenly(len(self.labels), MOST_ROWS)]
        asked = [one for one in wanted if one in self.labels]
        self.shown = list(dict.fromkeys([*self.followed[:MOST_SHOWN], *asked]))
        self.followed = list(dict.fromkeys([*self.followed, *asked]))
        for one in self.histories:
            one.refresh([self.labels[label] for label in self.followed])
        self.metrics = {run.path: found for run in runs if (found := metrics_of(run)) is not None}
        self.state = self._state()

    def snapshot(self) -> Snapshot:
        """What is to be seen."""
        plan, hearing, (run, *others) = self.plan, self.hearing, self.runs
        step, status, summary = self._step(), self.status[0], self._summary()
        rows, across, scope = self._rows(summary)
        rate = self._rate(step)
        agents = self._agents(step, rate)
        if waits := self.state == "running" and all_wait(agents):
            rate = None
        messages = message_rows(hearing.last.values(), [summary] if summary else self._own_summaries())
        present = next((one.get("present") for one in hearing.answers.values()), None)
        agreement, agreement_words = self._agreement()
        return Snapshot(
            title=_title(plan, status["problem_name"]),
            subtitle=_subtitle(plan, status["engine"]),
            state=self.state,
            verdict=verdict_of(summary)
            if summary
            else verdict_so_far(rows, plan.sampler.temperature, self._diverging(), across, scope),
            progress=progress_of(plan, step, self.longest.length, rate, rows, self.state == "complete", waits),
            network=self.memory.network(plan),
            agents=agents,
            num_draws=self.longest.length,
            unit="move" if plan.is_unison else "step",
            rows=rows,
            labels=list(self.labels),
            num_parameters=len(self.longest.entries),
            left_out=self._left_out(),
            curves=self._curves(),
            agreement=agreement,
            agreement_words=agreement_words,
            warmup=warmup_of(plan, step, status, self.metrics.get(run.path)),
            messages=messages,
            messages_words=self._messages_words(bool(messages), summary),
            participation=participation_of(self.longest.participation, present, plan.num_agents),
            log=log_of(self.place.logs),
            classified=None if others else classified(run),
            reports=self._reports(),
            notes=[one["message"] for one in self.status if one.get("message")],
        )

    def _state(self) -> str:
        """Of a network, what is worst; it is complete when all its nodes are."""
        found = {one["status"] for one in self.status}
        if self.place.network is not None and self.place.run is None and len(self.runs) < self.plan.num_agents:
            found.add("running")
        return next((one for one in ("failed", "running", "interrupted") if one in found), "complete")

    def _summary(self) -> dict[str, Any] | None:
        """That of a complete run; several nodes have one each, and none of the whole network."""
        (run, *others) = self.runs
        if others or self.state != "complete" or not (run.path / "summary.json").is_file():
            return None
        return run.summary

    def _own_summaries(self) -> list[dict[str, Any]]:
        """Those that several nodes have each, once they are complete."""
        return [run.summary for run in self.runs if (run.path / "summary.json").is_file()]

    def _reports(self) -> list[tuple[str, Path]]:
        """Those that are written, of the run or of each node that is done, and of the series that it belongs to."""
        done = [
            run.path for run, status in zip(self.runs, self.status, strict=True) if status["status"] == "complete"
        ]
        if self.place.run is None and self.place.own is None:
            found = [(f"Report of agent {n}", path) for n, path in self.place.nodes.items() if path in done]
        else:
            found = [("Open the report", path) for path in done]
        if self.place.series is not None:
            found.append(("Report of the series", self.place.series))
        return [(name, path / "report.html") for name, path in found if (path / "report.html").is_file()]

    def _rate(self, step: int) -> float | None:
        """Steps a second: of a complete run on the whole, of several nodes that of the slowest, over some seconds."""
        measured = self.memory.rate(step, self.now)
        if self.state == "complete":
            rates = [one.get("timing", {}).get("steps_per_second") for one in self.status]
            return min((one for one in rates if one is not None), default=None)
        if self.hearing.answers:
            return min(self.hearing.rate(agent) or 0.0 for agent in self.hearing.answers) or None
        return measured

    def _step(self) -> int:
        """Where the run is; of several nodes, where the last of those is that answer."""
        answers = [one["round"] for one in self.hearing.answers.values()]
        if answers:
            return int(min(answers))
        return min(
            int(max([status["step"], *history.steps[-1:], *self._measured_at(run)]))
            for run, status, history in zip(self.runs, self.status, self.histories, strict=True)
        )

    def _measured_at(self, run: RunDirectory) -> list[int]:
        found = self.metrics.get(run.path)
        return [] if found is None else found["step"].isel(time=slice(-1, None)).to_numpy().tolist()

    def _agents(self, step: int, rate: float | None) -> list[Agent]:
        plan, hearing = self.plan, self.hearing
        statuses = dict(zip(self.place.nodes, (one["status"] for one in self.status), strict=False))
        if self.place.own is not None:
            (agent,) = self.place.nodes
            answer = hearing.answers.get(agent)
            others = seen_by(agent, answer, plan.num_agents)
            return sorted([*self._with_stored(hearing.agents(statuses)), *others])
        if self.place.network is not None and self.place.run is None and (own := hearing.agents(statuses)):
            return self._with_stored(own)
        silent, warming_up = self.now - self._last_change(), plan.sampler.tunes_itself and step < plan.burn_in
        return alike(
            plan.num_agents, self.state, step, warming_up, silent if silent > _SILENT_SECONDS else None, rate
        )

    def _with_stored(self, found: Sequence[Agent]) -> list[Agent]:
        """Agents whose nodes answer no more, with what their runs say."""
        stored = dict(zip(self.place.nodes, self.status, strict=False))
        return [
            one._replace(
                round=stored[one.number]["step"], rate=stored[one.number].get("timing", {}).get("steps_per_second")
            )
            if one.state == "done" and one.number in stored and one.number not in self.hearing.answers
            else one
            for one in found
        ]

    def _last_change(self) -> float:
        names = ("status.json", "draws.zarr/zarr.json", "metrics.zarr/zarr.json")
        files = [run.path / name for run in self.runs for name in names]
        return max(one.stat().st_mtime for one in files if one.is_file())

    def _lines(self, entry: Entry) -> list[Line]:
        """An entry's draws at each agent; what all have in common is taken from the one that has most of it."""
        own = [line for one in self.histories for line in one.lines(entry) if line.agent is not None]
        return own or self.longest.lines(entry)

    def _rows(
        self, summary: Mapping[str, Any] | None
    ) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, float | None], str]:
        """A row for each parameter, R-hat across agents, and of what that is."""
        known = summary.get("posterior") if summary else None
        if isinstance(known, list):
            asked = [row for row in known[_MOST_SUMMARISED:] if row["label"] in self.shown]
            return [{"agent": None, **row} for row in [*known[:_MOST_SUMMARISED], *asked]], {}, EVERYTHING
        lines = {label: self._lines(self.labels[label]) for label in self.followed}
        lines = {label: [one for one in some if one.values.shape[1]] for label, some in lines.items()}
        rows, across = self.memory.measured(lines, sum(one.length for one in self.histories))
        return rows, across, scope_of(lines, len(self.longest.entries), self.plan.num_agents)

    def _left_out(self) -> str:
        """What of the run cannot be looked at."""
        count, agents = len(self.longest.entries), self.plan.num_agents
        found = []
        if count > len(self.labels):
            found.append(f"The first {len(self.labels):,} of {count:,} parameters can be chosen.")
        if any(one.num_agents > len(one.agents) for one in self.histories):
            found.append(f"Of {agents:,} agents {MOST_AGENTS} are shown, evenly chosen.")
        return " ".join(found)

    def _curves(self) -> dict[str, Curves]:
        priors = priors_of(self.plan.study)
        return {
            label: curves_of(label, self._lines(self.labels[label]), priors.get(label.removeprefix("own ")))
            for label in self.shown
        }

    def _diverging(self) -> float:
        """The share of the draws of a sampler in unison that diverged."""
        found = self.metrics.get(self.runs[0].path)
        if found is None or "diverging" not in found:
            return 0.0
        later = found["step"].to_numpy() > self.plan.burn_in
        return float(found["diverging"].to_numpy()[:, later].mean()) if later.any() else 0.0

    def _agreement(self) -> tuple[list[Curve], str]:
        if self.plan.num_agents == 1:
            return [], "There is one agent."
        if self.plan.is_unison:
            return [], same_draws(self.histories, [self.labels[label] for label in self.followed])
        return distances(self.metrics, self.place.nodes)

    def _messages_words(self, are_there: bool, summary: Mapping[str, Any] | None) -> str:
        if are_there:
            return "Counted since each node's last start."
        if self.place.network is not None or self.place.own is not None:
            return "No node answers."
        if self.status[0]["engine"] == "peers":
            return ""
        spent = (
            f" Between nodes it would have taken {summary['rounds']:,} rounds."
            if summary and "rounds" in summary
            else ""
        )
        return f"All agents are in one program, so nothing is sent.{spent}"


def _labels(history: History) -> dict[str, Entry]:
    """What entries are called, in the model's order; those that are an agent's own begin with `own`."""
    names = history.names
    assert names is not None
    return {
        ("own " if name in names.private else "") + names.entry(name, place): (name, place)
        for name, place in history.entries[:_MOST_LABELS]
    }


def _title(plan: Plan, name: str) -> str:
    return str((plan.study or {}).get("name") or name)


def _subtitle(plan: Plan, engine: str) -> str:
    name = plan.graph.name.replace("_", " ")
    article = "an" if name[0] in "aeiou" else "a"
    network = f"{plan.num_agents} agents on {article} {name}{'' if name in _SHAPES else ' graph'}"
    chains = f"{plan.num_chains} chain{'s' if plan.num_chains > 1 else ''}"
    where = [_ENGINES[engine]] if engine in _ENGINES else []
    whose = network if plan.num_agents > 1 else "one agent"
    return ", ".join([whose, plan.sampler.method(plan.num_agents), chains, *where])
