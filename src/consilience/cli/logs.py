"""What a node says while it runs: lines for people, or a JSON object a line."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Any


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
