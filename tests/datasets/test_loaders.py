"""The data sets themselves: those inside scikit-learn always, the others where they are."""

import os
from pathlib import Path

import numpy as np
import pytest

from consilience.datasets import DATASETS, load
from consilience.datasets.availability import availability, fetch
from consilience.datasets.files import find
from consilience.errors import DataError

BESIDE = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def where(monkeypatch):
    if "CONSILIENCE_DATA" not in os.environ and BESIDE.is_dir():
        monkeypatch.setenv("CONSILIENCE_DATA", str(BESIDE))


def require_here(name):
    if any(find(versions) is None for versions in DATASETS[name].files.values()):
        pytest.skip(f"the data set {name} is not here")


def test_digits_and_breast_cancer_are_always_there():
    digits, cancer = load("digits"), load("breast-cancer")
    assert digits.inputs.shape == (1797, 8, 8)
    assert (digits.inputs.min(), digits.inputs.max()) == (0, 1)
    assert cancer.inputs.shape == (569, 30)
    np.testing.assert_allclose(cancer.inputs.mean(0), 0, atol=1e-5)


def test_a9a():
    require_here("a9a")
    train, test = load("a9a", "train"), load("a9a", "test")
    assert (train.inputs.shape, test.inputs.shape) == ((32561, 123), (16281, 123))
    assert (train.labels.sum(), test.labels.sum()) == (7841, 3846)
    assert train.inputs.sum() == 451_592


def test_mnist():
    require_here("mnist")
    train = load("mnist", "train")
    assert train.inputs.shape == (60000, 28, 28)
    assert train.inputs.mean() == pytest.approx(0.1307, abs=1e-4)
    assert train.inputs.std() == pytest.approx(0.3081, abs=1e-4)


def test_svhn_says_which_file_it_was():
    require_here("svhn")
    test = load("svhn")
    assert np.bincount(test.labels).tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    assert ("official" in test.source) != ("rebuilt" in test.source)


@pytest.mark.parametrize("name", ["fashion-mnist", "kmnist"])
def test_other_images_of_the_same_size(name):
    require_here(name)
    assert np.bincount(load(name).labels).tolist() == [1000] * 10
    with pytest.raises(DataError, match="test set only"):
        load(name, "train")


def test_unknown_names_are_refused():
    with pytest.raises(DataError, match="choose one of"):
        load("imagenet")
    with pytest.raises(DataError, match="choose one of"):
        fetch(["imagenet"])


def test_availability_lists_every_data_set():
    rows = {row["name"]: row["here"] for row in availability()}
    assert set(rows) == set(DATASETS)
    assert rows["digits"] == "yes"
    assert fetch(["digits"]) == []
