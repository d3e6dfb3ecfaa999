"""Logs of a node: with `--json` every line is a JSON object, whatever was said."""

import json
import subprocess
import sys

SCRIPT = """
import logging, warnings
from consilience.cli.logs import log_to_stderr
log_to_stderr(3, {as_json})
log = logging.getLogger("consilience.peers")
log.info("agent %d says %s", 4, 'a "quoted" line\\nand \\x1b[31mmore\\u2028', extra={{"round": 7}})
try:
    raise ValueError("{{}}")
except ValueError:
    log.exception("it failed")
logging.getLogger("consilience").warning("a note")
warnings.warn('a "warning"')
"""


def said(as_json):
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(as_json=as_json)], capture_output=True, check=True)
    return done.stderr.decode()


def test_every_line_is_json():
    lines = [json.loads(line) for line in said(True).strip().split("\n")]
    assert len(lines) == 4
    assert {line["agent"] for line in lines} == {3}
    assert lines[0]["message"] == 'agent 4 says a "quoted" line\nand \x1b[31mmore\u2028'
    assert (lines[0]["level"], lines[0]["round"]) == ("INFO", 7)
    assert lines[0]["time"].endswith("+00:00")
    assert "ValueError" in lines[1]["error"]
    assert "round" not in lines[2]
    assert 'a "warning"' in lines[3]["message"]


def test_people_read_plain_lines():
    assert "agent 4 says a" in said(False)
