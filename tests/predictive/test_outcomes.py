"""Predictions of outcomes, streamed, against the whole array of draws and rows."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

import consilience as cs
from consilience.errors import DivergedError, InputError
from consilience.predictive.blocks import some_rows
from consilience.predictive.draws import model_draws, thinned
from consilience.predictive.new_rows import require_rows
from consilience.predictive.outcomes import Pieces, predict
from tests.outcome_problems import SPREAD, hospitals, visits

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _in_double_precision():
    with jax.enable_x64(True):
        yield


def pieces_of(parameters, cuts=(3, 40), **given):
    """Draws in pieces of unequal lengths."""
    count = len(jax.tree.leaves(parameters)[0])
    bounds = [0, *cuts, count]

    def read():
        for start, stop in itertools.pairwise(bounds):
            yield jax.tree.map(lambda leaf, start=start, stop=stop: leaf[start:stop], parameters)

    return Pieces([read], **given)


@pytest.mark.parametrize("num_bytes", [0, 2**40])
def test_blocks_and_pieces_give_what_the_whole_array_gives(monkeypatch, num_bytes):
    problem, w = visits(kind="number"), 0.05 * RNG.normal(size=(60, 2))
    rows = {"x": RNG.normal(size=23)}
    monkeypatch.setattr("consilience.predictive.outcomes._BLOCK_BYTES", 16 * 60 * 7)
    found = predict(problem.outcomes, pieces_of({"w": w}, num_bytes=num_bytes), rows, interval=0.8)["y"]
    whole = w[:, :1] + w[:, 1:] * rows["x"]
    np.testing.assert_allclose(found.mean, whole.mean(0))
    np.testing.assert_allclose(found.low, np.quantile(whole, 0.1, axis=0))
    np.testing.assert_allclose(found.high, np.quantile(whole, 0.9, axis=0))
    assert (found.outcome_low < found.low).all()
    assert (found.outcome_high > found.high).all()


def test_the_interval_of_the_outcome_holds_its_share():
    """With one value of the parameters the quantiles of the outcome are known; 4,000 draws, false alarms at 1e-6."""
    problem = visits(kind="number")
    w = np.tile([0.5, 0.4], (4000, 1))
    found = predict(problem.outcomes, pieces_of({"w": w}), {"x": np.zeros(5)}, seed=3)["y"]
    np.testing.assert_allclose(found.low, found.high)

    def off(scale):
        wanted = stats.norm.ppf((0.025, 0.975), 0.5, scale)
        density = stats.norm.pdf(wanted, 0.5, scale)
        error = np.sqrt(0.025 * 0.975 / 4000) / density
        seen = np.stack([found.outcome_low, found.outcome_high])
        return (np.abs(seen - wanted[:, None]) / error[:, None]).max()

    limit = stats.norm.isf(1e-6 / 20)
    assert off(0.5) < limit
    assert off(0.6) > limit, "the control: another noise"


def test_the_same_seed_gives_the_same_outcomes():
    problem, w = visits(), RNG.normal(size=(50, 2)) / 3
    rows = {"x": RNG.normal(size=6)}
    first, again, other = (predict(problem.outcomes, pieces_of({"w": w}), rows, seed=seed)["y"] for seed in (1, 1, 2))
    assert (first.outcome_high == again.outcome_high).all()
    assert (first.mean == other.mean).all()
    assert (first.outcome_high != other.outcome_high).any()


def test_a_new_site_has_an_effect_of_its_own_for_every_draw():
    """Its logits spread as the sites do: the variance is tested at 1e-6, and one effect serves all rows of a draw."""
    problem = hospitals()
    count = 3000
    parameters = {"coefficients": np.zeros((count, 3)), "site_effect": np.full((count, 1), 9.0)}
    pieces = pieces_of(parameters, at_new_site=problem.outcomes, seed=4)
    effects = np.concatenate([np.asarray(piece.parameters["site_effect"]) for piece in pieces])[:, 0]
    again = np.concatenate([np.asarray(piece.parameters["site_effect"]) for piece in pieces])[:, 0]
    np.testing.assert_array_equal(effects, again)
    score = np.sqrt(count / 2) * (effects.var() - 1)
    assert abs(score) < stats.norm.isf(1e-6 / 2)
    assert abs(np.sqrt(count / 2) * (effects.var() / SPREAD**2 - 1)) > stats.norm.isf(1e-6 / 2), "the control"
    found = predict(problem.outcomes, pieces, {"x": np.ones((2, 3))})["died"]
    assert found.mean[0] == found.mean[1]
    assert found.low[0] < 0.3 < 0.7 < found.high[0]
    assert found.outcome_low is None


def test_classes_have_probabilities_that_add_up():
    problem = cs.models.classifier(
        cs.models.mlp(4, [3], 3), [(np.zeros((5, 4), np.float32), np.zeros(5, np.int32))] * 2
    )
    weights = [problem.init(jax.random.key(seed)) for seed in range(4)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *weights)
    inputs = RNG.normal(size=(40, 4)).astype(np.float32)
    found = predict(problem.outcomes, pieces_of(stacked, (1,)), inputs)["label"]
    direct = np.mean([problem.outcomes.expected(one, inputs)["label"] for one in weights], 0)
    np.testing.assert_allclose(found.probabilities, direct, atol=1e-5)
    np.testing.assert_allclose(found.probabilities.sum(1), 1, atol=1e-5)


def test_what_is_not_finite_is_told_by_its_row():
    problem = visits(kind="number")
    with pytest.raises(DivergedError, match="the expected y of row 2 is not finite"):
        predict(problem.outcomes, pieces_of({"w": np.ones((50, 2))}), {"x": np.array([0.0, 1, np.nan, 2])})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({}, "there are no rows"),
        ({"x": np.zeros((0, 3))}, "the arrays are empty"),
        ({"x": np.zeros((4, 2))}, r"'x' have shape \(4, 2\), and the data \('rows', 3\)"),
        ({"x": np.zeros((4, 3)), "y": np.zeros(3)}, "have 3 and 4 entries"),
        ({"x": np.zeros((4, 3)), "z": np.zeros(4)}, "have 'z', which the data did not: it has x, y"),
        ({"y": np.zeros(4)}, r"the model cannot take these rows \(KeyError: 'x'\)"),
        ({"x": np.array([["a", "b", "c"]])}, "numbers are needed"),
        ({"x": 1.0}, "rows hold a scalar"),
    ],
)
def test_rows_of_another_form_are_refused_before_anything_is_compiled(rows, words):
    problem = hospitals()
    parameters = problem.init(jax.random.key(0))
    with pytest.raises(InputError, match=words):
        require_rows(rows, problem.shards[0], problem.outcomes, parameters)
    require_rows({"x": np.zeros((2, 3))}, problem.shards[0], problem.outcomes, parameters)


def dataset(w):
    import xarray

    variables = {"w": (("chain", "draw", "w_dim_0"), w)}
    return xarray.Dataset(variables, {"draw": np.arange(w.shape[1])}, {"parameters": ["w"]})


def test_draws_are_read_in_pieces_and_thinned_evenly(monkeypatch):
    w = RNG.normal(size=(2, 10, 2))
    monkeypatch.setattr("consilience.predictive.draws._CHUNK_BYTES", 3 * 2 * 16)
    found = [piece["w"] for piece in model_draws(visits(), dataset(w))]
    assert [len(piece) for piece in found] == [6, 6, 6, 2]
    np.testing.assert_array_equal(np.sort(np.concatenate(found), 0), np.sort(w.reshape(-1, 2), 0))
    assert thinned(dataset(w), 8)["draw"].to_numpy().tolist() == [0, 3, 6, 9]
    assert thinned(dataset(w), 50).sizes["draw"] == 10
    with pytest.raises(InputError, match="give the problem that the run sampled"):
        next(model_draws(hospitals(), dataset(w)))


def test_at_most_so_many_rows():
    assert some_rows(np.arange(9), 3).tolist() == [0, 4, 8]
    assert some_rows(np.arange(3), 5).tolist() == [0, 1, 2]
