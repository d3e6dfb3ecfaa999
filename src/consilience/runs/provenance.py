"""Where a run comes from: version, commit, packages, machine, command."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from consilience.version import __version__

_PACKAGES = ("arviz", "jax", "jaxlib", "networkx", "numpy", "orbax-checkpoint", "ott-jax", "xarray", "zarr")


def provenance(engine: str) -> dict[str, Any]:
    """What is needed to run the same thing again, as plain values."""
    import jax

    return {
        "consilience": __version__,
        "commit": _commit(Path(__file__).parent),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "engine": engine,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "device": jax.devices()[0].device_kind,
            "backend": jax.default_backend(),
        },
    }


def _commit(source: Path) -> str | None:
    """The commit of the source tree, with a mark if it was changed since; `None` outside a git checkout."""
    git = ["git", "-C", str(source)]
    try:
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
