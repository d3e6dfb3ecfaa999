"""`consilience run … --sampler kinetic` as a user meets it: no number is given, on every engine."""

import json

import numpy as np
import pytest

import consilience as cs
from tests.cli.test_commands import call

SILOS = "examples.silos:problem"
MINE = """
import numpy as np, consilience as cs

def problem(num_agents):
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(4 + 9 * agent, 2)) for agent in range(num_agents)]
    return cs.models.linear_regression([(x, x @ [1.0, -2.0] + rng.normal(size=len(x))) for x in rows])
"""


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
    assert all(name in shown for name in ("baseline", "effect", "noise", "97.5 %", "between agents", "R-hat"))
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


@pytest.mark.slow(reason="a run that spends its budget, and a network of three processes")
@pytest.mark.parametrize("engine", ["mesh", "peers"])
def test_other_engines_have_the_same_draws(engine, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    words = [
        "run",
        "mine:problem",
        "--agents",
        3,
        "--sampler",
        "kinetic",
        "--warmup",
        300,
        "--draws",
        40,
        "--chains",
        2,
    ]
    call(*words, "--out", "simulate", cwd=tmp_path)
    shown = call(*words, "--engine", engine, "--out", engine, cwd=tmp_path).stdout
    one, other = cs.Run(tmp_path / "simulate"), cs.Run(tmp_path / engine)
    for name in [name for name in one.draws.data_vars if name not in ("step", "weight")]:
        np.testing.assert_allclose(other.draws[name], one.draws[name], rtol=1e-4, atol=1e-4)
    assert "Not converged: " in shown
    assert json.loads((tmp_path / engine / "summary.json").read_text())["adaptation"]["exchanges"] > 0
