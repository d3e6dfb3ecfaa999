"""Samplers that tune themselves, from the command line."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import consilience as cs
from consilience.cli.display import _measured, _place, length_of
from consilience.runs.loop import Progress
from tests.cli.test_commands import call, error_of

SILOS, HOSPITALS = "examples.silos:problem", "examples.hospitals:problem"
UNTIL = cs.Plan(graph=cs.graphs.ring(5), sampler=cs.nuts())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("unison") / "run"
    return path, call("run", SILOS, "--warmup", 100, "--draws", 60, "--chains", 2, "--seed", 1, "--out", path)


def test_a_problem_of_ones_own_needs_no_step_sizes(finished):
    path, done = finished
    assert done.stdout.strip().splitlines()[-1] == f"Report: {path / 'report.html'}"
    assert "baseline" in done.stdout
    assert "onverged: " in done.stdout
    assert "theory failed" not in done.stderr
    run = cs.Run(path)
    assert (run.plan.sampler.kind, run.plan.graph.name, run.summary["num_draws"]) == ("nuts", "ring", 60)
    page = (path / "report.html").read_text()
    assert "Found by the warm-up" in page
    digest = run.summary["draws_digest"]
    assert digest in page
    assert f"Digest of the shared draws: {digest[:16]}" in done.stdout
    assert "NUTS in unison: step size " in done.stdout
    assert "for one effective draw" in done.stdout
    assert "MCSE" in done.stdout
    assert sum(run.summary["depths"]) == 2 * 60


def test_ahead_of_a_run(tmp_path):
    done = call("check", HOSPITALS)
    assert "✓ sums: 2 hops" in done.stdout
    assert "✓ masks" in done.stdout
    assert "! masks: of two agents" in call("check", "gmm", "--agents", 2, "--sampler", "nuts").stdout
    assert (
        "✗ private parameters: nuts does not take any" in call("check", HOSPITALS, "--sampler", "nuts", code=2).stdout
    )
    done = call("suggest", HOSPITALS, "--out", tmp_path / "plan.toml")
    assert "Nothing to suggest: hmc tunes itself" in done.stdout
    assert cs.Plan.load(tmp_path / "plan.toml").stops_itself
    assert json.loads(call("suggest", "gmm", "--sampler", "nuts", "--json").stdout)["practical"]["reasons"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["theory", SILOS], "say nothing about nuts: it tunes itself"),
        (["suggest", SILOS, "--proven"], "the theorems are about D-ULA"),
        (["suggest", SILOS, "--sampler", "sghmc"], "for how many steps of sghmc"),
        (["mesh", "plan", SILOS, "--sampler", "nuts"], "take --sampler dula"),
        (["run", "gmm", "--sampler", "nuts"], "name one network, with --agents"),
        (["run", HOSPITALS, "--sampler", "nuts"], "take hmc"),
        (["run", SILOS, "--draws", "2"], "greater than or equal to 4"),
    ],
)
def test_mistakes_say_what_to_do(arguments, words, tmp_path):
    out = [] if arguments[0] in ("suggest", "mesh") else ["--out", tmp_path / "out"]
    assert words in error_of(*arguments, *out)


def test_a_network_needs_no_numbers_and_nobodys_rows(tmp_path):
    call("network", "init", "--experiment", "examples.hospitals:hospital", "--agents", 3, "--out", tmp_path / "NET")
    plan = cs.Plan.load(tmp_path / "NET" / "plan.toml")
    assert (plan.sampler.kind, plan.num_agents, plan.masked) == ("hmc", 3, None)


@pytest.mark.slow(reason="two networks of processes")
def test_hospitals_on_every_engine_and_as_a_network_masked_or_not(tmp_path, monkeypatch):
    """Between engines the first draws are the same but for rounding; between networks all are, to the bit."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")  # they take longer than so few moves
    short, network = ["--warmup", 20, "--draws", 6, "--chains", 2, "--seed", 3], tmp_path / "NET"
    for engine in ("simulate", "mesh", "peers"):
        call("run", HOSPITALS, "--engine", engine, *short, "--out", tmp_path / engine)
    options = ["--experiment", "examples.hospitals:hospital", "--agents", 3, "--unmasked", "--out", network]
    call("network", "init", *options, *short)
    call("network", "up", network)
    simulate, mesh, masked = (cs.Run(tmp_path / name) for name in ("simulate", "mesh", "peers"))
    unmasked = cs.Run(network / "report")
    assert [run.plan.masked for run in (masked, unmasked)] == [None, False]
    for run in (mesh, masked, unmasked):
        for name, expected in simulate.draws.items():
            np.testing.assert_allclose(run.draws[name], expected, rtol=0, atol=1e-5)
    assert masked.summary["draws_digest"] == unmasked.summary["draws_digest"]


@pytest.mark.parametrize(
    ("plan", "step", "words"),
    [
        (UNTIL, 350, "warming up, 350 of 1,000"),
        (UNTIL, 1200, "200 draws, until converged"),
        (UNTIL.replace(num_draws=500), 1200, "200 of 500 draws"),
    ],
)
def test_the_bar_says_what_happens(plan, step, words):
    shown = _place(plan, Progress(step, plan.num_steps, 100.0, {"fewest_effective": 120.0, "worst_rhat": 1.02}))
    assert shown["rate"] == words
    assert 0 < shown["completed"] < shown["total"]


def test_the_bar_shows_what_is_measured():
    metrics = {
        "step_size": 0.21,
        "acceptance_rate": 0.8,
        "worst_rhat": 1.0234,
        "fewest_effective": 312.4,
        "energy": 3,
    }
    told = _measured(SimpleNamespace(metrics=metrics))
    assert told == "R-hat 1.023, 312 effective draws, acceptance 0.80"
    assert length_of(UNTIL).endswith("1,000 moves of warm-up, then until converged (at most 10,000 draws)")
