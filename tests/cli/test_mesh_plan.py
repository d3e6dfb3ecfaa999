"""`consilience mesh plan`: what a mesh would cost, each in a process of its own, whose devices are virtual."""

import json
import re
import subprocess
import sys

import pytest

from consilience.experiments import EXPERIMENTS

OWN = """
import jax.numpy as jnp, numpy as np
import consilience as cs

def wide(num_agents):
    \"\"\"Thirty-one parameters: a slice of sixteen, and one that is filled up.\"\"\"
    rows = np.ones((num_agents, 4, 31), np.float32)
    return cs.models.linear_regression([(own, own.sum(1)) for own in rows])
"""


def weighed(arguments, place):
    (place / "own.py").write_text(OWN)
    done = subprocess.run(
        [sys.executable, "-m", "consilience.cli.main", "mesh", "plan", *map(str, arguments)],
        cwd=place, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow(reason="compiles for sixteen devices")
def test_a_ring_of_ten_thousand_on_sixteen_devices(tmp_path):
    said = weighed(["gmm", "--agents", 10_000, "--devices", 16], tmp_path)
    assert "16 (1 along chains × 16 along agents × 1 along model)" in said
    assert "625" in said
    assert "16 of 10,000 (ring)" in said
    assert "in 2 permutations" in said
    assert "those of its own network were repeated" in said
    assert "counts a loop" not in said
    assert re.search(r"Times and the speed-up assume [\d.]+ GB/s .*; nothing was measured", said)


@pytest.mark.slow(reason="compiles for several devices")
def test_a_problem_of_your_own_spread_along_the_model_axis(tmp_path):
    options = ["own:wide", "--agents", 6, "--devices", 4, "--model-devices", 2, "--json"]
    costs = json.loads(weighed(options, tmp_path))
    assert costs["agents_per_device"] == 3
    permuted = 2 * 16 * 4  # two neighbours' slices
    of_models = 2 * 3 * 16 * 4  # gathered and scattered, for each of three agents
    assert costs["bytes_permuted_per_step"] == permuted
    assert costs["bytes_sent_per_step"] == permuted + of_models
    assert costs["messages_per_step"] == 1 + 2 * 3  # both neighbours' slices go to the same device
    assert costs["work_is_more"]


@pytest.mark.parametrize(("name", "agents"), [("a9a", 3000), ("digits", 2000)])
def test_more_agents_than_there_are_rows_for_a_batch(name, agents):
    plan = EXPERIMENTS[name].plan(agents)
    assert plan.num_steps >= 1
    assert plan.batch_size < 10
