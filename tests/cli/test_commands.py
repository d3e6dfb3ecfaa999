"""The command line as a user meets it: real processes, their output and their exit codes."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import pytest

import consilience as cs
from consilience.cli import commands
from consilience.errors import RunError
from consilience.sampling import reproduction
from tests.command import Command

COMMAND = [sys.executable, "-m", "consilience.cli.main"]


def call(*arguments, cwd=None, code=0):
    process = Command(*arguments, cwd=cwd)
    stdout, stderr = process.communicate(300)
    assert process.returncode == code, stderr + stdout
    assert "Traceback" not in stderr
    return SimpleNamespace(stdout=stdout, stderr=stderr)


def error_of(*arguments, code=2, cwd=None):
    done = call(*arguments, code=code, cwd=cwd)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("Error: ")
    return lines[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    done = call(
        "run", "gmm", "--agents", 4, "--graph", "star", "--steps", 20_000, "--seed", 5, "--chains", 2, "--out", path
    )
    return path, done


def test_a_run_ends_with_its_table_verdict_page_and_report(finished):
    path, done = finished
    assert done.stdout.splitlines()[-2:] == [f"Watch: consilience watch {path}", f"Report: {path / 'report.html'}"]
    verdict = json.loads((path / "summary.json").read_text())["verdict"]
    assert done.stdout.index("agent 3") < done.stdout.index(verdict) < done.stdout.index("Watch: ")
    assert "network average" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # no colours or bars without a terminal
    assert "steps/s" not in done.stderr
    summary = json.loads((path / "summary.json").read_text())
    assert (summary["num_agents"], summary["seed"], summary["graph"]["kind"]) == (4, 5, "star")
    assert (path / "report.html").exists()


def test_json_for_machines(finished):
    path, _ = finished
    done = call("report", path, "--json")
    summary = json.loads(done.stdout)
    assert summary["report"] == str(path / "report.html")
    assert summary["agents"][0]["sinkhorn"] > 0
    assert done.stderr == f"Warning: {summary['verdict']} What to do: {summary['remedy']}.\n"


def test_what_has_not_converged_says_so_everywhere_and_what_to_do(finished):
    """20,000 steps are a fiftieth of what this mixture takes: a chain that converged would be a miracle."""
    path, done = finished
    summary = json.loads((path / "summary.json").read_text())
    assert summary["converged"] is False
    assert summary["verdict"].startswith("Not converged: R-hat of theta_")
    assert "steps in place of 20,000 (--steps)" in summary["remedy"]
    assert summary["verdict"] in done.stdout
    assert f"What to do: {summary['remedy']}." in done.stdout
    assert f"Warning: {summary['verdict']}" in done.stderr
    first = (path / "report.html").read_text().partition("</section>")[0]  # before everything else, and marked
    assert '<section class="verdict not">' in first
    assert "✕ Not converged</h2>" in first
    assert "R-hat of theta_" in first
    assert "What to do: sample longer" in first


def test_a_reproduction_says_whether_it_has_converged(tmp_path, monkeypatch, capsys):
    def made(out, *_):
        summary = {"converged": False, "verdict": "Not converged: gmm.", "remedy": "sample longer"}
        (out / "summary.json").write_text(json.dumps(summary))
        return out / "report.html"

    monkeypatch.setattr(reproduction, "reproduce", made)
    commands.reproduce(tmp_path)
    told = capsys.readouterr()
    assert told.err.endswith("Warning: Not converged: gmm. What to do: sample longer.\n")
    assert "Not converged: gmm." in told.out
    assert told.out.splitlines()[-1] == f"Report: {tmp_path / 'report.html'}"


def test_a_report_is_redrawn_from_the_directory_alone(finished, tmp_path):
    path, _ = finished
    moved = tmp_path / "moved"
    subprocess.run(["cp", "-r", str(path), str(moved)], check=True)
    (moved / "report.html").unlink()
    call("report", moved)
    assert (moved / "report.html").stat().st_size > 100_000


SENSORS = ["tests.deployment.test_merging:sensors", "--agents", 3, "--step-size", 1e-3, "--consensus", 0.2]


@pytest.mark.slow(reason="two real runs with reports, one of them killed")
def test_killed_in_the_middle_then_resumed(tmp_path):
    path = tmp_path / "run"
    arguments = ["run", *SENSORS, "--steps", 5_000_000, "--store-every", 5000, "--out", path]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=said)
        try:
            wait_for_draws(path)
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
        finally:
            process.kill()
        said.seek(0)
        errors = said.read()
    assert process.returncode == 130
    assert f"consilience resume {path}" in errors
    with pytest.raises(RunError, match="not complete"):
        commands.report([path])
    call("resume", path)
    run = cs.Run(path)
    assert run.complete
    assert run.draws.sizes["draw"] == run.plan.num_stored
    assert "already" in error_of(*arguments)


def wait_for_draws(path):
    group = path / "draws.zarr" / "zarr.json"
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            arrays = json.loads(group.read_text())["consolidated_metadata"]["metadata"]
            if arrays["posterior/w"]["shape"][2] > 0:
                return
        except (OSError, KeyError):
            pass
        time.sleep(0.02)
    raise AssertionError("no draws were stored")


@pytest.mark.slow(reason="a run in a terminal of its own")
def test_progress_on_a_terminal(tmp_path):
    """A pseudo-terminal sees the bar, the rate and the consensus error."""
    main, side = pty.openpty()
    arguments = [*map(str, ["run", *SENSORS, "--steps", 400_000, "--store-every", 1000, "--out", tmp_path / "run"])]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    process = subprocess.Popen([*COMMAND, *arguments], stderr=side, stdout=subprocess.DEVNULL, env=environment)
    os.close(side)
    seen, deadline = b"", time.monotonic() + 90
    while time.monotonic() < deadline:
        if select.select([main], [], [], 1)[0]:
            try:
                seen += os.read(main, 65536)
            except OSError:
                break
        elif process.poll() is not None:
            break
    assert process.wait(timeout=60) == 0
    text = seen.decode(errors="replace")
    assert "steps/s" in text
    assert "consensus error" in text
    assert "100%" in text


def test_check_says_what_is_wrong_and_what_to_do(tmp_path):
    plan = cs.Plan(graph=cs.graphs.star(10), sampler=cs.dula(1e-4, 0.3), num_steps=100)
    (tmp_path / "plan.toml").write_text(plan.to_toml())
    done = call("check", tmp_path / "plan.toml", code=2)
    assert "✗ consensus step" in done.stdout
    assert "below 0.2" in done.stdout
    findings = json.loads(call("check", tmp_path / "plan.toml", "--json", code=2).stdout)[0]
    assert [f["level"] for f in findings if f["topic"] == "consensus step"] == ["error"]
    assert "unstable" in error_of("run", "gmm", "--agents", 10, "--graph", "star", "--consensus", 0.3, "--steps", 100)
    assert "✓ graph" in call("check", "gmm", "--agents", 5).stdout


@pytest.mark.slow(reason="several runs with reports")
def test_problems_of_ones_own_run_by_their_name(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import jax.numpy as jnp, numpy as np, consilience as cs\n"
        "problem = cs.Problem(lambda w, x: -0.5 * (x - w) ** 2, lambda w: -0.5 * w**2,\n"
        "    lambda key: jnp.zeros(()), [np.full(5, 1.0, np.float32), np.full(9, 2.0, np.float32)])\n"
    )
    out = tmp_path / "run"
    call("run", "mine:problem", "--steps", 2000, "--step-size", 0.001, "--out", out, "--json", cwd=tmp_path)
    assert json.loads((out / "summary.json").read_text())["num_agents"] == 2
    assert "--step-size" in error_of("run", "mine:problem", "--steps", 2000, cwd=tmp_path)
    plan = cs.Run(out).plan.replace(seed=1)
    (tmp_path / "plan.toml").write_text(plan.to_toml())
    call("run", "plan.toml", "--allow", "mine", "--out", tmp_path / "again", cwd=tmp_path)
    assert cs.Run(tmp_path / "again").plan.seed == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nope"], "unknown experiment 'nope'"),
        (["run", "gmm", "--colour", "red"], "No such option"),
        (["run", "gmm", "--agents", "many"], "valid integer"),
        (["run", "gmm", "--agents", "0"], "greater than or equal to 1"),
        (["run", "gmm", "--graph", "hexagon"], "unknown graph"),
        (["run", "gmm", "--dtype", "float16"], "dtype"),
        (["run", "gmm", "--engine", "grid"], "'grid' is not one of"),
        (["run", "gmm", "--agents", "5", "--batch-size", "50"], "larger than the shard"),
        (["run", "missing.toml"], "there is no plan file missing.toml"),
        (["resume", "nowhere"], "does not hold a run"),
        (["report", "nowhere"], "does not hold a run"),
        (["theory", "gmm", "--compare"], "to compare, write for example"),
        (["theory", "gmm", "--compare", "colour=red"], "cannot compare 'colour=red'"),
        (["theory", "gmm", "--tolerance", "2"], "tolerance"),
        (["run", "gmm", "--auto", "--step-size", "0.1"], "--auto chooses the step sizes"),
        (["suggest", "gmm", "--step-size", "0.1"], "suggest chooses the step sizes: leave out --step-size"),
        (["run", "gmm", "--sampler", "guess"], "unknown sampler 'guess'"),
        (["fly"], "No such command"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(arguments, words, tmp_path):
    assert words in error_of(*arguments, cwd=tmp_path)


def test_a_disk_that_refuses_gets_one_line_too():
    assert "cannot write to /proc/run" in error_of("run", "gmm", "--agents", 2, "--out", "/proc/run", code=1)


def test_help_and_version_do_not_load_jax():
    code = (
        "import sys; from consilience.cli.main import app\n"
        "app(['--help'], standalone_mode=False); app(['--version'], standalone_mode=False)\n"
        "app(['run', '--help'], standalone_mode=False); assert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"consilience {cs.__version__}" in done.stdout
    assert "experiments" in call("--help").stdout
    assert "gmm" in call("experiments").stdout


@pytest.mark.slow(reason="two commands in processes of their own")
def test_a_compilation_cache_of_the_users_own_spoils_no_output(tmp_path):
    """On some processors XLA prints kilobytes for every program that it takes from such a cache."""
    environment = {
        **os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }  # fmt: skip
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)

    def check(*arguments):
        command = [*COMMAND, "check", "gmm", "--agents", "2", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    for _ in range(2):  # the first fills the cache, the second reads it
        done = check("--json")
        assert json.loads(done.stdout)
        assert done.stderr == ""
    assert list((tmp_path / "cache").iterdir())
