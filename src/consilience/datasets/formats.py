"""Readers of the data sets' file formats; a damaged file is an error that says which and what to do."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from consilience.errors import DataError

_IDX_BYTES = 0x08


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in the idx format, gzipped: `(rows, …)`."""
    try:
        with gzip.open(path, "rb") as stream:
            content = stream.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}): remove it and get it again") from None
    if len(content) < 4 or content[:2] != b"\x00\x00" or content[2] != _IDX_BYTES:
        raise DataError(f"{path} is not an idx file of bytes: remove it and get it again")
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, 4).astype(int)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    if values.size != shape.prod():
        raise DataError(f"{path} ends early ({values.size:,} of {shape.prod():,} values): remove it and get it again")
    return values.reshape(shape)


def read_libsvm(path: Path, num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Dense features `(rows, num_features)` in single precision and labels `(rows,)` from LIBSVM's text format."""
    from sklearn.datasets import load_svmlight_file

    try:
        features, labels = load_svmlight_file(str(path), n_features=num_features, dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{path} is not in LIBSVM's format with {num_features} features: {error}") from None
    return features.toarray(), labels


def read_mat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images `(rows, height, width, channels)` and labels `(rows,)` from SVHN's MATLAB file."""
    from scipy.io import loadmat

    try:
        content = loadmat(path)
        return np.moveaxis(content["X"], 3, 0), content["y"].ravel()
    except Exception as error:
        raise DataError(f"{path} is not an SVHN file ({type(error).__name__}): remove it and get it again") from None
