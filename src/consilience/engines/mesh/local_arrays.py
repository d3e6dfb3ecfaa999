"""The part of an array that this process holds, where it is spread over several."""

from __future__ import annotations

import jax
import numpy as np


def local_part(array: jax.Array) -> np.ndarray:
    """The part of an array that lies on this process's devices; they hold a box of it."""
    shards = {str(shard.index): shard for shard in array.addressable_shards}  # one of each that are the same
    if len(shards) == 1:
        return np.asarray(next(iter(shards.values())).data)
    boxes = [
        [slice(*part.indices(length)) for part, length in zip(shard.index, array.shape, strict=True)]
        for shard in shards.values()
    ]
    first = [min(part.start for part in parts) for parts in zip(*boxes, strict=True)]
    end = [max(part.stop for part in parts) for parts in zip(*boxes, strict=True)]
    whole = np.empty([stop - start for start, stop in zip(first, end, strict=True)], array.dtype)
    for box, shard in zip(boxes, shards.values(), strict=True):
        place = tuple(slice(part.start - start, part.stop - start) for part, start in zip(box, first, strict=True))
        whole[place] = np.asarray(shard.data)
    return whole
