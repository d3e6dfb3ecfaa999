"""The experiments by name."""

from __future__ import annotations

from consilience.experiments.a9a import A9A
from consilience.experiments.base import Experiment
from consilience.experiments.digits import Digits
from consilience.experiments.gmm import GMM
from consilience.experiments.mnist import PRIORS, MNISTScan

_ALL: tuple[Experiment, ...] = (GMM(), A9A(), *PRIORS.values(), MNISTScan(), Digits())
EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in _ALL}


def find(name: str | None) -> Experiment | None:
    """The experiment of that name, if there is one."""
    return EXPERIMENTS.get(name or "")
