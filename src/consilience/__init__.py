"""Bayesian learning without a centre: decentralized Langevin sampling on JAX.

The public names load on first use, so that `import consilience` and the command line's help stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from consilience.version import __version__

if TYPE_CHECKING:
    from consilience import datasets, diagnostics, graphs, models, posteriors, predictive, schedules, studies, theory
    from consilience.adapters import from_apply, from_equinox, from_flax, from_numpyro
    from consilience.errors import ConsilienceError
    from consilience.planning.assessments import assess
    from consilience.planning.checks import check
    from consilience.planning.suggestions import suggest
    from consilience.plans import Plan
    from consilience.problems import Curvature, Outcomes, Problem
    from consilience.samplers import *  # noqa: F403 - the functions that make samplers
    from consilience.sampling.comparing import compare
    from consilience.sampling.engines import Mesh, Peers, Simulate
    from consilience.sampling.run import Run
    from consilience.sampling.sample import resume, sample
    from consilience.schedules import Constant, FromTo, Polynomial

_HOME = {
    "Constant": "schedules",
    "Curvature": "problems",
    "ConsilienceError": "errors",
    "FromTo": "schedules",
    "Mesh": "sampling.engines",
    "Outcomes": "problems",
    "Peers": "sampling.engines",
    "Plan": "plans",
    "Polynomial": "schedules",
    "Problem": "problems",
    "Run": "sampling.run",
    "Simulate": "sampling.engines",
    "assess": "planning.assessments",
    "check": "planning.checks",
    "compare": "sampling.comparing",
    "from_apply": "adapters.apply_functions",
    "from_equinox": "adapters.equinox_modules",
    "from_flax": "adapters.flax_modules",
    "from_numpyro": "adapters.numpyro_models",
    "resume": "sampling.sample",
    "sample": "sampling.sample",
    "suggest": "planning.suggestions",
}
_MODULES = (
    "datasets",
    "diagnostics",
    "graphs",
    "models",
    "posteriors",
    "predictive",
    "schedules",
    "studies",
    "theory",
)

__all__ = [
    "ConsilienceError",
    "Constant",
    "Curvature",
    "FromTo",
    "Mesh",
    "Outcomes",
    "Peers",
    "Plan",
    "Polynomial",
    "Problem",
    "Run",
    "Simulate",
    "__version__",
    "assess",
    "check",
    "compare",
    "datasets",
    "diagnostics",
    "from_apply",
    "from_equinox",
    "from_flax",
    "from_numpyro",
    "graphs",
    "models",
    "posteriors",
    "predictive",
    "resume",
    "sample",
    "schedules",
    "studies",
    "suggest",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"consilience.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"consilience.{_HOME[name]}"), name)
    if not name.startswith("_") and name in _samplers():
        return _samplers()[name]
    raise AttributeError(f"module 'consilience' has no attribute {name!r}")


def _samplers() -> dict[str, Any]:
    """The functions that make samplers, by name: those of the registry."""
    return importlib.import_module("consilience.samplers").CONSTRUCTORS


def __dir__() -> list[str]:
    return [*__all__, *_samplers()]
