"""Coordinates that the plan gives, in the form in which a warm-up has those it finds."""

from __future__ import annotations

import numpy as np

from consilience.errors import PlanError
from consilience.kernel.whitening import MOST_DENSE, Dense, Whitening
from consilience.samplers.coordinates import Coordinates


def in_coordinates(given: Coordinates | str, plain: Whitening) -> Whitening:
    """The model's own coordinates, or those that are given for its shared parameters.

    Args:
        given: the sampler's `whitening`.
        plain: the model's own coordinates.
    """
    if not isinstance(given, Coordinates):
        return plain
    count = len(plain.mean)
    if plain.own_mean.shape[-1]:
        raise PlanError(
            "coordinates by hand (whitening) are for models whose parameters are all shared: agents find those of "
            "their private parameters themselves, so leave whitening out"
        )
    if len(given.centre) != count:
        raise PlanError(
            f"the coordinates by hand (whitening) are of {len(given.centre)} numbers, and the model has {count} "
            "shared parameters on the unconstrained scale"
        )
    mean = np.array(given.centre)
    if isinstance(plain, Dense):
        return plain._replace(mean=mean, root=given.root)
    if given.is_matrix:
        raise PlanError(f"above {MOST_DENSE} shared parameters the scale by hand is a list of deviations, no matrix")
    return plain._replace(mean=mean, scale=np.array(given.scale))
