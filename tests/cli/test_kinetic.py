"""`consilience run … --sampler kinetic` as a user meets it: no number is given, on every engine."""

import numpy as np
import pytest

import consilience as cs
from tests.cli.test_commands import call

SILOS = "examples.silos:problem"
TABLE = ("baseline", "effect", "noise", "97.5 %", "between agents", "R-hat")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("kinetic") / "run"
    return path, call("run", SILOS, "--sampler", "kinetic", "--seed", 1, "--out", path)


def test_it_stops_when_it_has_converged_and_shows_what_it_found(finished):
    """With neither draws nor step size said. Whether it converges within 10,000 draws is not left to chance: 400
    effective draws take about a thousand."""
    path, done = finished
    shown, run = done.stdout, cs.Run(path)
    assert shown.strip().splitlines()[-1] == f"Report: {path / 'report.html'}"
    assert all(name in shown for name in TABLE)
    assert "Converged: R-hat is at most 1.0" in shown
    assert "Corrected kinetic Langevin: step size " in shown
    assert "for one effective draw" in shown
    assert "Left by step size and exchanges, by the exact law of a normal posterior: means < 0.001 sd off" in shown
    assert run.summary["converged"]
    assert run.plan.stops_itself
    assert run.summary["num_draws"] < run.plan.max_draws
    assert run.summary["num_draws"] == run.draws.sizes["draw"]
    found = run.summary["adaptation"]
    assert 0.1 < found["step_size"] < 1.0
    assert np.abs(found["predicted"]["variance_error"]).max() < 0.1
    page = (path / "report.html").read_text()
    assert "Found by the warm-up, from sums over the network" in page
    assert "What errors are left" in page
    assert (path / "figures" / "warmup.png").exists()


def test_a_check_says_before_what_the_run_says_after(finished):
    done = call("check", SILOS, "--sampler", "kinetic")
    line = next(line for line in done.stdout.splitlines() if "errors left: " in line)
    assert line.startswith("  ✓ errors left: means < 0.001 sd off, variances +")
    before = float(line.split("variances +")[1].split(" %")[0]) / 100
    after = max(cs.Run(finished[0]).summary["adaptation"]["predicted"]["variance_error"], key=abs)
    assert abs(before - after) < 0.03  # both are some per cent, of numbers that differ a little


@pytest.mark.slow(reason="two runs until they have converged, one of them a network of five processes")
@pytest.mark.parametrize("engine", ["mesh", "peers"])
def test_other_engines_have_the_same_draws_verdict_and_table(engine, finished, tmp_path):
    """The very command with another engine: it warms up, samples and stops as `simulate` did."""
    path = tmp_path / engine
    shown = call("run", SILOS, "--sampler", "kinetic", "--seed", 1, "--engine", engine, "--out", path).stdout
    assert all(name in shown for name in TABLE)
    assert "Converged: R-hat is at most 1.0" in shown
    one, other = cs.Run(finished[0]), cs.Run(path)
    assert other.summary["converged"]
    for name in [name for name in one.draws.data_vars if name not in ("step", "weight")]:
        np.testing.assert_allclose(other.draws[name], one.draws[name], rtol=1e-4, atol=1e-4)
    assert other.summary["adaptation"]["exchanges"] == one.summary["adaptation"]["exchanges"]
