"""The command line in a process of its own, quicker than by an interpreter that has yet to load its modules.

Each process is a fork of one that has loaded them and done nothing else: no thread of JAX's was ever in it.
"""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([
    "consilience.cli.main",  # first, as for users: it prepares what JAX reads when it is loaded
    "arviz", "matplotlib.backends.backend_agg", "orbax.checkpoint", "ott", "zenoh",
    "consilience.cli.display", "consilience.cli.network_display", "consilience.deployment.local_network",
    "consilience.sampling.sample", "consilience.sampling.series",
])  # fmt: skip


class Command:
    """`consilience …` as a process, with the methods of `subprocess.Popen`; its words go to `stdout` and `stderr`."""

    def __init__(self, *arguments, cwd=None, environment=None):
        self._place = tempfile.TemporaryDirectory()
        self.stdout, self.stderr = (Path(self._place.name) / name for name in ("stdout", "stderr"))
        for path in (self.stdout, self.stderr):
            path.touch()
        words = ["consilience", *map(str, arguments)]
        self._process = _FORKS.Process(
            target=_run,
            args=(words, cwd or Path.cwd(), dict(environment or os.environ), self.stdout, self.stderr),
            daemon=True,
        )
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def kill(self):
        self._process.kill()

    def terminate(self):
        self._process.terminate()

    def wait(self, seconds):
        self._process.join(seconds)
        if self.returncode is None:
            self.kill()
            raise AssertionError(f"process {self.pid} did not end within {seconds} s: {self.stderr.read_text()}")
        return self.returncode

    def communicate(self, timeout):
        self.wait(timeout)
        return self.stdout.read_text(), self.stderr.read_text()


def _run(words, cwd, environment, stdout, stderr):
    from consilience.cli.main import main

    for number, path in ((1, stdout), (2, stderr)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    main()
