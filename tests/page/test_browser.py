"""The page in a real browser.

`CONSILIENCE_SCREENSHOTS=DIR pytest tests/page/test_browser.py` keeps pictures of every state; four of them are in
docs/images.
"""

import contextlib
import json
import os
import re
import signal
import ssl
import time
import urllib.error
import urllib.request

import pytest

import consilience as cs
from consilience.deployment.networks import make_network
from consilience.engines.peers.settings import NodeSettings
from consilience.experiments.finishing import finish_run
from consilience.page.places import places
from consilience.page.reader import Reader
from consilience.page.watching import ask
from consilience.plans import Plan
from consilience.sampling.run import Run
from tests.command import Command
from tests.engines.peers.running import ended_at_last
from tests.page.browsing import PHONE, SECONDS, browser
from tests.page.runs import HOSTILE, gossip_run, problem
from tests.studies.patients import rows, split, study, write

SLOW = "a browser and a server"


@contextlib.contextmanager
def watched(path, *options):
    """The address of a page, served by the command line."""
    process = Command("watch", path, *options)
    with ended_at_last([process]):
        yield address_in(process.stdout, process)
    assert process.stderr.read_text() == ""


def address_in(words, process):
    """The page's address, once a process has said it."""
    until(lambda: re.search(r"Page: \S+", words.read_text()), process)
    return re.search(r"Page: (\S+)", words.read_text())[1]


def until(condition, process):
    """Wait for something while a process goes on."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.stderr.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow(reason="a server")
def test_over_tls_the_page_is_for_those_who_know_its_token(tmp_path):
    run = gossip_run(tmp_path / "run", finish=False)
    make_network(run.plan.replace(problem="tests.page.runs:problem"), tmp_path / "NET")
    own, token = tmp_path / "NET" / "certificates", tmp_path / "token"
    token.write_text("a-token-that-is-long-enough")
    token.chmod(0o600)
    files = ["--certificate", own / "agent-0.pem", "--key", own / "agent-0.key", "--token-file", token]
    trusted = ssl.create_default_context(cafile=own / "authority.pem")
    trusted.check_hostname = False  # the certificate is a node's
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=trusted), urllib.request.HTTPCookieProcessor()
    )
    with watched(run.path, *files) as address:
        assert address.startswith("https://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            opener.open(address, timeout=SECONDS)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            opener.open(f"{address}token", b"token=something-else-that-is-long", timeout=SECONDS)
        with opener.open(f"{address}token", f"token={token.read_text()}".encode(), timeout=SECONDS) as answer:
            assert answer.status == 200
            assert "client_id" in answer.read().decode()  # the page itself, where the form leads
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(address, timeout=SECONDS)


@pytest.mark.slow(reason=SLOW)
def test_hostile_names_are_text_and_a_finished_run_shows_its_verdict_and_report(tmp_path):
    """Names and lines that would run a program if they were taken for HTML, or for a template of the page's."""
    labels = (HOSTILE, "<script>document.title='owned'</script>", "{{ 7 * 7 }}")
    run = Run(gossip_run(tmp_path / "run", model=problem(HOSTILE, labels)).path)
    finish_run(run, problem(HOSTILE, labels))
    run.report()
    node = {"agent": 0, "messages": {"sent": 1, "received": 2, "rejected": 3}, "rejections": {HOSTILE: 3}}
    (run.path / "summary.json").write_text(json.dumps({**run.summary, "nodes": [node]}))
    (run.path / "network" / "logs").mkdir(parents=True)
    (run.path / "network" / "logs" / "agent-0.log").write_text(f"2026-01-01 00:00:00,000 says {HOSTILE}\n")
    with browser() as page, watched(run.path) as address:
        page.open(address)
        text = page.wait(lambda said: "Converged" in said or "Not converged" in said, "the verdict")
        assert run.summary["converged"]  # 1,000 independent draws at each agent
        assert "✓ Converged" in text
        assert "Not converged" not in text
        assert run.summary["verdict"].partition(": ")[2] in text
        assert page.all_text("td.why") == [f"{HOSTILE} (3)"]
        assert page.all_text("h1") == [HOSTILE]
        assert set(page.all_text("h3")) == set(labels)
        assert f"says {HOSTILE}" in text
        assert "{{ 7 * 7 }}" in text
        page.wait(lambda _: page.run("return document.querySelectorAll('canvas').length") >= 8, "all charts")
        assert page.run("return document.title") == "Consilience"
        assert page.run("return document.querySelectorAll('.page img, .page script').length") == 0
        loaded = page.run("return performance.getEntriesByType('resource').map(one => one.name)")
        assert [one for one in loaded if not one.startswith((address, "data:", "blob:"))] == []
        assert page.complaints() == []
        for dark in (False, True):
            page.looks(PHONE, dark)
            page.wait_for_colours(dark)
            width = "return document.documentElement.scrollWidth"
            page.wait(lambda _, width=width: page.run(width) <= PHONE[0], "a page as wide as a phone")
        page.looks()
        assert_usable_by_keyboard(page)
        page.open(page.run("return document.querySelector('a.report').href"))
        assert "<h1>" in page.driver.page_source
        assert page.run("return document.title") != "owned"
        seen = page.run(_IN_SIGHT)
        assert seen
        assert all({"R-hat", "ESS"} <= set(headings) for headings in seen)


_IN_SIGHT = """
return [...document.querySelectorAll('table')].filter(one => one.tHead && one.tHead.innerText.includes('R-hat'))
  .map(one => [...one.tHead.querySelectorAll('th')].filter(
    head => head.getBoundingClientRect().right <= one.closest('.scroll').getBoundingClientRect().right + 1
  ).map(head => head.innerText.trim()))
"""
"""Of the report's tables that say how chains mixed, the headings that are seen without scrolling."""


def assert_usable_by_keyboard(page):
    """Tab comes to buttons, links and fields from the top of the page; Space hides a line, Enter changes colours."""
    from selenium.webdriver.common.keys import Keys

    def press(key):
        page.driver.switch_to.active_element.send_keys(key)

    kinds, role, checked = set(), "return document.activeElement.getAttribute('role')", "aria-checked"
    for _ in range(30):
        press(Keys.TAB)
        kinds.add(page.run("return document.activeElement.tagName"))
        if page.run("return document.activeElement.innerText").startswith("Colours: "):
            press(Keys.ENTER)
            page.wait(lambda said: "Colours: light" in said, "that colours change")
        if page.run(role) == "checkbox":
            break
    assert kinds >= {"A", "BUTTON", "INPUT"}
    assert page.run(f"return document.activeElement.getAttribute('{checked}')") == "true"
    press(Keys.SPACE)
    off = f"return document.querySelectorAll('.legend [role=checkbox][{checked}=false]').length"
    page.wait(lambda _: page.run(off) == 1, "that a line is hidden")


def study_network(place, **plan):
    """A network of three sites with patients of their own, and its nodes' files."""
    model = study(name="patients")
    data = [write(place / f"site-{number}.csv", site) for number, site in enumerate(split(rows(240), 3))]
    entries = {"num_warmup": 200, "num_draws": 1200, "num_chains": 2, "seed": 3, **plan}
    made = Plan(graph=cs.graphs.path(3), sampler=cs.nuts(), study=model.entries(), **entries)
    return make_network(made, place / "NET", data=data, checkpoint_seconds=0.5)


def assert_own_view(file):
    """What a site sees with nothing but its own file and certificate: itself, its neighbour, and no more."""
    ((_, place),) = places(file).items()
    reader = Reader()
    reader.hearing.take(ask(place, 30.0), 0.0)
    assert [one.state for one in reader.snapshot(place).agents] == ["sampling", "lost", "unknown"]


def stored(file):
    """How many draws of a chain a node has stored."""
    try:
        group = json.loads((NodeSettings.load(file).run / "draws.zarr" / "zarr.json").read_text())
        return group["consolidated_metadata"]["metadata"]["posterior/step"]["shape"][0]
    except (OSError, KeyError):
        return 0


def draws_in(text):
    """How many draws of a chain there are, as the page says it."""
    found = re.search(r"([\d,]+) of [\d,]+ draws", text)
    return 0 if found is None else int(found[1].replace(",", ""))


@pytest.mark.slow(reason="a network of real processes, one of which is killed, and a browser")
def test_a_network_is_seen_to_move_to_lose_a_node_and_to_finish(tmp_path):
    """However fast it samples and however slow the page is: while a node is gone the others wait, and the page has
    all the time that it takes."""
    files = study_network(tmp_path)
    with browser() as page, watched(tmp_path / "NET") as address:
        page.open(address)
        text = page.wait(lambda said: said.count("not here yet") == 3, "that no node is here yet")
        assert text.count("No draws yet.") == 3  # the verdict, convergence, marginals: and nothing that is empty
        assert "prior" not in text
        nodes = [Command("node", path, *(["--page"] if path == files[2] else [])) for path in files]
        with ended_at_last(nodes):
            page.picture("page-warming-up", when=lambda said: "Warming up: move" in said)
            until(lambda: stored(files[0]) > 0, nodes[0])
            page.picture("page-running", when=lambda said: said.count("sampling") == 3 and draws_in(said) > 100)
            page.picture("running-phone", PHONE)
            nodes[1].kill()
            nodes[1].wait(SECONDS)
            page.wait(lambda said: "lost" in said and "does not answer" in said, "that a node is gone")
            page.wait(lambda said: said.count("waiting") == 2 and "for agent 1" in said, "for whom the others wait")
            text = page.wait(lambda said: "Marginals" in said and "of 1,200 draws" in said, "draws")
            assert "everybody waits" in text
            assert_own_view(files[0])
            page.picture("page-one-node-killed")
            before = stored(files[0])
            nodes[1] = Command("node", files[1])
            until(lambda: stored(files[0]) > before, nodes[0])
            page.wait(lambda said: "lost" not in said and "waiting" not in said, "that it is back")
            page.wait(lambda said: "Done." in said or draws_in(said) > before, "that numbers move")
            page.wait(lambda said: "Done." in said, "the end")
            for node in nodes:
                assert node.wait(SECONDS) == 0, node.stderr.read_text()
        assert re.search(r"^Page: http://127\.0\.0\.1:\d+/$", nodes[2].stderr.read_text(), re.MULTILINE)
        assert "agent 2" in (files[2].parent / "logs" / "agent-2.log").read_text()
        done = page.wait(lambda said: "✓ Converged\n" in said or "✕ Not converged" in said, "the verdict")
        assert "✕ Not converged" not in done  # 2,400 draws by NUTS of a regression on 240 rows
        text = page.wait(lambda said: re.search(r"are the same to the bit", said), "that agents agree")
        assert "The dotted grey line is the prior" in text
        page.picture("page-done", dark=True)
        page.picture("done-phone-dark", PHONE, dark=True)
        assert page.complaints() == []


@pytest.mark.slow(reason="a run and its page, as processes")
def test_a_page_beside_a_run_ends_with_it_even_if_it_is_killed(tmp_path):
    path = tmp_path / "run"
    steps = ["--step-size", 1e-3, "--consensus", 0.2, "--steps", 500_000_000, "--store-every", 1_000_000]
    process = Command("run", "tests.deployment.test_merging:sensors", "--agents", 3, *steps, "--page", "--out", path)
    with ended_at_last([process]):
        address = address_in(process.stderr, process)
        os.kill(process.pid, signal.SIGSTOP)  # the page yields to it: it would answer late on a machine that is busy
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            assert answer.status == 200
        process.kill()  # it cannot say goodbye
        process.wait(SECONDS)
        deadline = time.monotonic() + SECONDS
        while is_served(address):
            assert time.monotonic() < deadline, "the page outlived its run"
            time.sleep(0.05)


def is_served(address):
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except OSError:
        return False
    return True
