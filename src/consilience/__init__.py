"""Bayesian learning without a centre: decentralized Langevin sampling on JAX.

The public names load on first use, so that `import consilience` and the command line's help stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from consilience.version import __version__

if TYPE_CHECKING:
    from consilience import datasets, diagnostics, graphs, models, predictive, schedules, theory
    from consilience.assessments import assess
    from consilience.checks import check
    from consilience.engines import MeshSettings
    from consilience.errors import ConsilienceError
    from consilience.plans import Plan
    from consilience.problems import Curvature, Problem
    from consilience.samplers import dula
    from consilience.sampling import Run, resume, sample
    from consilience.schedules import Constant, FromTo, Polynomial
    from consilience.suggestions import suggest

_HOME = {
    "Constant": "schedules",
    "Curvature": "problems",
    "ConsilienceError": "errors",
    "FromTo": "schedules",
    "MeshSettings": "engines",
    "Plan": "plans",
    "Polynomial": "schedules",
    "Problem": "problems",
    "Run": "sampling",
    "assess": "assessments",
    "check": "checks",
    "dula": "samplers",
    "resume": "sampling",
    "sample": "sampling",
    "suggest": "suggestions",
}
_MODULES = ("datasets", "diagnostics", "graphs", "models", "predictive", "schedules", "theory")

__all__ = [
    "ConsilienceError",
    "Constant",
    "Curvature",
    "FromTo",
    "MeshSettings",
    "Plan",
    "Polynomial",
    "Problem",
    "Run",
    "__version__",
    "assess",
    "check",
    "datasets",
    "diagnostics",
    "dula",
    "graphs",
    "models",
    "predictive",
    "resume",
    "sample",
    "schedules",
    "suggest",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"consilience.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"consilience.{_HOME[name]}"), name)
    raise AttributeError(f"module 'consilience' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
