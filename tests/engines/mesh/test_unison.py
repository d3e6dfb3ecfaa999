"""Samplers in unison on a mesh: on four virtual devices, in a process of its own; over two processes; refusals."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import consilience as cs
from consilience.engines.mesh.devices import DeviceSettings
from consilience.engines.mesh.engine import require_same_shapes
from consilience.engines.mesh.unison import mesh_stepper
from consilience.errors import MeshError
from consilience.kernel.parameters import Parameters
from tests.engines.mesh.processes import SECONDS, free_port
from tests.gaussian import regression
from tests.hierarchical import ragged, sites


@pytest.mark.slow(reason="compiles some ten programs for four devices")
def test_on_four_devices():
    inner = Path(__file__).with_name("unison_on_four_devices.py")
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(inner)],
        cwd=inner.parents[3], env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]


PROCESS = """
import sys
from consilience.engines.mesh.joining import join
from consilience.engines.mesh.rendezvous import Rendezvous

port, number = sys.argv[1:]
join(Rendezvous(coordinator=f"127.0.0.1:{port}", num_processes=2, process_id=int(number)))

import consilience as cs
from tests.engines.mesh.test_unison import PLAN, problem

cs.sample(problem(), PLAN, engine="mesh", out="run", checkpoint_seconds=0.0)
"""
PLAN = cs.Plan(graph=cs.graphs.ring(5), sampler=cs.hmc(), num_chains=2, num_warmup=20, num_draws=10)


def problem():
    return sites([4, 6, 5, 3, 7])


@pytest.mark.slow(reason="two real processes, and the same run in this one")
def test_two_processes_sample_what_simulate_does(tmp_path):
    """Each writes the private draws of its own agents, the first what they share."""
    port, root = str(free_port()), str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    made = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, port, str(number)], cwd=tmp_path, env=environment, stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]  # fmt: skip
    try:
        told = [process.communicate(timeout=SECONDS)[1] for process in made]
    finally:
        for process in made:
            process.kill()
    assert [process.returncode for process in made] == [0, 0], told[0][-3000:] + told[1][-3000:]
    run = cs.Run(tmp_path / "run")
    assert run.complete
    expected = cs.sample(problem(), PLAN, out=tmp_path / "alone").draws
    for name in ("mean", "effect"):
        assert run.draws[name].dims == expected[name].dims
        np.testing.assert_allclose(run.draws[name].values, expected[name].values, rtol=0, atol=1e-6)


def test_parameters_are_not_spread_over_devices():
    plan = cs.Plan(graph=cs.graphs.ring(4), sampler=cs.nuts(), num_warmup=20, num_draws=10)
    with pytest.raises(MeshError, match=r"nuts keeps replicas of all parameters.*leave model_devices out"):
        mesh_stepper(regression([4, 5, 6, 4]), plan, DeviceSettings(model_devices=2))


def test_agents_of_several_processes_have_the_same_shapes():
    several = SimpleNamespace(size=2, require_same=lambda *_: None)
    with pytest.raises(MeshError, match=r"different lengths: use one process, or the engine peers"):
        require_same_shapes(several, Parameters.of(ragged(), np.float32))
