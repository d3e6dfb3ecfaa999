import json
import os
import shutil
import subprocess

import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import consilience as cs
from consilience.errors import DivergedError, InputError, RunError, StorageError
from tests.gaussian import regression

PROBLEM = regression([5, 8, 13])


def plan(**changes):
    entries = {"graph": cs.graphs.ring(3), "sampler": cs.dula(0.01, 0.2), "num_steps": 2000, "store_every": 10}
    return cs.Plan(**{**entries, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return cs.sample(PROBLEM, plan(num_chains=2, burn_in=500), tmp_path_factory.mktemp("runs") / "run")


def test_the_directory_explains_itself(run):
    names = {path.name for path in run.path.iterdir()}
    assert {"plan.toml", "provenance.json", "status.json", "draws.zarr", "metrics.zarr", "summary.json"} <= names
    provenance = json.loads((run.path / "provenance.json").read_text())
    assert provenance["consilience"] == cs.__version__
    assert provenance["packages"]["jax"]
    assert provenance["machine"]["cores"] == os.cpu_count()
    assert cs.Plan.load(run.path / "plan.toml") == run.plan


def test_xarray_and_arviz_read_the_draws_as_they_are(run):
    import arviz

    plain = xarray.open_zarr(run.path / "draws.zarr", group="posterior")
    assert plain["w"].dims == ("chain", "agent", "draw", "w_dim_0")
    assert plain["w"].shape == (2, 3, 150, 2)
    tree = xarray.open_datatree(run.path / "draws.zarr", engine="zarr")
    data = arviz.InferenceData.from_datatree(tree)
    assert float(arviz.ess(data)["w"].min()) > 1
    assert run.to_arviz().posterior["w"].dims[:3] == ("chain", "draw", "agent")
    assert (plain["step"].values == 500 + 10 * (1 + np.arange(150))).all()
    assert (plain["weight"].values == 0.01).all()
    assert (run.draw_weights == 0.01).all()


def test_what_is_opened_once_is_the_same_for_all_who_ask(run):
    draws, metrics = run.draws.load(), run.metrics.load()
    with run.opened_once(), run.opened_once():
        changed = run.draws
        changed["w"] = 0 * changed["w"]
        assert run.draws.identical(draws)
        assert run.metrics.load().identical(metrics)
        assert run.draws["w"].variable._data is run.draws["w"].variable._data
    assert run.draws.identical(draws)


def test_views_of_agents_and_of_the_average(run):
    assert len(run.agents) == 3
    assert run.agents[2]["w"].dims == ("chain", "draw", "w_dim_0")
    average = run.network_average()["w"].values
    np.testing.assert_allclose(average, run.draws["w"].values.mean(1), rtol=1e-5)


def test_summary_holds_what_is_documented(run):
    summary = run.summary
    assert summary["num_agents"] == 3
    assert summary["num_chains"] == 2
    assert summary["num_steps"] == 2000
    assert summary["seed"] == 0
    assert set(summary["timing"]) == {"compile_seconds", "sampling_seconds", "steps_per_second"}
    assert summary["timing"]["steps_per_second"] > 0
    assert summary["parameters"] == ["w[0]", "w[1]"]
    positions = np.moveaxis(run.draws["w"].values, 1, 2)
    assert summary["agents"][1]["mean"] == pytest.approx(positions[:, :, 1].mean((0, 1)).tolist(), rel=1e-4)
    late = run.metrics["consensus_error"].values[:, run.metrics["step"].values > 1800]
    assert summary["consensus_error"] == pytest.approx(late.mean(), rel=1e-4)


def test_the_same_plan_gives_the_same_draws(run, tmp_path):
    again = cs.sample(PROBLEM, run.plan, tmp_path / "again")
    assert (again.draws["w"].values == run.draws["w"].values).all()


def test_a_directory_that_holds_something_is_not_touched(run, tmp_path):
    with pytest.raises(RunError, match="already holds a run"):
        cs.sample(PROBLEM, plan(), run.path)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "love.txt").write_text("keep")
    with pytest.raises(RunError, match="not empty"):
        cs.sample(PROBLEM, plan(), tmp_path / "letters")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        cs.sample(PROBLEM, plan(), tmp_path / "file")
    with pytest.raises(RunError, match="does not hold a run"):
        cs.Run(tmp_path / "letters")
    with pytest.raises(InputError, match="unknown engine"):
        cs.sample(PROBLEM, plan(), tmp_path / "new", engine="warp")


def test_a_directory_that_cannot_be_written_is_said():
    with pytest.raises(StorageError, match="cannot write to /proc/run"):
        cs.sample(PROBLEM, plan(), "/proc/run")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1.5 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs rights that this user does not have")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_stops_the_run_and_keeps_what_was_stored(small_disk, tmp_path):
    long = plan(num_steps=400_000, store_every=2)  # 4.8 MB of draws
    with pytest.raises(StorageError, match=r"No space left on device.*safe.*consilience resume"):
        cs.sample(PROBLEM, long, small_disk / "run")
    stopped = cs.Run(small_disk / "run")
    kept = stopped.draws["w"].values
    assert np.isfinite(kept).all()
    moved = tmp_path / "moved"
    subprocess.run(["cp", "-r", str(small_disk / "run"), str(moved)], check=True)
    resumed = cs.resume(moved, PROBLEM)
    assert (resumed.draws["w"].values[:, :, : kept.shape[2]] == kept).all()
    assert resumed.complete


def test_divergence_names_agent_chain_and_step_and_keeps_the_draws_before(tmp_path):
    """Agent 1's likelihood is repulsive and flat near 0: it diverges after a while."""
    problem = cs.Problem(
        log_likelihood=lambda w, x: x * (w**4 - 0.05 * w**2),
        log_prior=lambda w: -0.05 * w**2,
        init=lambda key: jnp.asarray(0.3),
        shards=[np.zeros(2, np.float32), np.ones(2, np.float32), np.zeros(2, np.float32)],
    )
    with pytest.raises(DivergedError, match=r"agent 1 of chain \d diverged at step") as error:
        cs.sample(problem, plan(num_steps=200_000, num_chains=2, store_every=1), tmp_path / "run")
    run = cs.Run(tmp_path / "run")
    step = run.status["step"]
    assert f"step {step:,}" in str(error.value)
    assert run.status["status"] == "failed"
    assert run.draws.sizes["draw"] == step - 1
    assert np.isfinite(run.draws["w"].values).all()
    assert np.isfinite(run.metrics["consensus_error"].values).all()


def as_format_1(run, place):
    """A copy of a run as version 0.1.0 left it, where the draws' weights were called step sizes."""
    shutil.copytree(run.path, place)
    posterior = place / "draws.zarr" / "posterior"
    (posterior / "weight").rename(posterior / "step_size")
    for path in (posterior / "zarr.json", place / "draws.zarr" / "zarr.json"):
        text = path.read_text().replace("posterior/weight", "posterior/step_size")
        path.write_text(text.replace("step weight", "step step_size"))
    old = cs.Run(place)
    old.update_status(format=1)
    return old


def test_a_run_of_an_older_format_is_read_and_reported_but_not_resumed(run, tmp_path):
    old = as_format_1(run, tmp_path / "old")
    assert "weight" not in old.draws.coords
    assert (old.draw_weights == run.draw_weights).all()
    assert old.report().exists()
    (old.path / "summary.json").unlink()
    with pytest.raises(RunError, match=r"format 1, which this version reads .* consilience 0\.1\.0"):
        cs.resume(old.path, PROBLEM)
    old.update_status(format=99)
    with pytest.raises(RunError, match="a later version of Consilience made"):
        cs.resume(old.path, PROBLEM)


def test_temporary_runs_need_no_directory():
    run = cs.sample(PROBLEM, plan())
    assert run.complete
    assert run.path.name.startswith("consilience-")
