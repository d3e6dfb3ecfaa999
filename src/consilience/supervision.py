"""One process of several, watched by the one that started it.

JAX's runtime ends a process from below Python when another one of its team is lost, or when they cannot meet. So the
sampling process is a child, and its parent reads what the runtime said last and puts it into words. The child ends
with its parent, whatever happens to that.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, Any

from consilience.errors import MeshError, ProcessLostError
from consilience.meetings import HEARTBEAT_SECONDS, Meeting

_LIFELINE = "CONSILIENCE_MESH_LIFELINE"
_LOG = "CONSILIENCE_MESH_LOG"
_SILENT = re.compile(r"unhealthy \(stopped sending heartbeats\):\s*([\d\s,]+)")


def is_child() -> bool:
    """Whether this process was started by `supervise`."""
    return _LIFELINE in os.environ


def supervise(command: Sequence[str], meeting: Meeting, run: Any) -> int:
    """Run a command as a child and return its exit code; what the runtime ended becomes an error in words.

    Args:
        command: what to run.
        meeting: where its processes meet.
        run: the directory of the run, for the words.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as log:
        environment = {**os.environ, _LIFELINE: str(reading), _LOG: str(log.fileno())}
        child = subprocess.Popen(command, env=environment, pass_fds=(reading, log.fileno()))
        os.close(reading)
        previous = {number: signal.signal(number, _hand_on(child)) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            code = child.wait()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            os.close(writing)
        if code >= 0:
            return code
        raise _in_words(code, _last_words(log), meeting, run)


def follow_parent() -> None:
    """In the child: end when the parent does, and leave the runtime's own words to it."""
    reading, log = int(os.environ[_LIFELINE]), int(os.environ[_LOG])

    def watch() -> None:
        os.read(reading, 1)  # returns when the parent's end is closed
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    sys.stderr.flush()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(log, 2)


def _hand_on(child: subprocess.Popen[bytes]) -> Any:
    def handler(number: int, frame: Any) -> None:
        if number == signal.SIGTERM:  # Ctrl-C reaches all processes of a terminal by itself
            child.terminate()

    return handler


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


def _in_words(code: int, said: str, meeting: Meeting, run: Any) -> Exception:
    seconds = meeting.join_seconds
    if "RegisterTask" in said and "unhealthy" not in said:
        where = meeting.coordinator or "the cluster's coordinator"
        if meeting.process_id == 0:
            return MeshError(
                f"not all {meeting.num_processes} processes came to {where} within {seconds} s: start the others, "
                "with the same --coordinator and --num-processes"
            )
        return MeshError(
            f"the coordinator {where} did not answer within {seconds} s: is process 0 running there, with the same "
            "--num-processes, and is the port open?"
        )
    resume = f"everything up to the last checkpoint is safe; start all processes again with: consilience resume {run}"
    silent = _SILENT.search(said)
    if silent:
        names = ", ".join(re.findall(r"\d+", silent.group(1)))
        return ProcessLostError(f"process {names} was lost (silent for {HEARTBEAT_SECONDS} s); {resume}")
    if code == -signal.SIGABRT and "coordination" in said:
        return ProcessLostError(f"process 0, the coordinator, was lost; {resume}")
    tail = said.strip().splitlines()[-1:] or ["it said nothing"]
    return ProcessLostError(f"this process was ended by signal {-code} ({tail[0][:200]}); {resume}")
