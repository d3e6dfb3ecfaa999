"""What all agents go on with after a part of the warm-up: the root agent's numbers, to the bit.

Every agent makes them from the same sums. Where processors round differently they still differ in the last bits, and
with them, once in a long while, in a decision.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from consilience.kernel.tuning import Tuning
from consilience.kernel.whitening import Dense
from consilience.warmup.stages import Prepared


def common(prepared: Prepared, adopted: Callable[[np.ndarray], np.ndarray]) -> Prepared:
    """With the root's numbers in all that agents have in common; what is an agent's own stays.

    Args:
        prepared: as this agent, or these agents, made it.
        adopted: from numbers `(size,)` of this process to those of the root.
    """
    tuning, positions, stage = prepared
    whitening, d = tuning.whitening, len(tuning.whitening.mean)
    scale = "root" if isinstance(whitening, Dense) else "scale"
    shared = (tuning[:3], whitening.mean, getattr(whitening, scale), stage, positions[:, 0, :d])
    leaves, structure = jax.tree.flatten(shared)
    arrays = [np.asarray(leaf) for leaf in leaves]
    flat = adopted(np.concatenate([one.astype(np.float64).reshape(-1) for one in arrays]))
    parts = np.split(flat, np.cumsum([one.size for one in arrays])[:-1])
    found = [part.reshape(one.shape).astype(one.dtype) for part, one in zip(parts, arrays, strict=True)]
    (step, exchanges, temperature), mean, root, stage, start = jax.tree.unflatten(structure, found)
    new = Tuning(step, exchanges, temperature, whitening._replace(mean=mean, **{scale: root}), tuning.anchor)
    start = np.broadcast_to(start[:, None], (*positions.shape[:2], d))
    return Prepared(new, np.concatenate([start, positions[..., d:]], -1), stage)
