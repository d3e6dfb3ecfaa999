"""Studies from the command line: from files at several sites to a report, as somebody does who writes no Python."""

import json
import shutil
import signal
import time

import numpy as np
import pytest

import consilience as cs
from consilience.deployment.processes import network_status
from consilience.runs.posterior import shared_digest
from consilience.studies import of_run
from tests.cli.test_commands import call, error_of
from tests.command import Command
from tests.engines.peers.running import ended_at_last, wait_for_success
from tests.studies.patients import book, rows, split, write

SHORT = ["--warmup", 20, "--draws", 8, "--chains", 2, "--seed", 3]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three sites' files, a codebook and a study; the mean age is left to the sites."""
    place = tmp_path_factory.mktemp("study")
    for name, site in zip(("north", "south", "west"), split(rows(90), 3), strict=True):
        write(place / f"{name}.csv", site, ";" if name == "west" else ",")
    (place / "codebook.toml").write_text(book(age={"centre": "from sites"}).to_toml())
    (place / "study.toml").write_text(
        'formula = "died ~ age + stage"\nfamily = "bernoulli"\ncodebook = "codebook.toml"\n'
    )
    return place


def data_of(place, *names):
    return [word for name in names or ("north", "south", "west") for word in ("--data", place / f"{name}.csv")]


@pytest.fixture(scope="module")
def finished(place):
    return place / "run", call("run", place / "study.toml", *data_of(place), *SHORT, "--out", place / "run")


def test_a_study_runs_and_its_report_has_the_priors(place, finished):
    path, done = finished
    assert done.stdout.strip().splitlines()[-1] == f"Report: {path / 'report.html'}"
    assert "age: centre " in done.stdout  # what the sites found, before it was used
    assert "from 90 values at 3 sites" in done.stdout
    run = cs.Run(path)
    assert (run.plan.num_agents, run.plan.graph.name, run.plan.sampler.kind) == (3, "complete", "nuts")
    assert of_run(path).coefficients == ("Intercept", "age", "stage[II]", "stage[III]")
    page = (path / "report.html").read_text()
    for words in ("normal(mean 0, sd 2.5)", "stage[III]", "The codebook", "yes counts as 1", "compared with I"):
        assert words in page
    for name in ("north", "south", "west"):
        assert str(place / f"{name}.csv") not in (path / "plan.toml").read_text()


def test_a_resumed_run_finds_its_files_or_says_where_they_were(place, finished, tmp_path):
    path, _ = finished
    left = tmp_path / "left"
    shutil.copytree(path, left)
    (left / "summary.json").unlink()
    shutil.rmtree(left / "checkpoints", ignore_errors=True)  # so that it begins anew
    status = json.loads((left / "status.json").read_text())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("north", "south", "west"):
        shutil.copy(place / f"{name}.csv", elsewhere)
    moved = [{**one, "path": one["path"].replace(str(place), "/nowhere")} for one in status["data_files"]]
    (left / "status.json").write_text(json.dumps({**status, "status": "interrupted", "data_files": moved}))
    told = error_of("resume", left)
    assert "/nowhere/north.csv" in told
    assert "--data FILE --data FILE --data FILE" in told
    swapped = error_of("resume", left, *data_of(elsewhere, "south", "north", "west"))
    assert "south.csv (site 0) does not hold the rows" in swapped
    call("resume", left, *data_of(elsewhere))
    np.testing.assert_array_equal(cs.Run(left).draws["coefficients"], cs.Run(path).draws["coefficients"])
    assert json.loads((left / "status.json").read_text())["data_files"][0]["path"] == str(elsewhere / "north.csv")


def test_ahead_of_a_run(place):
    done = call("check", place / "study.toml")
    assert "age.centre will come from the sites" in done.stdout
    done = call("check", place / "study.toml", *data_of(place))
    assert "normal(mean 0, sd 2.5)" in done.stdout
    assert "✓ masks" in done.stdout
    plan = json.loads(call("suggest", place / "study.toml", *data_of(place), "--json").stdout)["practical"]["plan"]
    assert plan["study"]["codebook"]["columns"]["age"]["centre"] != "from sites"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "study.toml"], "does not say how many sites there are"),
        (["run", "study.toml", "--data", "north.csv", "--agents", 2], "--agents 2, but there are 1 files"),
        (["run", "study.toml", "--data", "north.csv", "--data", "east.csv"], "there is no data file east.csv"),
        (["run", "study.toml", "--data", "codebook.toml"], "neither CSV nor Parquet"),
        (["run", "gmm", "--agents", 2, "--data", "north.csv"], "--data is for a study"),
        (["network", "init", "--study", "study.toml", "--experiment", "gmm"], "one of them"),
        (["network", "init"], "with --experiment or with --study"),
        (["network", "init", "--study", "study.toml"], "does not say how many sites there are"),
        (["codebook", "check", "north.csv", "--codebook", "none.toml"], "there is no codebook none.toml"),
        (["codebook", "propose", "north.csv", "--out", "codebook.toml"], "codebook.toml is there already"),
    ],
)
def test_mistakes_say_what_to_do(place, tmp_path, arguments, words):
    out = ["--out", tmp_path / "out"] if arguments[0] != "codebook" else []
    assert words in error_of(*arguments, *out, cwd=place)


def test_codebooks_are_proposed_and_checked(place, tmp_path):
    done = call("codebook", "propose", place / "west.csv", "--out", tmp_path / "codebook.toml")
    assert "died: 'yes' counts as 1: check that all sites mean the same" in done.stdout
    call("codebook", "check", place / "west.csv", "--codebook", tmp_path / "codebook.toml")
    assert (
        "north.csv fits" in call("codebook", "check", place / "north.csv", "--codebook", place / "study.toml").stdout
    )
    other = write(tmp_path / "other.csv", {**rows(9), "stage": ["V"] * 9})
    done = call("codebook", "check", other, "--codebook", place / "study.toml", code=2)
    assert "stage: unknown level 'V' in 9 rows" in done.stdout
    assert str(rows(9)["age"][0]) not in done.stdout
    done = call("codebook", "check", other, "--codebook", place / "codebook.toml", "--json", code=2)
    assert json.loads(done.stdout) == [{"column": "stage", "what": "unknown level 'V'", "rows": 9}]


def test_a_network_is_made_without_anybodys_file(place, tmp_path):
    done = call("network", "init", "--study", place / "study.toml", "--agents", 3, *SHORT, "--out", tmp_path / "NET")
    assert 'write data = "FILE.csv" into it' in done.stdout
    assert cs.Plan.load(tmp_path / "NET" / "plan.toml").study["codebook"]["columns"]["age"]["centre"] == "from sites"
    assert 'write data = "FILE.csv" into agent-1.toml' in error_of("node", tmp_path / "NET" / "agent-1.toml")


@pytest.mark.slow(reason="a network of real processes, one of which is killed")
def test_sites_fill_in_their_codebook_and_sample_over_tls(place, finished, tmp_path):
    """Each node's file names its own data, and one node is killed while it samples."""
    network = tmp_path / "NET"
    entries = ["--agents", 3, "--warmup", 60, "--draws", 60, "--chains", 2, "--seed", 3, "--checkpoint-seconds", 0.5]
    call("network", "init", "--study", place / "study.toml", *entries, "--out", network)
    files = [network / f"agent-{agent}.toml" for agent in range(3)]
    for path, name in zip(files, ("north", "south", "west"), strict=True):
        own = tmp_path / f"at-{name}"
        own.mkdir()
        shutil.copy(place / f"{name}.csv", own / "hospital.csv")
        path.write_text(f'data = "../at-{name}/hospital.csv"\n{path.read_text()}')
    nodes = [Command("node", path) for path in files]
    with ended_at_last(nodes):
        deadline = time.monotonic() + 200
        while not all(one.get("round", 0) > 5 for one in network_status(network, 1.0)):
            assert time.monotonic() < deadline, nodes[0].stderr.read_text()
        nodes[1].kill()
        nodes[1].wait(10)
        assert nodes[1].returncode == -signal.SIGKILL
        nodes[1] = Command("node", files[1])
        wait_for_success(nodes)
        said = nodes[0].stderr.read_text()
    assert "age: centre" in said
    runs = [cs.Run(network / "runs" / f"agent-{agent}") for agent in range(3)]
    assert len({shared_digest(run.draws) for run in runs}) == 1
    assert runs[1].summary["restarts"] == 1
    filled = cs.Run(finished[0]).plan.study
    assert all(run.plan.study == filled for run in runs)
    call("report", *(run.path for run in runs), "--out", tmp_path / "whole")
    assert cs.Run(tmp_path / "whole").draws["coefficients"].shape == (2, 60, 4)
