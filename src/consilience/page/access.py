"""Who may see the page: on loopback this machine, anywhere else whoever knows the token, over TLS.

A page of another site in the same browser must not read this one: requests for other host names are refused (so no
name can be bound to this address), and so are those that another site's page makes.
"""

from __future__ import annotations

import hmac
import html
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from consilience.engines.peers.settings import is_loopback
from consilience.errors import InputError

_SHORTEST_TOKEN = 20
_COOKIE = "consilience_page"
_LONGEST_FORM = 4096
_PRIVATE = 0o077
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "frame-ancestors 'none'; form-action 'self'; base-uri 'self'; object-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Nothing is loaded from elsewhere, and nothing is told to others."""
_FORM = (Path(__file__).parent / "token.html").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Access:
    """Where the page is served, and to whom.

    Attributes:
        host: the address.
        certificate: with `key` the files of TLS; needed off loopback.
        token: what a visitor must know; needed off loopback.
    """

    host: str = "127.0.0.1"
    certificate: Path | None = None
    key: Path | None = None
    token: str | None = None
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """What a browser keeps that has shown the token, while this process lasts."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InputError("TLS takes a certificate and its key: give both, --certificate and --key")
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise InputError(f"{path} is missing: TLS needs a certificate and its key")
        if not is_loopback(self.host) and (self.certificate is None or self.token is None):
            raise InputError(
                f"{self.host} is not on loopback, and there the page is served over TLS and to those who know a "
                "token only: give --certificate, --key and --token-file; or leave out --host, and come through a "
                "tunnel (ssh -L)"
            )

    @property
    def scheme(self) -> str:
        """`https` with TLS."""
        return "http" if self.certificate is None else "https"

    def address(self, port: int) -> str:
        """What to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}/"


def read_token(path: Path) -> str:
    """The token in a file that nobody else can read."""
    try:
        mode, token = path.stat().st_mode, path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the token file {path} cannot be read: {error}") from None
    if mode & _PRIVATE:
        raise InputError(f"others can read the token file {path}: chmod 600 {path}")
    if len(token) < _SHORTEST_TOKEN:
        raise InputError(
            f"the token in {path} has {len(token)} characters, {_SHORTEST_TOKEN} at least are wanted; for example: "
            "python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


class Guard:
    """Lets requests through that may see the page; others hear why not."""

    def __init__(self, app: App, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_own(headers):
            await _refuse(scope, send, 403, "This page answers requests of its own only.")
        elif self.access.token is None or self._is_known(headers):
            await self.app(scope, receive, _with_headers(send))
        elif scope["type"] == "http" and scope["path"] == "/token" and scope["method"] == "POST":
            await self._sign_in(receive, send)
        else:
            await _refuse(scope, send, 401, "", _FORM.replace("WORDS", "This page is for those who know its token."))

    def _is_own(self, headers: dict[str, str]) -> bool:
        """Whether a request is for this page's name and not made by another site's page."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return False
        return not is_loopback(self.access.host) or is_loopback(urlsplit(f"//{host}").hostname or "")

    def _is_known(self, headers: dict[str, str]) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self.access.session.encode())

    async def _sign_in(self, receive: Receive, send: Send) -> None:
        """Give a cookie to whoever says the token."""
        body, more = b"", True
        while more and len(body) <= _LONGEST_FORM:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        said = parse_qs(body[:_LONGEST_FORM].decode("utf-8", "replace")).get("token", [""])[0].strip()
        if not hmac.compare_digest(said.encode(), (self.access.token or "").encode()):
            await _answer(send, 401, _FORM.replace("WORDS", "That is not the token of this page."))
            return
        secure = "; Secure" if self.access.scheme == "https" else ""
        cookie = f"{_COOKIE}={self.access.session}; HttpOnly; SameSite=Strict; Path=/{secure}"
        await _answer(send, 303, "", {"location": "/", "set-cookie": cookie})


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            said = {name for name, _ in message.get("headers", ())}
            message["headers"] = [*message.get("headers", ()), *(one for one in given if one[0] not in said)]
        await send(message)

    return sending


async def _refuse(scope: Scope, send: Send, code: int, words: str, page: str | None = None) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await _answer(send, code, page or f"<!doctype html><p>{html.escape(words)}</p>")


async def _answer(send: Send, code: int, page: str, more: dict[str, str] | None = None) -> None:
    headers = {"content-type": "text/html; charset=utf-8", "cache-control": "no-store", **HEADERS, **(more or {})}
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": code, "headers": given})
    await send({"type": "http.response.body", "body": page.encode()})
