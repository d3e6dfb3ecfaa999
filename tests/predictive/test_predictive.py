import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn import metrics

from consilience.errors import DivergedError, InputError
from consilience.predictive import Predictor, detect, reliability, score
from consilience.predictive.out_of_distribution import separation

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(50, 4)).astype(np.float32)
DRAWS = RNG.normal(size=(30, 4, 3)).astype(np.float32)


def linear(w, x):
    return x @ w


def everything(draws):
    """The whole array of draws × inputs × classes, which the predictor never builds."""
    return softmax(np.einsum("ni,sic->snc", INPUTS, draws), -1)


@pytest.mark.parametrize(("piece", "part"), [(7, 21), (7, 40), (32, 2048), (50, 50)])
def test_streaming_gives_what_the_whole_array_gives(piece, part, monkeypatch):
    monkeypatch.setattr("consilience.predictive.classes._PIECE", piece)
    monkeypatch.setattr("consilience.predictive.classes._PART", part)
    predictor = Predictor(linear, INPUTS)
    predictor.add_all(np.split(DRAWS, [1, 4, 20]))
    found, whole = predictor.result(), everything(DRAWS)
    np.testing.assert_allclose(found.probabilities, whole.mean(0), atol=1e-6)
    np.testing.assert_allclose(found.deviations, whole.std(0), atol=1e-4)
    np.testing.assert_allclose(found.aleatoric, -(whole * np.log(whole)).sum(-1).mean(0), atol=1e-5)
    np.testing.assert_allclose(found.entropy, -(whole.mean(0) * np.log(whole.mean(0))).sum(-1), atol=1e-5)
    predicted = whole.mean(0).argmax(-1)
    np.testing.assert_allclose(found.confidence_deviation, whole.std(0)[np.arange(50), predicted], atol=1e-4)
    assert found.num_draws == 30
    assert (found.epistemic >= 0).all()
    assert found.epistemic.mean() > 0.1


def test_a_single_draw_has_no_epistemic_uncertainty():
    predictor = Predictor(linear, INPUTS)
    predictor.add(DRAWS[:1])
    assert predictor.result().epistemic.max() < 1e-5


def test_draws_may_be_any_pytree():
    predictor = Predictor(lambda w, x: x @ w["w"] + w["b"], INPUTS)
    predictor.add({"w": DRAWS, "b": np.zeros((30, 3), np.float32)})
    np.testing.assert_allclose(predictor.result().probabilities, everything(DRAWS).mean(0), atol=1e-6)


def test_predictions_that_are_not_finite_are_an_error():
    inputs = np.array([[1.0] * 4, [101.0] * 4])
    for logits in (
        lambda w, x: jnp.where(x[:, :1] > 100, jnp.nan, x @ w),
        lambda w, x: jnp.log(100 - x[:, :1]) + x @ w,
        lambda w, x: jnp.where(x[:, :1] > 100, jnp.inf, x @ w),
    ):
        predictor = Predictor(logits, inputs)
        predictor.add(DRAWS)
        with pytest.raises(DivergedError, match="input 1"):
            predictor.result()
    with pytest.raises(InputError, match="no draws"):
        Predictor(linear, INPUTS).result()


@given(st.integers(0, 10**6))
def test_scores_agree_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4), 60)
    labels = rng.integers(0, 4, 60)
    found = score(p, labels)
    assert found.accuracy == pytest.approx(metrics.accuracy_score(labels, p.argmax(-1)))
    assert found.log_loss == pytest.approx(metrics.log_loss(labels, p, labels=range(4)))
    corners = np.eye(4)[labels]
    assert found.brier == pytest.approx(((p - corners) ** 2).sum() / 60)


def test_calibrated_probabilities_have_a_small_calibration_error_and_overconfident_ones_a_large_one():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 100_000)
    labels = (rng.random((100_000, 1)) > p.cumsum(-1)).sum(-1)
    assert score(p, labels).calibration_error < 0.006
    sharp = p**3 / (p**3).sum(-1, keepdims=True)
    assert score(sharp, labels).calibration_error > 0.1


def test_reliability_by_hand():
    p = np.array([[0.95, 0.05], [0.9, 0.1], [0.55, 0.45]])
    found = reliability(p, np.array([0, 1, 0]), bins=10)
    assert found.share.tolist() == pytest.approx([0] * 5 + [1 / 3, 0, 0, 1 / 3, 1 / 3])
    assert found.accuracy[[5, 8, 9]].tolist() == [1.0, 0.0, 1.0]
    assert found.error == pytest.approx((0.45 + 0.9 + 0.05) / 3)


@pytest.mark.parametrize(("p", "labels"), [(np.ones((3, 2)), np.zeros(2)), (np.ones((2, 2)), np.array([0, 2]))])
def test_labels_that_do_not_fit_are_refused(p, labels):
    with pytest.raises(InputError):
        score(p, labels)


def test_out_of_distribution_inputs_are_told_apart_by_what_the_draws_disagree_on():
    outside = 5 * RNG.normal(size=(200, 4)).astype(np.float32)
    tilted = np.concatenate([INPUTS, INPUTS])
    base = 3 * RNG.normal(size=(4, 3)).astype(np.float32)
    draws = base + 0.3 * RNG.normal(size=(40, 4, 3)).astype(np.float32)
    predictions = []
    for inputs in (tilted, outside):
        predictor = Predictor(linear, inputs)
        predictor.add(draws)
        predictions.append(predictor.result())
    found = detect(*predictions)
    assert set(found) == {"confidence", "entropy", "mutual_information"}
    same = detect(predictions[0], predictions[0])
    assert same["entropy"].auroc == pytest.approx(0.5)  # the control: no difference, no separation


def test_separation_by_hand():
    found = separation(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.35, 0.5, 0.6, 0.7]))
    assert found.auroc == pytest.approx(15 / 16)
    assert found.false_alarms == pytest.approx(0.25)
    assert separation(np.zeros(5), np.zeros(5)).auroc == pytest.approx(0.5)
    with pytest.raises(InputError, match="both kinds"):
        separation(np.zeros(0), np.ones(1))
