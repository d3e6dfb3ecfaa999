"""The mesh on eight virtual devices, in a process of its own: JAX counts its devices once, when it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow(reason="compiles some twenty programs for eight devices")
def test_on_eight_devices():
    inner = Path(__file__).with_name("on_eight_devices.py")
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(inner)],
        cwd=inner.parents[3], env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
