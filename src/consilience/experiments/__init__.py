"""The paper's experiments, problems by their names, and what is made of a finished run."""

from consilience.experiments.base import Experiment, Repeating
from consilience.experiments.catalogue import EXPERIMENTS, find, name_with
from consilience.experiments.loading import import_problem, load_problem, require_allowed

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Repeating",
    "find",
    "import_problem",
    "load_problem",
    "name_with",
    "require_allowed",
]
