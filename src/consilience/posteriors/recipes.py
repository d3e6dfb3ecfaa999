"""What is ours of a posterior: rows, the NumPyro model of them, how agents come to differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.datasets import splits

Data = Mapping[str, np.ndarray]
"""What a file has under `data`: columns, and scalars as arrays without axes."""
Rows = dict[str, np.ndarray]
Model = Callable[..., None]
Draws = Mapping[str, np.ndarray]
"""By the names of a model's sites, `(chain, draw, …)`."""


@dataclass(frozen=True)
class Natural:
    """A split by which agents differ.

    Attributes:
        words: how, for people.
        rows: from data to the rows of each agent.
    """

    words: str
    rows: Callable[[Data], list[np.ndarray]]

    def __call__(self, data: Data) -> list[np.ndarray]:
        """The rows of each agent."""
        return self.rows(data)


@dataclass(frozen=True)
class Groups:
    """Groups of rows with effects of their own; by the natural split these are private to the agent of the group.

    Attributes:
        column: of the rows; says to which group a row belongs, from 0.
        number: the scalar of the data that says how many groups a model has.
        per_agent: so many go to each agent, in order.
        private: the sites that are private to an agent, `(groups,)` each.
        effects: the reference's variables with an entry for each group.
    """

    column: str
    number: str
    per_agent: int
    private: tuple[str, ...]
    effects: tuple[str, ...]


def _as_they_are(draws: Draws) -> dict[str, np.ndarray]:
    return dict(draws)


@dataclass(frozen=True)
class Recipe:
    """How a file's data become a problem.

    Attributes:
        rows: from data to columns with one entry for each row.
        model: from data to a NumPyro model that is called with the columns of some rows.
        natural: how rows are split such that agents differ.
        groups: of rows with effects of their own.
        quantities: from draws of the model's sites to the variables that the reference is about.
        without_sd: parameters whose variance is infinite.
    """

    rows: Callable[[Data], Rows]
    model: Callable[[Data], Model]
    natural: Natural
    groups: Groups | None = None
    quantities: Callable[[Draws], Mapping[str, Any]] = _as_they_are
    without_sd: tuple[str, ...] = ()


def by_value(column: str) -> Natural:
    """One agent for each value of a column.

    >>> [own.tolist() for own in by_value("sex")({"sex": np.array([0, 1, 0])})]
    [[0, 2], [1]]
    """
    return Natural(f"by {column}", lambda data: splits.by_column(data[column]))


def by_bands(column: str, num_agents: int) -> Natural:
    """One agent for each of so many ranges of a column, with as many rows each as it goes.

    >>> [own.tolist() for own in by_bands("age", 2)({"age": np.array([30, 70, 20, 60])})]
    [[0, 2], [1, 3]]
    """
    return Natural(f"{num_agents} ranges of {column}", lambda data: splits.by_column(data[column], num_agents))


def in_blocks(num_agents: int, words: str, num_rows: Callable[[Data], int]) -> Natural:
    """Rows as they come, in blocks.

    >>> [own.tolist() for own in in_blocks(2, "blocks of time", lambda data: int(data["T"]))({"T": np.array(5)})]
    [[0, 1, 2], [3, 4]]
    """
    return Natural(f"{num_agents} {words}", lambda data: splits.by_column(np.arange(num_rows(data)), num_agents))


def count_rows(rows: Rows) -> int:
    """How many rows some columns have."""
    return len(next(iter(rows.values())))
