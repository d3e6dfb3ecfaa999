"""What a warm-up says of the potentials where the posterior's mass is: what step sizes of other samplers follow from.

Curvatures are those at the draws with which sampling would begin, in the model's own coordinates; deviations and the
slowest direction those of the coordinates that were found. Gradients and Hessians are those at the mean, with private
parameters eliminated, as each agent's follow its shared ones by themselves; where the mean lies between modes, those
of the draws on average (over a posterior `E ∇²U = E ∇U ∇Uᵀ`, which is never indefinite).
"""

from __future__ import annotations

import numpy as np

from consilience.kernel.tuning import Tuning
from consilience.kernel.whitening import Dense, Whitening, identity
from consilience.samplers import Landscape
from consilience.warmup.newton import eliminated
from consilience.warmup.stages import WarmUp

_PLACES_FOR_NOISE = 3


def landscape(warmup: WarmUp, tuning: Tuning, positions: np.ndarray, at_start: float = 0.0) -> Landscape:
    """The landscape around the posterior's mass.

    Args:
        warmup: of all agents of the network.
        tuning: what it found.
        positions: `(chains, agents, size)` draws, in the tuning's coordinates.
        at_start: the largest curvature of an agent's potential where the model starts; chains have to get away from
            there.
    """
    whitening, d, n = tuning.whitening, warmup.num_shared, warmup.plan.num_agents
    places = np.asarray(whitening.position(positions), np.float64)
    variances, widest = _variances(whitening)
    found = warmup.curvature_at(_scaled(warmup, widest**0.5), places)  # in units in which the widest direction has 1
    local = found.excess * found.largest / (n * widest)
    known = "at the posterior's mass, where a warm-up has been"
    if at_start > local:
        known = f"where the agents start, {at_start / local:.2g} times that at the posterior's mass"
    gradients, hessians = _at_the_centre(warmup, tuning, places)
    return Landscape(
        smoothness=max(local, at_start),
        total_smoothness=found.largest / widest,
        known=known,
        relaxation=widest,
        gradients=gradients,
        hessians=hessians,
        deviations=np.sqrt(variances[:d]),
        noise=_noise(warmup, places),
    )


def _variances(whitening: Whitening) -> tuple[np.ndarray, float]:
    """Of the shared parameters; and that of the direction, or the agent's private parameter, that has most."""
    if not isinstance(whitening, Dense):
        scales = np.concatenate([whitening.scale, np.ravel(whitening.own_scale)])
        return whitening.scale**2, float((scales**2).max())
    own = np.einsum("apq,apq->ap", whitening.own_root, whitening.own_root)
    widest = np.linalg.norm(whitening.root, 2) ** 2
    return (whitening.root**2).sum(1), float(max(widest, own.max(initial=0.0)))


def _scaled(warmup: WarmUp, scale: float) -> Whitening:
    """The model's own coordinates in another unit."""
    plain = identity(warmup.num_shared, warmup.plan.num_agents, warmup.parameters.size - warmup.num_shared)
    if isinstance(plain, Dense):
        return plain._replace(root=scale * plain.root, own_root=scale * plain.own_root)
    return plain._replace(scale=scale * plain.scale, own_scale=scale * plain.own_scale)


def _at_the_centre(warmup: WarmUp, tuning: Tuning, places: np.ndarray) -> tuple[np.ndarray | None, ...]:
    """The agents' gradients and Hessians there, as far as they are known of a model of that size."""
    whitening, d = tuning.whitening, warmup.num_shared
    if not isinstance(whitening, Dense):
        return (None if tuning.anchor is None else np.asarray(tuning.anchor.gradient)[:, :d]), None
    agents = len(whitening.own_mean)
    mean = np.concatenate([np.broadcast_to(whitening.mean, (agents, d)), whitening.own_mean], 1)
    for points in (mean[None], places):
        found = [eliminated(warmup.small.at(point), d) for point in points]
        hessians = np.mean([one.hessian for one in found], 0)
        if np.linalg.eigvalsh(hessians.sum(0))[0] > 0:
            return np.mean([one.gradient for one in found], 0), hessians
    return None, None


def _noise(warmup: WarmUp, places: np.ndarray) -> float:
    """The largest variance of a parameter's gradient from minibatches, of shared ones added up over the agents."""
    if warmup.plan.batch_size is None:
        return 0.0
    plain = warmup.batches.noise(None, _scaled(warmup, 1.0), places[:_PLACES_FOR_NOISE]).plain
    d = warmup.num_shared
    return float(max(plain[:, :d].sum(0).max(), plain[:, d:].max(initial=0.0)))
