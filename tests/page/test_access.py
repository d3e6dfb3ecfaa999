"""Who may see the page, asked of the guard itself, without a server."""

import asyncio

import pytest

from consilience.errors import InputError
from consilience.page.access import Access, Guard, read_token
from tests.cli.test_commands import error_of

TOKEN = "a-token-that-is-long-enough"


async def inner(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the page"})
    else:
        await send({"type": "websocket.accept"})


def ask(access, path="/", method="GET", body=b"", kind="http", **headers):
    """What the guard sends to a request."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    given = {"host": "127.0.0.1:8780", **headers}
    encoded = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": kind, "path": path, "method": method, "headers": encoded}
    asyncio.run(Guard(inner, access)(scope, receive, send))
    return sent


def status(sent):
    return sent[0].get("status", sent[0]["type"])


@pytest.fixture
def tls(tmp_path):
    for name in ("page.pem", "page.key"):
        (tmp_path / name).write_text("")
    return {"certificate": tmp_path / "page.pem", "key": tmp_path / "page.key"}


def test_off_loopback_tls_and_a_token_are_needed(tls):
    for given in ({}, tls, {"token": TOKEN}):
        with pytest.raises(InputError, match="not on loopback"):
            Access("0.0.0.0", **given)
    assert Access("0.0.0.0", **tls, token=TOKEN).address(1) == "https://0.0.0.0:1/"
    assert Access().address(8780) == "http://127.0.0.1:8780/"
    with pytest.raises(InputError, match="give both"):
        Access(certificate=tls["certificate"])


def test_on_loopback_only_this_page_may_ask():
    assert status(ask(Access())) == 200
    assert status(ask(Access(), origin="http://127.0.0.1:8780")) == 200
    assert status(ask(Access(), origin="http://evil.example")) == 403
    assert status(ask(Access(), host="evil.example:8780")) == 403  # a name that was bound to this address
    assert status(ask(Access(), kind="websocket", origin="http://evil.example")) == "websocket.close"
    assert status(ask(Access(), kind="websocket", origin="http://127.0.0.1:8780")) == "websocket.accept"


def test_a_token_keeps_others_on_this_machine_out():
    access = Access(token=TOKEN)
    assert status(ask(access)) == 401
    opened = ask(access, "/token", "POST", f"token={TOKEN}".encode())
    cookie = dict(opened[0]["headers"])[b"set-cookie"].decode()
    assert "Secure" not in cookie  # there is no TLS here, and a browser would not send it back
    assert status(ask(access, cookie=cookie.split(";")[0])) == 200


def test_nothing_is_loaded_from_elsewhere():
    headers = dict(ask(Access())[0]["headers"])
    policy = headers[b"content-security-policy"].decode()
    assert policy.startswith("default-src 'self'")
    assert "http" not in policy


def test_a_token_opens_the_page_and_nothing_else_does(tls):
    access = Access("0.0.0.0", **tls, token=TOKEN)
    for headers in (
        {},
        {"cookie": "consilience_page=wrong"},
        {"cookie": "\x7f;;=="},
        {"cookie": f"consilience_page={TOKEN}"},
    ):
        assert status(ask(access, **headers)) == 401
        assert status(ask(access, kind="websocket", **headers)) == "websocket.close"
    assert status(ask(access, "/token", "POST", b"token=wrong")) == 401
    assert status(ask(access, "/token", "POST", b"token=" + b"x" * 100_000)) == 401
    opened = ask(access, "/token", "POST", f"token={TOKEN}".encode())
    headers = dict(opened[0]["headers"])
    assert (status(opened), headers[b"location"]) == (303, b"/")
    cookie = headers[b"set-cookie"].decode()
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Secure"))
    assert TOKEN not in cookie
    assert status(ask(access, cookie=cookie.split(";")[0])) == 200


def test_a_token_is_long_and_private(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o644)
    with pytest.raises(InputError, match="others can read"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    path.write_text("short")
    with pytest.raises(InputError, match="5 characters"):
        read_token(path)


def test_the_command_line_refuses_what_is_open_to_all(tmp_path):
    (tmp_path / "plan.toml").write_text("")
    (tmp_path / "status.json").write_text("{}")
    assert "not on loopback" in error_of("watch", tmp_path, "--host", "0.0.0.0")
