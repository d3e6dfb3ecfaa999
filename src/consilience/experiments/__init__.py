"""The paper's experiments, problems by their names, and what is made of a finished run."""

from consilience.experiments.base import Experiment
from consilience.experiments.catalogue import EXPERIMENTS, find
from consilience.experiments.loading import import_problem, load_problem, require_allowed

__all__ = ["EXPERIMENTS", "Experiment", "find", "import_problem", "load_problem", "require_allowed"]
