"""What the entries of a run's draws are called: by the names that people know, where the problem gives them.

A problem's `labels` and `ratios` are kept with the draws, so that everything that reads a run's directory alone has
them. Of a vector `coefficients` with the labels `("Intercept", "age")` the second entry is `age`; a vector that is
labelled too, but is not the first, keeps its own name, `site_sd[age]`; what is an agent's own is `site 2: age`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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

    >>> names = Names(("coefficients", "site_effect"), ("site_effect",), {"coefficients": ("Intercept", "age")})
    >>> names.entry("coefficients", (1,)), names.entry("site_effect", (), 2), names.entry("sigma", (0, 3))
    ('age', 'site 2: site_effect', 'sigma[0, 3]')
    """

    parameters: tuple[str, ...]
    private: tuple[str, ...] = ()
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ratios: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, draws: xarray.Dataset) -> Names:
        """Those of a run's draws."""
        notes = draws.attrs
        return cls(
            tuple(notes["parameters"]),
            tuple(notes.get("private", ())),
            dict(notes.get("labels", {})),
            dict(notes.get("ratios", {})),
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
        alike = [one for one in self.labels if (one in self.private) == (name in self.private)]
        return alike[:1] == [name]


def entry_name(name: str, place: tuple[int, ...]) -> str:
    """What one entry of a variable is called that has no labels.

    >>> entry_name("w", ()), entry_name("w", (0, 3))
    ('w', 'w[0, 3]')
    """
    return name + (f"[{', '.join(map(str, place))}]" if place else "")


def notes_of(problem: Problem, parameters: Parameters) -> dict[str, Any]:
    """What a run keeps with its draws of the names that people know, checked."""
    shapes = dict(zip(parameters.names, parameters.shapes, strict=True))
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
    labels = {name: [str(label) for label in some] for name, some in problem.labels.items()}
    found: dict[str, Any] = {"labels": labels, "ratios": dict(problem.ratios)}
    return {what: entries for what, entries in found.items() if entries}


def _require_known(name: str, shapes: Mapping[str, Any], what: str) -> None:
    if name not in shapes:
        raise ProblemError(f"{what} names {name!r}, which is no parameter: there are {', '.join(shapes)}")
