"""Finding, checking and downloading files; nothing leaves this machine."""

import gzip
import hashlib

import numpy as np
import pytest

from consilience.datasets import files, formats, loaders
from consilience.datasets.files import DataFile, obtain
from consilience.errors import DataError

NOWHERE = "http://127.0.0.1:9/file"  # nobody listens there


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A data directory of this test's own, and an empty cache."""
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(files, "cache_directory", lambda: tmp_path / "cache")
    (tmp_path / "data" / "set").mkdir(parents=True)
    return tmp_path / "data" / "set"


def described(content, name="set/file", url=NOWHERE):
    return DataFile(name, f"sha256:{hashlib.sha256(content).hexdigest()}", url, len(content))


def test_a_file_that_is_there_is_checked_and_found(here):
    (here / "file").write_bytes(b"content")
    path, file = obtain([described(b"content")])
    assert path == here / "file"
    assert file.path == "set/file"


def test_a_second_version_is_found_by_its_own_checksum(here):
    (here / "rebuilt").write_bytes(b"other")
    path, file = obtain([described(b"content"), described(b"other", "set/rebuilt", None)])
    assert (path.name, file.path) == ("rebuilt", "set/rebuilt")


def test_a_wrong_checksum_names_the_file_and_the_remedy(here):
    (here / "file").write_bytes(b"contend")
    with pytest.raises(DataError, match=r"set/file is not the file it should be .* remove it and get it again"):
        obtain([described(b"content")])


def test_absent_and_offline_says_what_to_put_where(here):
    with pytest.raises(DataError, match=r"cannot be downloaded .* put it from http.* at .*data/set/file"):
        obtain([described(b"content")])


def test_without_a_data_directory_the_remedy_names_the_variable(here, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_DATA")
    with pytest.raises(DataError, match="set CONSILIENCE_DATA=DIRECTORY"):
        obtain([described(b"content", url=None)])


def idx(values):
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return header + values.astype(np.uint8).tobytes()


def test_idx_files_are_read(tmp_path):
    values = np.arange(24).reshape(2, 3, 4)
    (tmp_path / "x.gz").write_bytes(gzip.compress(idx(values)))
    np.testing.assert_array_equal(formats.read_idx(tmp_path / "x.gz"), values)


@pytest.mark.parametrize("damage", ["truncated gzip", "too few values", "another format", "no gzip"])
def test_damaged_files_are_said_to_be_so(tmp_path, damage):
    whole = idx(np.arange(1000).reshape(10, 10, 10))
    content = {
        "truncated gzip": gzip.compress(whole)[:-40],
        "too few values": gzip.compress(whole[:-5]),
        "another format": gzip.compress(b"hello, world"),
        "no gzip": whole,
    }[damage]
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(DataError, match="remove it and get it again"):
        formats.read_idx(tmp_path / "x.gz")


def test_other_formats_are_refused(tmp_path):
    (tmp_path / "x").write_text("this is no data")
    with pytest.raises(DataError, match="LIBSVM"):
        formats.read_libsvm(tmp_path / "x", 123)
    with pytest.raises(DataError, match="SVHN"):
        formats.read_mat(tmp_path / "x")


@pytest.mark.parametrize("labels", [[0, 1, 10], [-1, 0], [0.5]])
def test_labels_outside_the_classes_are_refused(labels):
    with pytest.raises(DataError, match="expected whole numbers from 0 to 9"):
        loaders.require_labels(np.array(labels), 10, "set")


def test_images_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"images of shape \(27, 28\), expected \(28, 28\)"):
        loaders.require_images(np.zeros((5, 27, 28)), 28, 28, "set")
