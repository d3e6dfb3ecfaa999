"""A run that is stopped at any moment, resumed, has the same draws to the bit as one that was not."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from consilience.engines.base import Alone, PlainForm
from consilience.engines.simulate import Simulation
from consilience.errors import Interrupted, RunError, StorageError
from consilience.runs import directory
from consilience.runs.checkpoints import Checkpoints
from consilience.runs.files import sync_since
from consilience.runs.growing import GrowingGroup
from tests.gaussian import regression

PROBLEM = regression([5, 8, 13])
PLAN = cs.Plan(
    graph=cs.graphs.ring(3), sampler=cs.dula(0.01, 0.2), num_steps=60_000, store_every=10, burn_in=77, batch_size=4
)


class StopAt:
    """Ask for a stop, as Ctrl-C does, once a run has come so far.

    A segment is at most eight times as long as the one before it, so a stop asked for early comes before the end.
    """

    def __init__(self, step):
        self.step = step

    def __call__(self, progress):
        if progress.step >= self.step:
            self.step = 10**9
            os.kill(os.getpid(), signal.SIGINT)


def same(first, second):
    for name in first.draws.variables:
        assert (first.draws[name].values == second.draws[name].values).all(), name
    assert (first.metrics["consensus_error"].values == second.metrics["consensus_error"].values).all()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return cs.sample(PROBLEM, PLAN, tmp_path_factory.mktemp("whole") / "run")


def test_ctrl_c_then_resume(whole, tmp_path):
    with pytest.raises(Interrupted, match="consilience resume"):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(1_000))
    stopped = cs.Run(tmp_path / "run")
    assert stopped.status["status"] == "interrupted"
    assert 0 < stopped.draws.sizes["draw"] < PLAN.num_stored
    assert np.isfinite(stopped.draws["w"].values).all()
    with pytest.raises(Interrupted):
        cs.resume(tmp_path / "run", PROBLEM, progress=StopAt(5_000))
    same(cs.resume(tmp_path / "run", PROBLEM), whole)
    assert cs.Run(tmp_path / "run").complete


@pytest.mark.parametrize("what", [
    *(pytest.param(what, marks=pytest.mark.slow(reason="one more damaged run")) for what in ("delete", "truncate")),
    "flip a bit",
])  # fmt: skip
def test_a_damaged_checkpoint_is_skipped_and_said(whole, tmp_path, what, caplog):
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(5_000), checkpoint_seconds=0.0)
    steps = sorted(int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert len(steps) == 2
    newest = tmp_path / "run" / "checkpoints" / str(steps[-1]) / "state"
    files = sorted((path for path in newest.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    for path in files:
        content = bytearray(path.read_bytes())
        if what == "delete":
            path.unlink()
        elif what == "truncate":
            path.write_bytes(content[: len(content) // 2])
        elif content:
            content[len(content) // 2] ^= 0x10
            path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "consilience"):
        resumed = cs.resume(tmp_path / "run", PROBLEM)
    assert f"checkpoint at step {steps[-1]} is damaged" in caplog.text
    same(resumed, whole)


@pytest.mark.slow(reason="one more run from its beginning")
def test_without_any_good_checkpoint_it_begins_again(whole, tmp_path, caplog):
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(5_000), checkpoint_seconds=0.0)
    for path in (tmp_path / "run" / "checkpoints").rglob("manifest.ocdbt"):
        path.write_bytes(b"nonsense")
    same(cs.resume(tmp_path / "run", PROBLEM), whole)


def test_a_digest_that_differs_is_damage(tmp_path, caplog):
    """A checkpoint that reads back, but not as it was written, is refused too."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", PlainForm(np.zeros(3)), Alone())
    checkpoints.save(10, np.arange(3.0), {"draws": 1})
    checkpoints.save(20, np.arange(4.0)[:3] + 1, {"draws": 2})
    assert checkpoints.latest().step == 20
    note = next((tmp_path / "checkpoints" / "20" / "note").glob("metadata*"))
    content = json.loads(note.read_text())
    note.write_text(json.dumps({**content, "digest": "0" * 64}))
    found = checkpoints.latest()
    checkpoints.close()
    assert found.step == 10
    assert found.state.tolist() == [0, 1, 2]


@pytest.mark.slow(reason="one more run with many checkpoints")
def test_a_write_that_fails_once_spoils_nothing_that_comes_later(whole, tmp_path, monkeypatch):
    """The segment after the failed one must not take its place; resumed, the draws are the right ones."""
    write, calls = GrowingGroup.write, []

    def fail_once(self, values, *where):
        calls.append(self.dimension)
        if calls.count("draw") == 2 and calls[-1] == "draw":
            raise OSError(28, "No space left on device")
        write(self, values, *where)

    monkeypatch.setattr(GrowingGroup, "write", fail_once)
    with pytest.raises(StorageError, match="No space left"):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", checkpoint_seconds=0.0)
    same(cs.resume(tmp_path / "run", PROBLEM), whole)


def test_a_chain_that_diverges_after_a_failed_write_adds_nothing(tmp_path, monkeypatch):
    """What was sampled before it diverged must not take the place of draws that could not be written."""
    write, failed, segments = GrowingGroup.write, threading.Event(), []

    def fail_first(self, values, *where):
        if self.dimension == "draw" and not failed.is_set():
            failed.set()
            raise OSError(28, "No space left on device")
        write(self, values, *where)

    def third_diverges(self, state):
        segments.append(state)  # the first has no draws, those of the second cannot be written
        return len(segments) < 3 or not failed.wait(60)

    monkeypatch.setattr(GrowingGroup, "write", fail_first)
    monkeypatch.setattr(Simulation, "is_finite", third_diverges)
    monkeypatch.setattr(Simulation, "find_diverged", lambda self, state, first, steps: (first + steps, 0, 0))
    with pytest.raises(StorageError, match="No space left"):
        cs.sample(PROBLEM, PLAN, tmp_path / "run")
    assert cs.Run(tmp_path / "run").draw_group().length == 0


@pytest.mark.parametrize("content", [
    "", *(pytest.param(one, marks=pytest.mark.slow(reason="one more damaged run")) for one in ("{", None)),
])  # fmt: skip
def test_a_damaged_status_is_found_out_again(whole, tmp_path, content, caplog):
    """A power cut may leave it empty; what the run began with is known, and the rest is in checkpoints."""
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(1_000))
    status = tmp_path / "run" / "status.json"
    status.unlink() if content is None else status.write_text(content)
    same(cs.resume(tmp_path / "run", PROBLEM), whole)
    assert "taken for one that was interrupted" in caplog.text
    assert cs.Run(tmp_path / "run").complete


def test_what_is_relied_upon_is_on_the_disk_first(tmp_path, monkeypatch):
    """A power cut must not leave a name without its content: files are synced before they get their name, and draws
    before the checkpoint that counts on them."""
    synced, fsync, replace, save = set(), os.fsync, os.replace, Checkpoints.save
    checkpoints = []

    def note(descriptor):
        fsync(descriptor)
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    def only_synced(source, target):
        if str(source) == f"{target}.partial":  # ours; Zarr's are synced before the run has its name
            assert str(source) in synced, f"{target} was replaced by what is not on the disk"
        replace(source, target)

    def after_draws(self, step, state, note):
        files = [path for path in (tmp_path / "run" / "draws.zarr").rglob("c/*") if path.is_file()]
        assert files
        assert {str(path) for path in files} <= synced
        save(self, step, state, note)
        made = tmp_path / "run" / "checkpoints" / str(step)
        assert {str(path) for path in made.rglob("*") if path.is_file()} <= synced
        checkpoints.append(step)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr("consilience.runs.files.os.replace", only_synced)
    monkeypatch.setattr(Checkpoints, "save", after_draws)
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(5_000))
    assert checkpoints
    assert str(tmp_path / "run" / "status.json.partial") in synced


def test_files_that_vanish_while_they_are_synced_do_no_harm(tmp_path, monkeypatch):
    """The first process of a team replaces a file while another one syncs what is there."""
    (tmp_path / "draws").write_text("1")
    (tmp_path / "zarr.json.partial").write_text("1")
    stat = Path.stat

    def gone(path, **options):
        if path.name == "draws":
            path.unlink(missing_ok=True)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", gone)
    sync_since(tmp_path, 0.0)
    assert not (tmp_path / "draws").exists()


def test_what_a_killed_process_left_of_a_checkpoint_is_removed(tmp_path):
    stale = tmp_path / "checkpoints" / "30.orbax-checkpoint-tmp-7"
    stale.mkdir(parents=True)
    checkpoints = Checkpoints(tmp_path / "checkpoints", PlainForm(np.zeros(3)), Alone())
    checkpoints.save(40, np.arange(3.0), {"draws": 1})
    checkpoints.close()
    assert not stale.exists()


def test_a_directory_that_nobody_may_write_to_is_told(tmp_path, monkeypatch):
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(1_000))

    def refuse(source, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("consilience.runs.files.os.replace", refuse)
    with pytest.raises(StorageError, match="Permission denied; let this user write there"):
        cs.resume(tmp_path / "run", PROBLEM)


@pytest.mark.slow(reason="one more run")
def test_draws_whose_file_is_gone_are_named(tmp_path):
    run = cs.sample(PROBLEM, PLAN.replace(num_steps=2_000), tmp_path / "run")
    (run.path / "draws.zarr" / "posterior" / "w" / "c" / "0" / "0" / "0" / "0").unlink()
    with pytest.raises(RunError, match=r"is missing, and with it w of chain 0 to 0, agent 0 to 2, draw 0 to 191"):
        _ = cs.Run(tmp_path / "run").draws


def test_a_run_is_held_from_the_moment_it_is_there(tmp_path, monkeypatch):
    """Two processes that begin one run: one of them makes it, the other one says so."""
    rename, told = os.rename, []

    def late(draft, path):
        rename(draft, path)
        with pytest.raises(RunError, match="another process") as error:
            cs.resume(tmp_path / "run", PROBLEM)
        told.append(str(error.value))

    monkeypatch.setattr(os, "rename", late)
    cs.sample(PROBLEM, PLAN.replace(num_steps=2_000), tmp_path / "run")
    assert told
    with pytest.raises(RunError, match="made by another process just now"):
        directory._appear(tmp_path / "draft", draft_beside(tmp_path))


def draft_beside(place):
    """A draft of a run, and the run that was quicker."""
    (place / "draft").mkdir()
    return place / "run"


def test_a_hole_in_the_draws_is_not_resumed(tmp_path):
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(1_000))
    (note,) = (tmp_path / "run" / "checkpoints").glob("*/note/metadata*")
    content = json.loads(note.read_text())
    note.write_text(json.dumps({**content, "draws": content["draws"] - 1}))
    with pytest.raises(RunError, match="draws are missing"):
        cs.resume(tmp_path / "run", PROBLEM)


def test_a_checkpoint_that_cannot_be_written_is_a_storage_error(whole, tmp_path, monkeypatch):
    def refuse(self, step, args):
        raise ValueError("OUT_OF_RANGE: File too large")

    with monkeypatch.context() as patched:
        patched.setattr("orbax.checkpoint.CheckpointManager.save", refuse)
        with pytest.raises(StorageError, match=r"File too large.*consilience resume"):
            cs.sample(PROBLEM, PLAN, tmp_path / "run", checkpoint_seconds=0.0)
    same(cs.resume(tmp_path / "run", PROBLEM), whole)


def test_ctrl_c_in_the_last_segment_is_heard(whole, tmp_path):
    with pytest.raises(Interrupted, match="all steps are stored"):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(PLAN.num_steps))
    same(cs.resume(tmp_path / "run", PROBLEM), whole)
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow(reason="one more run from its beginning")
def test_a_run_that_was_not_laid_out_to_the_end_leaves_its_place_free(whole, tmp_path, monkeypatch):
    def killed(engine):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("consilience.runs.directory.provenance", killed)
        with pytest.raises(KeyboardInterrupt):
            cs.sample(PROBLEM, PLAN, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    same(cs.sample(PROBLEM, PLAN, tmp_path / "run"), whole)


def test_other_data_or_another_plan_is_refused(tmp_path):
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(5_000))
    with pytest.raises(RunError, match="same data"):
        cs.resume(tmp_path / "run", regression([5, 8, 13], seed=1))
    (tmp_path / "run" / "plan.toml").write_text(PLAN.replace(seed=9).to_toml())
    with pytest.raises(RunError, match="changed after the run began"):
        cs.resume(tmp_path / "run", PROBLEM)


def test_two_processes_do_not_write_one_run(tmp_path):
    with pytest.raises(Interrupted):
        cs.sample(PROBLEM, PLAN, tmp_path / "run", progress=StopAt(5_000))
    run = cs.Run(tmp_path / "run")
    with run.locked(), pytest.raises(RunError, match="another process"):
        cs.resume(tmp_path / "run", PROBLEM)


SCRIPT = """
import sys
from consilience.experiments import EXPERIMENTS
from consilience.sampling.sample import resume, sample
if sys.argv[1] == "sample":
    gmm = EXPERIMENTS["gmm"]
    plan = gmm.plan(3, num_steps=STEPS).replace(problem=None, num_chains=1)
    sample(gmm.problem(3), plan, sys.argv[2], checkpoint_seconds=0.05)
else:
    resume(sys.argv[2], EXPERIMENTS["gmm"].problem(3), checkpoint_seconds=0.05)
""".replace("STEPS", "3_000_000")


@pytest.mark.slow(reason="real processes, killed again and again")
def test_kill_at_random_moments_then_resume(tmp_path):
    """`kill -9` again and again, also while draws and checkpoints are written; the draws are the same in the end."""

    def start(verb, path):
        return subprocess.Popen([sys.executable, "-W", "ignore", "-c", SCRIPT, verb, str(path)])

    undisturbed = start("sample", tmp_path / "whole")
    assert undisturbed.wait(timeout=240) == 0
    path, rng, kills = tmp_path / "killed", np.random.default_rng(0), 0
    for attempt in range(12):
        process = start("resume" if (path / "plan.toml").exists() else "sample", path)
        deadline = time.monotonic() + 60
        length = _drawn(path)
        while process.poll() is None and _drawn(path) <= length and time.monotonic() < deadline:
            time.sleep(0.01)  # until it has begun to add to what was there
        time.sleep(rng.uniform(0, 0.4))
        if process.poll() is None and attempt < 4:
            process.kill()
            kills += 1
            process.wait()
            if (path / "plan.toml").exists():
                values = cs.Run(path).draws["theta_1"].values
                assert np.isfinite(values).all()  # readers see finished draws only, at any moment
        elif process.wait(timeout=240) == 0:
            break
    assert kills >= 3
    same(cs.Run(path), cs.Run(tmp_path / "whole"))


def _drawn(path):
    try:
        document = json.loads((path / "draws.zarr" / "zarr.json").read_text())
        return document["consolidated_metadata"]["metadata"]["posterior/theta_1"]["shape"][2]
    except (OSError, KeyError):
        return 0
