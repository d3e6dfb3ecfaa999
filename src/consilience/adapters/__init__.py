"""Models from elsewhere become problems: NumPyro models, Flax and Equinox modules, functions with weights.

The libraries load on first use; Flax and Equinox need not be there otherwise.
"""

from consilience.adapters.apply_functions import from_apply
from consilience.adapters.equinox_modules import from_equinox
from consilience.adapters.flax_modules import from_flax
from consilience.adapters.numpyro_models import from_numpyro

__all__ = ["from_apply", "from_equinox", "from_flax", "from_numpyro"]
