"""The data sets, ready to use: inputs, labels from 0, and where they came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from consilience.datasets.files import DataFile, obtain
from consilience.datasets.formats import read_idx, read_libsvm, read_mat
from consilience.datasets.registry import DATASETS
from consilience.errors import DataError

Part = Literal["train", "test"]
_GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601, what "grey" means in most image libraries


class Labelled(NamedTuple):
    """Inputs with labels."""

    inputs: np.ndarray
    """`(rows, …)` in single precision: features, or images `(rows, height, width)` between 0 and 1."""
    labels: np.ndarray
    """`(rows,)` whole numbers from 0."""
    num_classes: int
    source: str
    """Which file it was read from, for reports."""


def load(name: str, part: Part = "test") -> Labelled:
    """A data set by name.

    >>> load("digits").inputs.shape
    (1797, 8, 8)
    """
    if name not in _LOADERS:
        raise DataError(f"unknown data set {name!r}: choose one of {', '.join(_LOADERS)}")
    return _LOADERS[name](part)


def require_labels(labels: np.ndarray, num_classes: int, source: str) -> np.ndarray:
    """Check that labels are whole numbers from 0 to `num_classes − 1`."""
    labels = np.asarray(labels)
    wrong = labels[(labels < 0) | (labels >= num_classes) | (labels != np.round(labels))]
    if wrong.size:
        raise DataError(f"{source} has the label {wrong[0]:g}, expected whole numbers from 0 to {num_classes - 1}")
    return labels.astype(np.int32)


def require_images(images: np.ndarray, height: int, width: int, source: str) -> np.ndarray:
    """Check that images have the expected shape `(rows, height, width)`."""
    if images.ndim != 3 or images.shape[1:] != (height, width):
        raise DataError(
            f"{source} holds images of shape {images.shape[1:]}, expected ({height}, {width}): is it another set?"
        )
    return images


def _a9a(part: Part) -> Labelled:
    path, file = obtain(DATASETS["a9a"].files[part])
    features, labels = read_libsvm(path, 123)
    return Labelled(features, require_labels((labels + 1) / 2, 2, file.path), 2, file.path)


def _idx(name: str) -> Callable[[Part], Labelled]:
    def read(part: Part) -> Labelled:
        files = DATASETS[name].files
        if f"{part} images" not in files:
            raise DataError(f"{name} is known by its test set only: ask for part 'test'")
        image_path, file = obtain(files[f"{part} images"])
        label_path, _ = obtain(files[f"{part} labels"])
        images = require_images(read_idx(image_path), 28, 28, file.path)
        labels = require_labels(read_idx(label_path), 10, label_path.name)
        if len(images) != len(labels):
            raise DataError(f"{file.path} has {len(images):,} images but {len(labels):,} labels: get both again")
        return Labelled((images / np.float32(255)).astype(np.float32), labels, 10, file.path)

    return read


def _svhn(part: Part) -> Labelled:
    if part != "test":
        raise DataError("svhn is known by its test set only: ask for part 'test'")
    path, file = obtain(DATASETS["svhn"].files["test"])
    colour, labels = read_mat(path)
    grey = np.zeros(colour.shape[:3], np.float32)
    for channel, share in enumerate(_GREY):
        grey += np.float32(share / 255) * colour[..., channel]
    return Labelled(
        require_images(grey, 32, 32, file.path), require_labels(labels % 10, 10, file.path), 10, _described(file)
    )


def _described(file: DataFile) -> str:
    return f"{file.path} ({'the official file' if file.url else 'rebuilt from the full-number images'})"


def _digits(part: Part) -> Labelled:
    from sklearn.datasets import load_digits

    found = load_digits()
    return Labelled(
        (found.images / 16).astype(np.float32), found.target.astype(np.int32), 10, "scikit-learn's digits"
    )


def _breast_cancer(part: Part) -> Labelled:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    scaled = (found.data - found.data.mean(0)) / found.data.std(0)
    return Labelled(scaled.astype(np.float32), found.target.astype(np.int32), 2, "scikit-learn's breast cancer")


_LOADERS: dict[str, Callable[[Part], Labelled]] = {
    "a9a": _a9a,
    "mnist": _idx("mnist"),
    "svhn": _svhn,
    "fashion-mnist": _idx("fashion-mnist"),
    "kmnist": _idx("kmnist"),
    "digits": _digits,
    "breast-cancer": _breast_cancer,
}
