"""What the entries of a run's draws are called: by the names that people know, where the problem gives them.

A problem's `labels` and `ratios` are kept with the draws, so that everything that reads a run's directory alone has
them. Of a vector `coefficients` with the labels `("Intercept", "age")` the second entry is `age`; a vector that is
labelled too, but is not the first, keeps its own name, `site_sd[age]`. What is an agent's own is `site 2: age`; if
the problem derives something of its agents' own with labels, that is meant by it, and parameters keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax

from consilience.errors import ProblemError
from consilience.kernel.parameters import Parameters
from consilience.problems import Problem

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Names:
    """The names of parameters' entries.

    Attributes:
        parameters: the arrays' names, in the model's order.
        private: those of them that are an agent's own.
        labels: names along the last axis.
        ratios: what the exponential of an array's entries is called.
        derived: names of derived quantities that are an agent's own.

    >>> names = Names(("coefficients", "site_effect"), ("site_effect",), {"coefficients": ("Intercept", "age")})
    >>> names.entry("coefficients", (1,)), names.entry("site_effect", (), 2), names.entry("sigma", (0, 3))
    ('age', 'site 2: site_effect', 'sigma[0, 3]')
    """

    parameters: tuple[str, ...]
    private: tuple[str, ...] = ()
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ratios: Mapping[str, str] = field(default_factory=dict)
    derived: tuple[str, ...] = ()

    @classmethod
    def of(cls, draws: xarray.Dataset, derived: xarray.Dataset | None = None) -> Names:
        """Those of a run's draws, and of what is derived from them."""
        notes = draws.attrs
        return cls(
            tuple(notes["parameters"]),
            tuple(notes.get("private", ())),
            dict(notes.get("labels", {})),
            dict(notes.get("ratios", {})),
            () if derived is None else tuple(derived.attrs["private"]),
        )

    def entry(self, name: str, place: tuple[int, ...], agent: int | None = None) -> str:
        """What one entry of an array is called; with an agent, that it is this agent's."""
        within = self._within(name, place)
        return within if agent is None else f"site {agent}: {within}"

    def _within(self, name: str, place: tuple[int, ...]) -> str:
        labels = self.labels.get(name, ())
        if not place or place[-1] >= len(labels):
            return entry_name(name, place)
        label, before = labels[place[-1]], place[:-1]
        if self._goes_without(name) and label not in self.parameters:
            return entry_name(label, before)
        return f"{name}[{', '.join([*map(str, before), label])}]"

    def _goes_without(self, name: str) -> bool:
        """Whether labels say enough without the array's name: of the first shared, and of the first private one."""
        shared = [one for one in self.labels if one in self.parameters and one not in self.private]
        own = [one for one in self.labels if one in self.derived]
        own += [one for one in self.labels if one in self.private]
        return name in (*shared[:1], *own[:1])


def entry_name(name: str, place: tuple[int, ...]) -> str:
    """What one entry of a variable is called that has no labels.

    >>> entry_name("w", ()), entry_name("w", (0, 3))
    ('w', 'w[0, 3]')
    """
    return name + (f"[{', '.join(map(str, place))}]" if place else "")


def notes_of(problem: Problem, parameters: Parameters) -> dict[str, Any]:
    """What a run keeps with its draws of the names that people know, checked."""
    shapes = dict(zip(parameters.names, parameters.shapes, strict=True))
    if problem.derived is not None and problem.labels:
        example = jax.eval_shape(problem.inits[0], jax.random.key(0))
        shapes |= {name: one.shape for name, one in jax.eval_shape(problem.derived, example).items()}
    for name, labels in problem.labels.items():
        if isinstance(labels, str):
            raise ProblemError(f"the labels of {name!r} are the text {labels!r}: give a tuple of names")
        _require_known(name, shapes, "labels")
        there = shapes[name][-1] if shapes[name] else 0
        if len(labels) != there and not (name in parameters.private and len(labels) > there):
            raise ProblemError(
                f"there are {len(labels)} labels for {name!r}, whose shape is {shapes[name]}: give one for each "
                "entry of the last axis"
            )
    for name in problem.ratios:
        _require_known(name, shapes, "ratios")
    every = {name: [str(label) for label in some] for name, some in problem.labels.items()}
    found: dict[str, Any] = {"labels": every, "ratios": dict(problem.ratios)}
    return {what: entries for what, entries in found.items() if entries}


def _require_known(name: str, shapes: Mapping[str, Any], what: str) -> None:
    if name not in shapes:
        raise ProblemError(f"{what} names {name!r}, which is no parameter: there are {', '.join(shapes)}")
