"""The data sets that are known by name, their files, checksums, homes and terms."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.datasets.files import DataFile
from consilience.errors import DataError


@dataclass(frozen=True)
class DataSet:
    """A data set by name.

    Attributes:
        name: what the command line calls it.
        title: what it is.
        files: its files by role; each in versions, the official one first.
        terms: under what terms its makers give it out.
    """

    name: str
    title: str
    files: dict[str, tuple[DataFile, ...]]
    terms: str


def _idx(folder: str, home: str, sums: dict[str, tuple[str, int]]) -> dict[str, tuple[DataFile, ...]]:
    names = {
        "train images": "train-images-idx3-ubyte.gz",
        "train labels": "train-labels-idx1-ubyte.gz",
        "test images": "t10k-images-idx3-ubyte.gz",
        "test labels": "t10k-labels-idx1-ubyte.gz",
    }
    return {
        role: (DataFile(f"{folder}/{names[role]}", f"sha256:{sum_}", f"{home}/{names[role]}", size),)
        for role, (sum_, size) in sums.items()
    }


DATASETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        DataSet(
            "a9a",
            "Adult (census income), 123 binary features, 32,561 + 16,281 rows",
            {
                "train": (
                    DataFile(
                        "a9a/a9a",
                        "sha256:f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
                        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/a9a",
                        2_329_875,
                    ),
                ),
                "test": (
                    DataFile(
                        "a9a/a9a.t",
                        "sha256:1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
                        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/a9a.t",
                        1_164_628,
                    ),
                ),
            },
            "UCI Adult: CC BY 4.0; LIBSVM asks for citation",
        ),
        DataSet(
            "mnist",
            "Handwritten digits, 60,000 + 10,000 images of 28 × 28",
            _idx(
                "mnist",
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                {
                    "train images": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
                    "train labels": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
                    "test images": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
                    "test labels": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
                },
            ),
            "commonly stated as CC BY-SA 3.0",
        ),
        DataSet(
            "svhn",
            "Street View House Numbers, 26,032 cropped test digits of 32 × 32 in colour",
            {
                "test": (
                    DataFile(
                        "svhn/test_32x32.mat",
                        "md5:eb5a983be6a315427106f1b164d9cef3",
                        "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
                        64_275_384,
                    ),
                    DataFile(
                        "svhn/svhn_test_32x32_rebuilt.mat",
                        "sha256:184f7d5b831228b0d7276ce09a1d40c55d2e620535a66e0dfcddfc660c171e93",
                        None,
                        63_779_529,
                    ),
                )
            },
            "for non-commercial use only",
        ),
        DataSet(
            "fashion-mnist",
            "Articles of clothing, 10,000 test images of 28 × 28",
            _idx(
                "fashion-mnist",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                {
                    "test images": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102),
                    "test labels": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
                },
            ),
            "MIT, Zalando SE",
        ),
        DataSet(
            "kmnist",
            "Cursive Japanese characters, 10,000 test images of 28 × 28",
            _idx(
                "kmnist",
                "http://codh.rois.ac.jp/kmnist/dataset/kmnist",
                {
                    "test images": ("edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5", 3_041_136),
                    "test labels": ("20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c", 5_120),
                },
            ),
            "CC BY-SA 4.0, CODH, doi:10.20676/00000341",
        ),
        DataSet("digits", "Handwritten digits, 1,797 images of 8 × 8, inside scikit-learn", {}, "CC BY 4.0 (UCI)"),
        DataSet("breast-cancer", "Wisconsin diagnostic, 569 rows, inside scikit-learn", {}, "CC BY 4.0 (UCI)"),
    )
}


def find_dataset(name: str) -> DataSet:
    """The data set of that name."""
    if name not in DATASETS:
        raise DataError(f"unknown data set {name!r}: choose one of {', '.join(DATASETS)}")
    return DATASETS[name]
