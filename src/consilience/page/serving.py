"""Serves the page at one address, over TLS where that is wanted; it ends with the process that began it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from consilience.errors import InputError
from consilience.page.access import Access, Guard
from consilience.page.watching import Watcher

FIRST_PORT, _PORTS = 8780, 20
_POLITE = 10
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; font-src data:; "
    "sandbox allow-scripts"
)
_KEEP_SECONDS = 30.0


def listening(host: str, port: int | None) -> socket.socket:
    """A socket on the port, or on the first free one of a few."""
    wanted = range(FIRST_PORT, FIRST_PORT + _PORTS) if port is None else [port]
    problem: OSError | None = None
    for number in wanted:
        try:
            return socket.create_server((host, number), family=_family(host), backlog=64)
        except OSError as error:
            problem = error
    raise InputError(f"nothing can listen on {host}, port {wanted[0]} ({problem}): choose another one with --port")


def _family(host: str) -> socket.AddressFamily:
    try:
        return socket.AddressFamily(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0])
    except OSError as error:
        raise InputError(f"{host} is no address of this machine: {error}") from None


def application(watcher: Watcher, access: Access) -> Any:
    """The page as an ASGI application; it has no handler that changes anything."""
    from fastapi import FastAPI
    from fastapi.responses import FileResponse, PlainTextResponse
    from nicegui import ui

    from consilience.page.views import PageView

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @ui.page("/", response_timeout=_KEEP_SECONDS)
    def page() -> None:
        PageView(watcher)

    @app.get("/report/{name}/{number}")
    def report(name: str, number: int) -> Any:
        found = watcher.report(name, number)
        if found is None:
            return PlainTextResponse("This run has no report yet.", 404)
        return FileResponse(found, media_type="text/html", headers={"content-security-policy": _REPORT_POLICY})

    ui.run_with(
        app,
        title="Consilience",
        favicon="◉",
        dark=None,
        show_welcome_message=False,
        reconnect_timeout=_KEEP_SECONDS,
        binding_refresh_interval=None,
        message_history_length=20,
        tailwind=False,
    )
    return Guard(app, access)


def serve(path: Path, place: socket.socket, access: Access, *, follows_parent: bool = False) -> None:
    """Serve the page of a path until the process is stopped.

    Args:
        path: a run, a network, a node's file, or a directory of runs.
        place: where to listen.
        access: who may see it.
        follows_parent: end when standard input does, which the process that began this one holds open.
    """
    import uvicorn

    import_module("arviz")  # before anybody looks, since it takes a while
    _let_others_go_first()
    watcher = Watcher(path)
    options = {"ssl_certfile": access.certificate, "ssl_keyfile": access.key} if access.certificate else {}
    config = uvicorn.Config(
        application(watcher, access),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        ws_per_message_deflate=False,  # it would cost more than the way through this machine
        **options,  # type: ignore[arg-type]
    )
    server = uvicorn.Server(config)
    if follows_parent:
        threading.Thread(target=_stop_with_parent, args=(server,), daemon=True).start()
    watcher.start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[place])
    watcher.stop.set()


def _stop_with_parent(server: Any) -> None:
    sys.stdin.buffer.read()
    server.should_exit = True


def _let_others_go_first() -> None:
    """Leave the processors to the sampler where it wants them."""
    with contextlib.suppress(OSError):
        os.nice(_POLITE)
    logging.getLogger("nicegui").setLevel(logging.ERROR)


@contextlib.contextmanager
def page_beside(path: Path, port: int | None) -> Iterator[str]:
    """A page in a process of its own while the context lasts, on loopback; its address."""
    access = Access()
    place = listening(access.host, port)
    number = place.getsockname()[1]
    command = [sys.executable, "-m", "consilience.page", str(path.absolute()), str(place.fileno())]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}  # it computes nothing, and must not take a device
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[place.fileno()],
        start_new_session=True,
        env=environment,
    )
    place.close()
    try:
        yield access.address(number)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_KEEP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
