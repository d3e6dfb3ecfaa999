"""What a run shows of its warm-up, from the plain values of a summary."""

from types import SimpleNamespace

import pytest

import consilience as cs
from consilience.reports.warmup_report import (
    agreement_rows,
    prediction_section,
    warmup_in_words,
    warmup_section,
    windows,
)

WINDOWS = [
    {"steps": 75, "step_size": 0.2, "exchanges": 2, "curvature": 5.0, "excess": 1.5, "least": 0.4, "largest": 2.6,
     "moved": 1.2},
    {"steps": 150, "step_size": 0.4, "exchanges": 3, "curvature": 1.2, "excess": 1.4, "least": 0.8, "largest": 1.3,
     "moved": 0.0},
]  # fmt: skip
PREDICTED = {"mean_error": [1e-9, 0.02], "variance_error": [0.01, -0.06], "excess": [0.05, -0.01]}
FOUND = {
    "step_size": 0.41, "exchanges": 1, "curvature": 1.2, "excess": 1.4, "whitening": "dense", "centre": [0.0, 1.0],
    "scales": [0.5, 2.0], "condition": 4.0, "settled": True, "windows": WINDOWS, "rounds": 800, "sums": 12,
    "gradients": 275, "predicted": PREDICTED,
}  # fmt: skip


def summary(agents=2, **found):
    """Two parameters; the second agent is wider than the average by a tenth in the second of them."""
    described = [
        {"agent": 0, "mean": [0.0, 1.0], "standard_deviation": [1.0, 2.0]},
        {"agent": 1, "mean": [0.5, None], "standard_deviation": [1.0, 2.0 * 1.1**0.5]},
    ]
    return {
        "method": "corrected kinetic Langevin", "num_agents": agents, "rounds": 2000, "gradients": 1000,
        "rounds_per_effective_draw": 15.0, "agents": described, "adaptation": {**FOUND, **found},
        "network_average": {"mean": [0.0, 1.0], "standard_deviation": [1.0, 2.0]},
    }  # fmt: skip


def run_of(content, agents=2):
    return SimpleNamespace(
        summary=content, plan=cs.Plan(graph=cs.graphs.path(agents), sampler=cs.kinetic(), num_draws=9)
    )


def test_words_say_what_was_found_and_what_is_left():
    said = " ".join(warmup_in_words(summary()))
    assert said.startswith("Corrected kinetic Langevin: step size 0.41, 1 exchange with neighbours in a step, dense")
    assert "found in 275 steps and 12 sums over the network." in said
    assert "1,000 gradients at each agent, 2,000 rounds of messages, 15" in said
    assert "means 0.02 sd off, variances -6.0 % at the worst agent." in said
    assert "(agent 1): predicted -1.0 %, measured +10.0 %." in said
    assert "had not settled" not in said
    assert "Minibatches" not in said


def test_words_say_what_is_wrong_or_not_known():
    left_out = {"left_out": "there are private parameters"}
    said = " ".join(warmup_in_words(summary(settled=False, exchanges=3, predicted=left_out)))
    assert "The coordinates had not settled when it ended: allow it more steps." in said
    assert "3 exchanges with" in said
    assert "What errors are left was not predicted: there are private parameters." in said
    assert not any("predicted" in line for line in warmup_in_words(summary(agents=1)))
    dear = {**summary(), "rounds_per_effective_draw": None}
    assert "effective draw" not in " ".join(warmup_in_words(dear))


@pytest.mark.parametrize(("control_variates", "how"), [
    (True, "with control variates (without: 38"), (False, "without control variates, which heats by 20 %"),
])  # fmt: skip
def test_words_say_what_minibatches_do(control_variates, how):
    noise = {
        "gradient_noise": 2.0,
        "gradient_noise_without": 38.0,
        "heating": 1.2,
        "control_variates": control_variates,
    }
    assert how in " ".join(warmup_in_words(summary(**noise)))


def test_rows_hold_predictions_beside_what_draws_show():
    first, second = agreement_rows(summary())
    assert (first["predicted"], first["measured"], first["apart"]) == (0.05, 0.0, 0.0)
    assert (second["mean_error"], second["variance_error"], second["predicted"]) == (0.02, -0.06, -0.01)
    assert second["measured"] == pytest.approx(0.1)
    assert second["apart"] == 0.5  # the mean that is not known is left out


def test_sections_of_the_report():
    (found,) = warmup_section(run_of(summary()))
    cells = {row[0]: row[1] for row in found.table.body}
    assert cells["step size"] == "0.41"
    assert cells["scales of the shared parameters"] == "0.5, 2"
    assert "noise of minibatches σ²" not in cells
    assert set(found.figures) == {"warmup"}
    (left,) = prediction_section(run_of(summary()))
    assert [list(row) for row in left.table.body] == [
        ["agent 0", "< 0.001 sd", "+1.0 %", "< 0.001 sd", "+5.0 %", "+0.0 %"],
        ["agent 1", "0.02 sd", "-6.0 %", "0.5 sd", "-1.0 %", "+10.0 %"],
    ]
    (untold,) = prediction_section(run_of(summary(predicted={"left_out": "of this"})))
    assert untold.text == "Not predicted: of this."
    assert warmup_section(run_of({"adaptation": {"step_size": 1.0}})) == []
    assert prediction_section(run_of(summary(agents=1), 1)) == []


def test_the_figure_has_every_window():
    left, right = windows(FOUND).axes
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["75", "150"]
    moved = left.lines[0].get_ydata().tolist()
    assert moved == [1.2, 1e-3]  # 0 has no place on a logarithmic scale
    assert [line.get_ydata().tolist() for line in right.lines] == [[0.2, 0.4], [5.0, 1.2], [1.5, 1.4]]
