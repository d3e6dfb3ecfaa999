"""What a live page with ten browsers costs the sampler that it shows, of which one is slow and one never answers.

The browsers speak the page's protocol and draw nothing: a real one would run on another machine, or leave the sampler
less of this one, page or no page. They are a process that yields to all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

from benchmarks.table import Line, Skipped
from consilience.runs.loop import Progress

_STEPS = 30_000_000  # a minute or so
_REPETITIONS, _BROWSERS = 2, 10
_SLOW_SECONDS = 5.0
_LIMIT = 1.02


def watched() -> Iterator[Line | Skipped]:
    """Steps of the mixture with the page and its browsers, over steps without; and its share of a processor."""
    if find_spec("nicegui") is None:
        yield Skipped("a live page with ten browsers", "needs the extra page")
        return
    from benchmarks.timing import best_of_each

    shares: list[float] = []
    contestants = {"alone": lambda: _sampled(None), "watched": lambda: _sampled(shares)}
    best = best_of_each(contestants, _REPETITIONS)
    what = f"page, {_BROWSERS} browsers: a step of 5 agents / without it"
    yield Line(what, best["watched"], best["alone"], _LIMIT)
    yield Line("page, the same: its processor time / time on the clock", max(shares), 1.0, _LIMIT - 1, unit="")


def _sampled(shares: list[float] | None) -> float:
    """Seconds of a step; with a page, the share of one processor that it took is noted."""
    from benchmarks.setting import mixture, mixture_plan
    from consilience import sample
    from consilience.errors import PlanWarning
    from consilience.page.serving import page_beside
    from consilience.sampling import engines

    problem, plan = mixture(), mixture_plan(_STEPS)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as beside, warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanWarning)
        beside.enter_context(mock.patch.object(engines, "finish_run"))
        path = Path(directory) / "run"
        if shares is not None:
            address = beside.enter_context(page_beside(path, None))
            urllib.request.urlopen(address, timeout=300).close()  # to begin is no part of it
            page = _child_that_serves()
            browsers = subprocess.Popen([sys.executable, "-m", __name__, address])
            beside.callback(lambda: (browsers.kill(), browsers.wait()))
        before: list[tuple[float, float]] = []

        def note(progress: Progress) -> None:
            if shares is not None and progress.step > plan.num_steps // 4 and not before:  # all browsers are there
                before.append((_computed(page), time.monotonic()))

        made = sample(problem, plan, path, progress=note)
        if shares is not None:
            ((of_page, then),) = before
            shares.append((_computed(page) - of_page) / (time.monotonic() - then))
        return made.status["timing"]["sampling_seconds"] / plan.num_steps


def _child_that_serves() -> int:
    """The process number of the page."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return next(int(one) for one in children if b"consilience.page" in Path(f"/proc/{one}/cmdline").read_bytes())


def _computed(process: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _browse(address: str, slow_seconds: float | None) -> None:
    """One browser: it opens the page and answers when it has taken something in, late, or never."""
    import socketio

    with urllib.request.urlopen(address, timeout=300) as answer:
        client = re.search(r"'client_id': '([^']+)'", answer.read().decode())
    assert client is not None, "the page says no client_id: has NiceGUI changed its protocol?"
    line = socketio.AsyncClient(reconnection=False)

    @line.on("run_javascript")
    async def asked(message: dict[str, str]) -> None:
        if slow_seconds is not None:
            await asyncio.sleep(slow_seconds)
            said = {"request_id": message.get("request_id"), "client_id": client[1], "result": False}
            await line.emit("javascript_response", said)

    query = f"client_id={client[1]}&document_id=1&tab_id=1&old_tab_id=null&next_message_id=0&implicit_handshake=true"
    await line.connect(f"{address}?{query}", socketio_path="/_nicegui_ws/socket.io", transports=["websocket"])
    await line.wait()


async def _browse_all(address: str) -> None:
    """Eight quick browsers, a slow one, and one that never answers."""
    speeds: list[float | None] = [*[0.0] * (_BROWSERS - 2), _SLOW_SECONDS, None]
    await asyncio.gather(*(_browse(address, seconds) for seconds in speeds))


if __name__ == "__main__":
    os.nice(19)
    asyncio.run(_browse_all(sys.argv[1]))
