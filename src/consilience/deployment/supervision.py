"""One process of several, watched by the one that started it.

JAX's runtime ends a process from below Python when another one of its team is lost, or when they cannot come
together. So the sampling process is a child, and its parent reads what the runtime said last and puts it into words.
The child ends with its parent, whatever happens to that.
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

from consilience import errors
from consilience.engines.mesh.rendezvous import HEARTBEAT_SECONDS, LEAVE_SECONDS, Rendezvous
from consilience.errors import ConsilienceError, MeshError, ProcessLostError

_LIFELINE = "CONSILIENCE_MESH_LIFELINE"
_LOG = "CONSILIENCE_MESH_LOG"
_SILENT = re.compile(r"unhealthy \(stopped sending heartbeats\):\s*([\d\s,]+)")
_MISSED = re.compile(r"first task at the barrier: (\d+)\. Some timed out task names:\s*([\d\s,]+)")
_OWN_WORDS = re.compile(r"^consilience stops with (\w+): (.*)$", re.MULTILINE)


def is_child() -> bool:
    """Whether this process was started by `supervise`."""
    return _LIFELINE in os.environ


def supervise(command: Sequence[str], rendezvous: Rendezvous, run: Any) -> int:
    """Run a command as a child and return its exit code; what the runtime ended becomes an error in words.

    Args:
        command: what to run.
        rendezvous: where its processes come together.
        run: the directory of the run, for the words.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as log:
        environment = {**os.environ, _LIFELINE: str(reading), _LOG: str(log.fileno())}
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)  # the runtime's words are needed, and go to the log alone
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
        raise _in_words(code, _last_words(log), rendezvous, run)


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


def leave_words(error: Exception) -> None:
    """In the child: tell the parent why this process stops, in case the runtime ends it before it can say so."""
    known = isinstance(error, ConsilienceError)
    name = type(error).__name__ if known else ConsilienceError.__name__
    text = " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())
    os.write(2, f"\nconsilience stops with {name}: {text}\n".encode())


def _hand_on(child: subprocess.Popen[bytes]) -> Any:
    def handler(number: int, frame: Any) -> None:
        if number == signal.SIGTERM:  # Ctrl-C reaches all processes of a terminal by itself
            child.terminate()

    return handler


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


def _in_words(code: int, said: str, rendezvous: Rendezvous, run: Any) -> Exception:
    own = _OWN_WORDS.search(said)
    if own:
        return getattr(errors, own.group(1), ConsilienceError)(own.group(2))
    seconds = rendezvous.join_seconds
    if "RegisterTask" in said and "unhealthy" not in said:
        where = rendezvous.coordinator or "the cluster's coordinator"
        if rendezvous.process == 0:
            return MeshError(
                f"not all {rendezvous.processes or ''} processes came to {where} within {seconds} s: start the "
                "others, with the same --coordinator and --num-processes"
            )
        return MeshError(
            f"the coordinator {where} did not answer within {seconds} s: is process 0 running there, with the same "
            "--num-processes, and is the port open?"
        )
    resume = f"everything up to the last checkpoint is safe; start all processes again with: consilience resume {run}"
    lost = _who_was_lost(code, said, rendezvous.process)
    if lost:
        return ProcessLostError(f"{lost}; {resume}")
    tail = said.strip().splitlines()[-1:] or ["it said nothing"]
    return ProcessLostError(f"this process was ended by signal {-code} ({tail[0][:200]}); {resume}")


def _who_was_lost(code: int, said: str, process: int | None) -> str | None:
    """From what the runtime said to this process: who was silent, or did not come when the others parted.

    Process 0 is the coordinator, so that it is the one that was lost is never what it hears itself.
    """
    silent = _SILENT.search(said)
    if silent:
        return f"process {_numbers(silent.group(1))} was lost (silent for {HEARTBEAT_SECONDS} s)"
    missed = _MISSED.search(said)
    if missed:
        others = {int(number) for number in re.findall(r"\d+", missed.group(2))} - {process}
        if others:
            return f"process {_numbers(sorted(others))} was lost (no answer for {LEAVE_SECONDS} s)"
        return f"process {missed.group(1)} stopped early, see what it said"
    if code == -signal.SIGABRT and "coordination" in said:
        return "process 0, the coordinator, was lost" if process != 0 else "another process was lost"
    return None


def _numbers(found: Any) -> str:
    return ", ".join(re.findall(r"\d+", str(found)))
