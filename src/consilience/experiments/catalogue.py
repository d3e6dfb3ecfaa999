"""The experiments by name."""

from __future__ import annotations

from consilience.experiments.a9a import A9A
from consilience.experiments.base import Experiment
from consilience.experiments.digits import Digits
from consilience.experiments.gmm import GMM
from consilience.experiments.mnist import PRIORS, SPLITS, MNISTScan
from consilience.experiments.mnist_kinetic import MNISTChoice, MNISTKinetic

_ALL: tuple[Experiment, ...] = (
    GMM(), A9A(), A9A(by_label=True), *PRIORS.values(), MNISTScan(), *SPLITS.values(), MNISTKinetic(), MNISTChoice(),
    Digits(),
)  # fmt: skip
EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in _ALL}
_WITH_SAMPLER = {("mnist", "kinetic"): "mnist-kinetic"}


def find(name: str | None) -> Experiment | None:
    """The experiment of that name, if there is one."""
    return EXPERIMENTS.get(name or "")


def name_with(name: str, sampler: str | None) -> str:
    """The experiment that shows a sampler beside an experiment's own, if there is one, or else that experiment.

    >>> name_with("mnist", "kinetic"), name_with("mnist", None)
    ('mnist-kinetic', 'mnist')
    """
    return _WITH_SAMPLER.get((name, sampler or ""), name)
