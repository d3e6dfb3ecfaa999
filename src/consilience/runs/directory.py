"""A run's directory: made once, appended to while sampling, read by everything else.

What it holds:

    RUN/
      plan.toml         the resolved plan
      provenance.json   version, commit, packages, machine, command
      status.json       how far the run is, and why it stopped
      draws.zarr/       group `posterior`: every variable with dimensions (chain, agent, draw, …)
      metrics.zarr/     what was measured over time, with dimensions (chain, time)
      checkpoints/      states to resume from
      derived.zarr/     what the problem derives from its parameters, for every draw
      checks.json, loo.json, loo.zarr/   what the model says of the rows that are here (answers.py)
      summary.json      the results in numbers (docs/reference/summary.md); summary.csv: the table of parameters
      figures/*.png, report.html
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.engines.base import Storage
from consilience.errors import RunError
from consilience.kernel.parameters import Parameters
from consilience.plans import Plan
from consilience.runs.files import disk_errors, read_json, sync, sync_since, write_json, write_text
from consilience.runs.growing import GrowingGroup, Variable
from consilience.runs.provenance import provenance

if TYPE_CHECKING:
    import arviz
    import xarray

log = logging.getLogger("consilience")
_DRAFT_SECONDS = 60.0
FORMAT = 2
DERIVED = "derived"
"""The store beside the draws that holds what the problem derives from them."""
_LAST_VERSION = {1: "0.1.0"}
"""The last version that writes a format."""


class RunDirectory:
    """A run on disk.

    Attributes:
        path: the directory.
        plan: the plan the run follows.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "plan.toml").is_file():
            raise RunError(f"{self.path} does not hold a run: there is no plan.toml in it")
        self.plan = Plan.load(self.path / "plan.toml")
        self._whole_draws = 0  # up to here no file was missing
        self._opened: dict[str, xarray.Dataset] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {self.status['status']})"

    @classmethod
    @contextlib.contextmanager
    def created(
        cls,
        path: Path,
        plan: Plan,
        parameters: Parameters,
        storage: Storage,
        about: Mapping[str, Any],
        notes: Mapping[str, Any] | None = None,
    ) -> Iterator[None]:
        """Lay out a new run, where nothing may be yet, and hold it for writing from the moment that it is there.

        Args:
            path: the directory.
            plan: what the run follows.
            parameters: the layout of the model's parameters.
            storage: whose draws are stored, and what is measured.
            about: entries of its status: `engine`, `problem_name`, `data_digest`, and what else the engine wants.
            notes: what else the draws say of themselves: names that people know (`names.py`).
        """
        require_free(path)
        with contextlib.ExitStack() as held:
            with disk_errors(path):
                _remove_drafts(path)
                draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
                draft.mkdir(parents=True)
                held.enter_context(_locked(draft, path))
                _create_draws(draft / "draws.zarr", plan, parameters, storage, notes or {})
                create_metrics(draft / "metrics.zarr", plan, storage.metrics, storage.metric_times)
                status = {"format": FORMAT, "status": "running", "step": 0, "plan_digest": plan.digest(), **about}
                write_json(draft / "provenance.json", {**provenance(about["engine"]), "began": status})
                write_json(draft / "status.json", status)
                write_text(draft / "plan.toml", plan.to_toml())
                sync_since(draft, 0.0)
                _appear(draft, path)
            yield

    @property
    def status(self) -> dict[str, Any]:
        """How far the run is: `status` is running, interrupted, failed or complete.

        If its file is damaged, the status with which the run began: to resume it finds out the rest.
        """
        try:
            return read_json(self.path / "status.json")
        except RunError as error:
            began = read_json(self.path / "provenance.json").get("began")
            if began is None:
                raise
            log.warning("%s; the run is taken for one that was interrupted", error)
            return {**began, "status": "interrupted"}

    def update_status(self, **changes: Any) -> None:
        """Change entries of the status."""
        with disk_errors(self.path):
            write_json(self.path / "status.json", {**self.status, **changes})

    @property
    def complete(self) -> bool:
        """Whether all steps were made."""
        return self.status["status"] == "complete"

    @property
    def summary(self) -> dict[str, Any]:
        """The results in numbers."""
        return read_json(self.path / "summary.json")

    @property
    def draws(self) -> xarray.Dataset:
        """All draws, opened lazily, dimensions `(chain, agent, draw, …)`."""
        return self._once("draws", self._open_draws)

    @property
    def metrics(self) -> xarray.Dataset:
        """Measurements over time, dimensions `(chain, time)`."""
        return self._once("metrics", lambda: _open(self.path / "metrics.zarr", cache=self._opened is None))

    @contextlib.contextmanager
    def opened_once(self) -> Iterator[None]:
        """While it lasts, draws and metrics of a run that does not change are not opened anew each time."""
        if self._opened is not None:
            yield
            return
        self._opened = {}
        try:
            yield
        finally:
            self._opened = None

    def _once(self, name: str, opened: Callable[[], xarray.Dataset]) -> xarray.Dataset:
        """A data set of its own for each who asks, on arrays that were opened once where nothing changes."""
        known = self._opened
        if known is None:
            return opened()
        if name not in known:
            known[name] = opened()
        return known[name].copy()

    def _open_draws(self) -> xarray.Dataset:
        group = self.draw_group()
        if group.length != self._whole_draws:
            group.require_whole()
            self._whole_draws = group.length
        found = _open(self.path / "draws.zarr", "posterior", cache=self._opened is None)
        numbers = found["agent"].to_numpy() if "agent" in found.dims else np.zeros(0)
        return found if (np.diff(numbers) > 0).all() else found.isel(agent=np.argsort(numbers))

    @property
    def derived(self) -> xarray.Dataset | None:
        """What the problem derives from its parameters, for every draw, if it does."""
        return self.read_beside(DERIVED) if (self.path / f"{DERIVED}.zarr").exists() else None

    @property
    def latest_draws(self) -> xarray.Dataset:
        """The draws of one posterior: all, or those since agents were last lost or came back, if that changed it."""
        draws = self.draws
        if "participation" not in draws.coords or not self.plan.begins_anew_without:
            return draws
        members = draws["participation"].to_numpy()
        members = members if members.ndim == 2 else members[0]  # of the first node, if several were merged
        others = np.flatnonzero((members != members[-1:]).any(1))
        return draws.isel(draw=slice(others[-1] + 1 if len(others) else 0, None))

    @property
    def draw_weights(self) -> np.ndarray:
        """`(draws,)` how much Langevin time each draw stands for."""
        draws = self.draws
        return draws["weight" if "weight" in draws.coords else "step_size"].to_numpy()  # its name in format 1

    def require_current_format(self) -> None:
        """Check that this version can continue the run; older ones it only reads."""
        found = self.status.get("format", 1)
        if found == FORMAT:
            return
        if found > FORMAT:
            raise RunError(f"{self.path} has format {found}, which a later version of Consilience made: use that one")
        raise RunError(
            f"{self.path} has format {found}, which this version reads but does not resume: resume it with "
            f"consilience {_LAST_VERSION[found]}, or start a new run"
        )

    @property
    def agent_numbers(self) -> list[int]:
        """The agents whose draws are here: all, or on a node its own."""
        draws = self.draws
        if "agent" in draws.dims:
            return draws["agent"].to_numpy().tolist()
        own = self.status.get("agent")
        return list(range(self.plan.num_agents)) if own is None else [own]

    @property
    def agents(self) -> list[xarray.Dataset]:
        """Each agent's own draws, dimensions `(chain, draw, …)`; in unison, shared ones are everybody's."""
        draws = self.draws
        if "agent" not in draws.dims:
            return [draws] * len(self.agent_numbers)
        return [draws.isel(agent=place) for place in range(draws.sizes["agent"])]

    def network_average(self) -> xarray.Dataset:
        """The draws of `w̄`, the average over agents, dimensions `(chain, draw, …)`; private parameters have none."""
        draws = self.draws
        shared = draws.drop_vars(private_names(draws))
        return shared.mean("agent") if any("agent" in one.dims for one in shared.data_vars.values()) else shared

    def to_arviz(self) -> arviz.InferenceData:
        """The draws as ArviZ's InferenceData; `agent` is one more dimension of what agents have each for themselves.

        Names that people know are coordinates, and derived quantities are there too. Of a sampler in unison,
        what was measured with each draw is in `sample_stats`.
        """
        import arviz

        posterior, derived = self.draws.load(), self.derived
        if derived is not None:
            posterior = posterior.assign(derived.load().data_vars)
        for name, labels in posterior.attrs.get("labels", {}).items():
            if name in posterior and posterior[name].shape[-1] == len(labels):
                posterior = posterior.assign_coords({posterior[name].dims[-1]: labels})
        posterior = posterior.transpose("chain", "draw", *(one for one in ("agent",) if one in posterior.dims), ...)
        if not self.plan.is_unison:
            return arviz.InferenceData(posterior=posterior)
        return arviz.InferenceData(posterior=posterior, sample_stats=self.sample_stats())

    def sample_stats(self) -> xarray.Dataset:
        """What was measured with each draw of a sampler in unison: `(chain, draw)`, by ArviZ's names.

        Those of the warm-up are in `metrics`.
        """
        measured = self.metrics.load()
        measured = measured.isel(time=measured["step"].to_numpy() > self.plan.burn_in)
        names = {"leapfrogs": "n_steps", "depth": "tree_depth"}
        found = measured.reset_coords(drop=True).rename({"time": "draw", **names})
        return found.assign(diverging=found["diverging"].astype(bool)).assign_coords(
            draw=np.arange(found.sizes["draw"])
        )

    def store_beside(
        self,
        name: str,
        variables: Mapping[str, Any],
        coordinates: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what an experiment found, as `NAME.zarr`; variables are pairs of dimensions and values."""
        import xarray

        found = xarray.Dataset(variables, coordinates, attributes)
        found.to_zarr(self.path / f"{name}.zarr", mode="w", consolidated=False)  # Zarr 3 has no agreed form of it

    def read_beside(self, name: str) -> xarray.Dataset:
        """What `store_beside` kept."""
        import xarray

        return xarray.open_zarr(self.path / f"{name}.zarr", chunks=None, consolidated=False)

    def draw_group(self) -> GrowingGroup:
        """The draws, to append to."""
        return GrowingGroup(self.path / "draws.zarr", "draw", "posterior")

    def metric_group(self) -> GrowingGroup:
        """The metrics, to append to."""
        return GrowingGroup(self.path / "metrics.zarr", "time")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for writing, so that no second process writes to it."""
        with _locked(self.path, self.path):
            yield


@contextlib.contextmanager
def _locked(place: Path, path: Path) -> Iterator[None]:
    """Hold the directory of a run, wherever it stands now."""
    with disk_errors(path):
        lock = (place / ".lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{path} is being sampled by another process: wait for it") from None
        yield


def _remove_drafts(path: Path) -> None:
    """Remove what processes left that were killed while they laid out this run; one that lives holds its draft."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        with contextlib.suppress(RunError, OSError):
            if time.time() - draft.stat().st_mtime > _DRAFT_SECONDS:
                with _locked(draft, path):
                    shutil.rmtree(draft)


def _appear(draft: Path, path: Path) -> None:
    """Give a run its name: it is there as a whole or not at all."""
    try:
        os.rename(draft, path)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise RunError(f"{path} was made by another process just now: wait for it") from None
        raise
    sync(path.parent)


def require_free(path: Path) -> None:
    """Check that a new run may be made at `path`."""
    if any((path / name).exists() for name in ("plan.toml", "series.json", "study.json")):
        raise RunError(
            f"{path} already holds a run: choose another directory, or continue it with `consilience resume {path}`"
        )
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file: choose a directory for the run")
    if path.is_dir() and any(path.iterdir()):
        raise RunError(f"{path} is not empty: choose a new directory for the run")


def _create_draws(path: Path, plan: Plan, parameters: Parameters, storage: Storage, notes: Mapping[str, Any]) -> None:
    lead = {"chain": plan.num_chains, "agent": len(storage.agents), "draw": plan.num_stored}

    def variable(name: str, shape: tuple[int, ...]) -> Variable:
        leading = [one for one in lead if one != "agent" or name not in storage.without_agents]
        return Variable(
            (*leading, *(f"{name}_dim_{axis}" for axis in range(len(shape)))),
            (*(lead[one] for one in leading), *shape),
            plan.dtype,
            {"agent": storage.agents_per_file},
        )

    named = zip(parameters.names, parameters.shapes, strict=True)
    variables = {name: variable(name, shape) for name, shape in named}
    variables["draw"] = Variable(("draw",), (plan.num_stored,), "int64")
    variables["step"] = Variable(("draw",), (plan.num_stored,), "int64")
    variables["weight"] = Variable(("draw",), (plan.num_stored,), "float64")
    if storage.presence:
        variables["participation"] = Variable(("draw", "member"), (plan.num_stored, plan.num_agents), "bool")
    numbers = {"chain": (("chain",), np.arange(plan.num_chains))}
    if storage.without_agents != set(parameters.names):
        numbers["agent"] = (("agent",), np.array(storage.agents))
    note: dict[str, Any] = {
        "coordinates": "step weight participation" if storage.presence else "step weight",
        "inference_library": "consilience",
        "parameters": list(parameters.names),  # in the model's order, which a group of arrays does not keep
        **notes,
    }
    if parameters.private:
        note["private"] = [name for name in parameters.names if name in parameters.private]
    GrowingGroup.create(path, "draw", variables, numbers, note, group="posterior")


def private_names(draws: xarray.Dataset) -> list[str]:
    """The parameters of a run's draws that are private to an agent."""
    return list(draws.attrs.get("private", []))


def create_metrics(path: Path, plan: Plan, names: Sequence[str], times: int) -> GrowingGroup:
    """A new store for measurements at so many times."""
    variables = {name: Variable(("chain", "time"), (plan.num_chains, times), plan.dtype) for name in names}
    variables["step"] = Variable(("time",), (times,), "int64")
    chains = {"chain": (("chain",), np.arange(plan.num_chains))}
    return GrowingGroup.create(path, "time", variables, chains, {"coordinates": "step"})


def _open(path: Path, group: str | None = None, cache: bool = True) -> xarray.Dataset:
    """A data set whose arrays, once read, stay in memory with it if it is to `cache` them."""
    import xarray

    return xarray.open_dataset(path, engine="zarr", group=group, consolidated=True, chunks=None, cache=cache)
