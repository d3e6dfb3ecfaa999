"""The numbers and coordinates that a warm-up found, on the devices of a mesh; an agent's own are where it is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from consilience.kernel.tuning import Tuning
from consilience.kernel.variates import Anchor

_OF_AGENTS = ("own_mean", "own_root", "own_scale", "shear")


def tuning_specs(tuning: Tuning | None) -> Any:
    """How each array lies on the axes of the mesh."""
    if tuning is None:
        return None
    whitening = tuning.whitening
    own = {name: Spec("agents") if name in _OF_AGENTS else Spec() for name in whitening._fields}
    anchor = None if tuning.anchor is None else Anchor(Spec("agents"), Spec("agents"))
    return Tuning(Spec(), Spec(), Spec(), type(whitening)(**own), anchor)


def on_devices(
    tuning: Tuning | None, mesh: Mesh, places: np.ndarray, num_processes: int, dtype: Any
) -> Tuning | None:
    """A tuning of the agents of this process, laid out on the devices.

    Args:
        tuning: with arrays over the agents of this process.
        mesh: the devices.
        places: which of these agents each place on this process's devices holds.
        num_processes: how many processes there are.
        dtype: of the run.
    """
    if tuning is None:
        return None

    def put(leaf: Any, spec: Spec) -> jax.Array:
        own = np.asarray(leaf)
        if np.issubdtype(own.dtype, np.integer):
            own = own.astype(np.int32)
        else:
            own = own.astype(jnp.dtype(dtype))
        shape = list(own.shape)
        if spec == Spec("agents"):
            own = own[places]
            shape[0] = len(places) * num_processes
        return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), own, tuple(shape))

    return jax.tree.map(put, tuning, tuning_specs(tuning))
