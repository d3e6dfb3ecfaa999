"""The live page's options: what is served where, and that a browser is opened when it is asked for."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest
import typer

from consilience.cli import page
from consilience.errors import InputError
from consilience.page import serving


@pytest.fixture
def opened(monkeypatch):
    """What a browser is asked to open, and when: no real one is."""
    found, done = [], threading.Event()
    monkeypatch.setattr("webbrowser.open", lambda address: (found.append(address), done.set()))
    return found, done


@pytest.fixture
def beside(monkeypatch):
    """Where pages are wanted, without a process."""
    wanted = []

    @contextlib.contextmanager
    def page_beside(path, port):
        wanted.append((path, port))
        yield f"http://127.0.0.1:{port}/"

    monkeypatch.setattr(serving, "page_beside", page_beside)
    return wanted


@pytest.mark.parametrize("open_browser", [False, True])
def test_a_browser_is_opened_when_it_is_asked_for(opened, beside, capsys, open_browser):
    found, done = opened
    with page.page_of(Path("run"), True, 8790, open_browser):
        assert not open_browser or done.wait(60)
    assert found == ["http://127.0.0.1:8790/"] * open_browser
    assert beside == [(Path("run"), 8790)]
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "Page: http://127.0.0.1:8790/\n")


def test_watch_opens_it_too(opened, monkeypatch, tmp_path, capsys):
    found, done = opened
    (tmp_path / "plan.toml").write_text("")
    (tmp_path / "status.json").write_text("{}")
    served = []
    monkeypatch.setattr(serving, "serve", lambda path, place, access: served.append((path, access.host)))
    page.watch(tmp_path, open_browser=True)
    assert done.wait(60)
    assert served == [(tmp_path, "127.0.0.1")]
    assert capsys.readouterr().out == f"Page: {found[0]} (Ctrl-C ends it)\n"


@pytest.mark.parametrize("options", [{"port": 8790, "open_browser": False}, {"port": None, "open_browser": True}])
def test_its_options_need_the_page(options):
    with pytest.raises(typer.BadParameter, match="add --page"), page.page_of(Path("run"), False, **options):
        pass


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"port {number} .*: choose another one with --port"):
            serving.listening("127.0.0.1", number)


def test_without_a_port_the_first_free_one_is_taken(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(serving, "FIRST_PORT", taken.getsockname()[1])
        with serving.listening("127.0.0.1", None) as place:
            assert 0 < place.getsockname()[1] - taken.getsockname()[1] < 20
