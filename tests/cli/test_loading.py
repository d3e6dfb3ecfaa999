"""What is loaded with the package, and what that does."""

import subprocess
import sys


def test_loading_everything_leaves_jax_without_devices_and_threads():
    """A process that has them cannot join others on a mesh any more, and must not be forked."""
    code = (
        "import jax._src.xla_bridge as bridge, consilience.cli.main, consilience.sampling.series, "
        "consilience.deployment.local_network, consilience.engines.unison, consilience.samplers.transitions.nuts\n"
        "assert not bridge._backends, 'something was computed while modules were loaded'"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
