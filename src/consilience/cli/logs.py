"""What a node says while it runs: lines for people, or a JSON object a line."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from consilience.runs.files import disk_errors

_REFUSAL = re.compile(r"zenoh_link_\w+::\w+: (?P<reason>.+?)(: verification time.*)?(\. Hint: .*)?$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_REPEAT_SECONDS = 60.0


class JsonLines(logging.Formatter):
    """A record as one JSON object, whatever its words contain.

    >>> record = logging.makeLogRecord({"msg": 'said "%s"', "args": ("a\\nb",), "levelname": "INFO", "round": 7})
    >>> found = json.loads(JsonLines(3).format(record))
    >>> found["message"], found["agent"], found["round"]
    ('said "a\\nb"', 3, 7)
    """

    def __init__(self, agent: int | None) -> None:
        super().__init__()
        self._agent = agent

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; `round` is there where it is known."""
        known = {"agent": self._agent, "round": record.__dict__.get("round")}
        told: dict[str, Any] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            **{name: value for name, value in known.items() if value is not None},
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def log_to_stderr(agent: int | None, as_json: bool) -> None:
    """Let a node's (or a relay's) log go to standard error, and with JSON all notes and warnings too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(agent) if as_json else logging.Formatter("%(asctime)s %(message)s"))
    names = ["consilience", "py.warnings"] if as_json else ["consilience.peers"]
    for name in names:
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).propagate = False
    logging.getLogger("consilience.peers").setLevel(logging.INFO)
    logging.captureWarnings(as_json)


def log_to_file(path: Path, agent: int) -> None:
    """Keep a node's log in a file too, for its page."""
    with disk_errors(path):
        path.parent.mkdir(exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(JsonLines(agent))
    logging.getLogger("consilience.peers").addHandler(handler)


@contextlib.contextmanager
def refusals_logged() -> Iterator[None]:
    """Log the connections that Zenoh refuses, which it only prints to standard output.

    For a process of its own: what other code writes to the file descriptor 1 goes to the log too, and what Python
    prints goes where it went before.
    """
    reading, writing = os.pipe()
    before, python = os.dup(1), sys.stdout
    sys.stdout = os.fdopen(os.dup(before), "w", encoding=python.encoding, buffering=1)
    os.dup2(writing, 1)
    os.close(writing)
    thread = threading.Thread(target=_log_lines, args=(os.fdopen(reading, errors="replace"),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(before, 1)  # closes the only writing end, so that the thread ends
        os.close(before)
        sys.stdout.close()
        sys.stdout = python
        thread.join(_REPEAT_SECONDS)


def _log_lines(lines: IO[str]) -> None:
    """Every line once a minute: one who is refused tries again and again."""
    log, last = logging.getLogger("consilience.peers"), dict[str, float]()
    with lines:
        for line in lines:
            told = refusal(line)
            if time.monotonic() - last.get(told, -_REPEAT_SECONDS) >= _REPEAT_SECONDS:
                last[told] = time.monotonic()
                log.warning("%s", told)


def refusal(line: str) -> str:
    """What a line of Zenoh's log means.

    >>> refusal("2026Z  WARN acc-0 zenoh_link_tls::unicast: invalid peer certificate: UnknownIssuer. Hint: files.")
    'refused a connection: invalid peer certificate: UnknownIssuer'
    >>> refusal("WARN zenoh_link_tls::unicast: certificate expired: verification time 17 (UNIX), but not after 16")
    'refused a connection: certificate expired'
    """
    plain = _COLOUR.sub("", line).strip()
    found = _REFUSAL.search(plain)
    return f"refused a connection: {found['reason']}" if found else plain
