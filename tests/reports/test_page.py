"""The page of a report: figures that zoom and follow its theme, nothing fetched, nothing cut off or left out."""

import re
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
import xarray
from jax.scipy.stats import norm

import consilience as cs
from consilience.reports import figures, tables
from consilience.reports.run_report import _agreement_words
from consilience.reports.theme import COLOURS, drawn, palette
from consilience.reports.unison_report import chain_marginals, chain_traces
from tests.made_runs import gossip_plan, made_run, unison_plan

_BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def wide(num_agents, size=12):
    rows = np.zeros((4, size))
    return cs.Problem(
        log_likelihood=lambda w, x: norm.logpdf(x, w["w"]).sum(-1),
        log_prior=lambda w: -(w["w"] ** 2).sum(),
        init=lambda key: {"w": np.zeros(size)},
        shards=[rows] * num_agents,
    )


def gossip_run(path, num_agents=3, **about):
    draws = np.random.default_rng(0).normal(size=(2, num_agents, 40, 12))
    return made_run(path, wide(num_agents), gossip_plan(num_agents, 40), {"w": draws}, **about)


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    run = gossip_run(tmp_path_factory.mktemp("page") / "run")
    return run, run.report().read_text()


def test_figures_are_drawn_in_the_page_and_stand_beside_it(reported):
    run, text = reported
    assert text.count("<svg ") == len(list((run.path / "figures").glob("*.png"))) >= 4
    assert text.count('class="figure"') == text.count("<svg ")


def test_the_verdict_comes_first_and_is_marked(reported):
    """80 independent draws of each of 12 parameters at each agent are no 400."""
    run, text = reported
    first = text.partition("<section")[2].partition("</section>")[0]
    assert first.startswith(' class="verdict not">')
    assert "✕ Not converged</h2>" in first
    assert f"What to do: {run.summary['remedy']}." in first


def test_a_page_fetches_nothing(reported):
    outside = re.findall(r"""(?:src|href)=["']https?:[^"']*|@import|url\(https?:""", reported[1])
    assert [found for found in outside if "xlink" not in found] == []


def test_colours_follow_the_theme(reported):
    _, text = reported
    inside = "".join(re.findall(r"<svg .*?</svg>", text, re.DOTALL))
    assert not [colour for colour in COLOURS if colour in inside]
    assert "var(--line-0)" in inside
    named = [set(re.findall(r"--([\w-]+):", palette(dark))) for dark in (False, True)]
    assert named[0] == named[1] >= set(re.findall(r"var\(--([\w-]+)\)", inside))
    for dark in (False, True):
        lines = re.findall(r"--line-\d: (#\w+);", palette(dark))
        assert len(set(lines)) == len(COLOURS)


def test_all_of_twelve_parameters_are_shown(tmp_path):
    run = gossip_run(tmp_path / "gossip")
    assert len(figures.marginals(run).axes) == 12
    assert sum(axis.has_data() for axis in figures.traces(run).axes) == 12
    shared = np.random.default_rng(0).normal(size=(2, 60, 12))
    unison = made_run(tmp_path / "unison", wide(2), unison_plan(2, 60), {"w": shared})
    assert len(chain_marginals(unison).axes) == 12
    panels = chain_traces(unison).axes
    assert sum(axis.has_data() for axis in panels) == 12
    assert [(line.get_xdata()[0], line.get_xdata()[-1]) for line in panels[0].get_lines()] == [(0, 59), (60, 119)]


def test_agents_that_agree_can_be_told_apart_in_traces(tmp_path):
    """The lines of agents lie over each other: each is narrower than the one below, in a colour of its own."""
    lines = figures.traces(gossip_run(tmp_path / "run")).axes[0].get_lines()
    widths = [line.get_linewidth() for line in lines]
    assert len(widths) == 3
    assert widths == sorted(widths, reverse=True)
    assert min(np.diff(widths[::-1])) > 0.3
    assert len({line.get_color() for line in lines}) == 3


def test_a_curve_on_a_logarithmic_scale_begins_where_agents_first_differ():
    errors = np.tile(np.r_[0.0, 0.0, 1 / np.arange(1.0, 39.0)], (2, 1))
    measured = xarray.Dataset({"consensus_error": (("chain", "time"), errors), "step": ("time", np.arange(40))})
    run = SimpleNamespace(plan=gossip_plan(3, 40), metrics=measured)
    (axis,) = figures.consensus({"3 agents": run}).axes
    assert all((line.get_ydata() > 0).all() for line in axis.get_lines())


def test_a_small_network_is_a_small_picture(reported):
    run, _ = reported
    assert max(figures.network(run).get_size_inches()) < 3
    assert 'height="240"' in drawn(figures.network(run), "network")


def test_a_slope_that_is_not_the_theorems_has_words():
    def words(fitted, theorem=0.45):
        return _agreement_words({"consensus_rate": {"fitted": fitted, "theorem": theorem}})

    assert "1.68 here, and the theorem says 0.45: that is a bound from above" in words(1.68)
    assert "too short" in words(0.1)
    assert "does not fall here (slope 0.20), and the theorem says 0.45: " in words(-0.2)
    assert "theorem says" not in words(0.47)
    assert "theorem says" not in words(1.68, None)


def test_a_node_has_no_average_over_agents(reported):
    run, _ = reported
    whole, own = run.summary, {**run.summary, "agents": run.summary["agents"][1:2]}
    assert tables.agents(whole).body[-1][0] == "network average"
    assert [row[0] for row in tables.agents(own).body] == ["agent 1"]
    assert tables.agents(whole).header[1:3] == ("R-hat", "ESS")  # in sight wherever the table is cut


def test_classifiers_show_accuracy_and_no_weights():
    agents = [{"agent": i, "accuracy": 0.84 + 0.01 * i} for i in range(2)]
    shown = tables.classifiers({"agents": agents, "accuracy_mean": 0.845, "predictive_accuracy": 0.85})
    assert shown.header == ("", "accuracy", "of averaged draws")
    assert shown.body[-1] == ("all agents", "84.50 %", "85.00 %")
    calibrated = {**agents[0], "in_distribution": {"confidence_mean": 0.9, "ece": 0.02}}
    assert tables.classifiers({"agents": [calibrated]}).header == ("", "accuracy", "confidence", "calibration error")


def test_a_wide_table_is_printed_in_parts_that_lose_nothing():
    table = tables.Table(tuple("abcdef"), (tuple("123456"), tuple("7890xy")))
    parts = tables.in_parts(table, 10)
    assert all(part.header[0] == "a" and sum(3 for _ in part.header) <= 10 for part in parts)
    assert [title for part in parts for title in part.header[1:]] == list("bcdef")
    assert [cell for part in parts for cell in part.body[1][1:]] == list("890xy")


@pytest.mark.slow(reason="a browser is started, if there is one")
def test_a_figure_is_enlarged_in_a_browser(reported, tmp_path):
    if _BROWSER is None:
        pytest.skip("no Chromium here: nothing looked at the page")
    act = """<script>document.querySelector(".figure").click(); document.querySelector("[data-zoom]").click();
    document.body.dataset.seen = document.getElementById("large").open + " "
      + document.querySelector(".view svg").style.transform;</script></body>"""
    (tmp_path / "page.html").write_text(reported[1].replace("</body>", act))
    command = [_BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    done = subprocess.run([*command, f"file://{tmp_path}/page.html"], capture_output=True, text=True, timeout=120)
    (seen,) = re.findall(r'data-seen="([^"]*)"', done.stdout)
    assert re.fullmatch(r"true translate\(.*\) scale\(1\.4\)", seen), seen
