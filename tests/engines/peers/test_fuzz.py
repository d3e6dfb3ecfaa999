"""A coverage-guided fuzzer, for a bounded time, against what a node does with bytes from others."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow(reason="fuzzing for many seconds"),
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not to be had here"),
]


def fuzzed(corpus, *options, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tests.engines.peers.fuzz", str(corpus), *options],
        capture_output=True, text=True, timeout=300, env={**os.environ, **environment}, cwd=corpus.parents[0],
    )  # fmt: skip


@pytest.fixture
def corpus(tmp_path, monkeypatch, request):
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus"


def test_no_bytes_from_others_raise(corpus):
    found = fuzzed(corpus, "-max_total_time=10", "-seed=1")
    assert found.returncode == 0, found.stderr[-3000:]
    assert int(re.search(r"Done (\d+) runs", found.stderr)[1]) > 1000


def test_a_planted_fault_would_be_found(corpus):
    """The control. It needs some thousands of runs; their number is bounded, not the time: a slow machine passes."""
    found = fuzzed(corpus, "-runs=200000", "-seed=1", PLANTED="1")
    assert found.returncode != 0
    assert "the planted fault" in found.stdout + found.stderr
