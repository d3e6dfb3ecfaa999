"""`consilience watch`, and the page beside a command that samples."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from consilience.page.access import Access

WatchPath = Annotated[Path, typer.Argument(help="A run's directory, a network's, or a node's file.")]
Page = Annotated[bool, typer.Option("--page", help="Show a live page meanwhile, on this machine.")]
Port = Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Port of the live page.")]
Open = Annotated[bool, typer.Option("--open", help="Open the live page in a browser.")]
Host = Annotated[str, typer.Option("--host", help="Address of the page; off loopback it needs TLS and a token.")]
Certificate = Annotated[Path | None, typer.Option("--certificate", help="TLS certificate of the page.")]
Key = Annotated[Path | None, typer.Option("--key", help="Its key.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="A file with what visitors of the page must know.")
]


def watch(
    path: WatchPath,
    port: Port = None,
    open_browser: Open = False,
    host: Host = "127.0.0.1",
    certificate: Certificate = None,
    key: Key = None,
    token_file: TokenFile = None,
) -> None:
    """Show a run, a network or a node on a live page in a browser; it only reads."""
    from consilience.page import require_packages

    require_packages()
    from consilience.page import places, serving

    places.require_watchable(path)
    access = _access(path, host, certificate, key, token_file)
    with serving.listening(access.host, port) as place:
        address = access.address(place.getsockname()[1])
        typer.echo(f"Page: {address} (Ctrl-C ends it)")
        if open_browser:
            _open_soon(address)
        serving.serve(path, place, access)


def _access(
    path: Path, host: str, certificate: Path | None = None, key: Path | None = None, token_file: Path | None = None
) -> Access:
    """Who may see the page; that of a node's file uses the node's own certificate, if no other is given."""
    from consilience.engines.peers.settings import NodeSettings, is_loopback
    from consilience.page.access import Access, read_token

    if certificate is None and key is None and path.is_file() and not is_loopback(host):
        tls = NodeSettings.load(path).tls
        certificate, key = (tls.certificate, tls.key) if tls is not None else (None, None)
    return Access(host, certificate, key, None if token_file is None else read_token(token_file))


@contextlib.contextmanager
def page_of(path: Path, wanted: bool, port: int | None, open_browser: bool) -> Iterator[None]:
    """A live page while a command samples into a path, if that is wanted; on a terminal it stays until Ctrl-C."""
    if not wanted:
        if port is not None or open_browser:
            raise typer.BadParameter("--port and --open are for the live page: add --page")
        yield
        return
    from consilience.page import require_packages

    require_packages()
    from consilience.page.serving import page_beside

    with page_beside(path, port) as address:
        print(f"Page: {address}", file=sys.stderr, flush=True)
        if open_browser:
            _open_soon(address)
        yield
        if sys.stdin.isatty() and sys.stderr.isatty():
            print(f"The page stays at {address} until Ctrl-C.", file=sys.stderr, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                _wait()


def _wait() -> None:
    import threading

    threading.Event().wait()


def _open_soon(address: str) -> None:
    """Open a browser; the page may take some seconds to answer it, which it waits for."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
