"""Data sets by name, checked by checksum, and ways to split rows among agents."""

from consilience.datasets import splits
from consilience.datasets.loaders import Labelled, load
from consilience.datasets.registry import DATASETS, DataSet

__all__ = ["DATASETS", "DataSet", "Labelled", "load", "splits"]
