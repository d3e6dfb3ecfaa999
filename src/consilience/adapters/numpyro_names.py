"""What sites are called, and where their values stand among a problem's parameters.

A site of a module or a scope has a name of several parts, `encoder/layer.weight`. In the parameters, as in those of
other problems, each part is a dictionary: `{"encoder": {"layer": {"weight": …}}}`, and in the draws it is
`encoder.layer.weight`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from consilience.errors import ProblemError

_BETWEEN = re.compile(r"[/.]")


def dotted(name: str) -> str:
    """A site's name as draws have it.

    >>> dotted("encoder/layer.weight")
    'encoder.layer.weight'
    """
    return ".".join(_BETWEEN.split(name))


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of sites as a problem's parameters.

    >>> nested({"encoder/bias": 1, "encoder/weight": 2, "noise": 3})
    {'encoder': {'bias': 1, 'weight': 2}, 'noise': 3}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        *parts, last = _BETWEEN.split(name)
        place = found
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = value
    return found


def value_of(parameters: Mapping[str, Any], name: str) -> Any:
    """The value of a site among parameters, or `None` if it is not there.

    >>> value_of({"encoder": {"bias": 1}}, "encoder/bias"), value_of({"noise": 3}, "encoder/bias")
    (1, None)
    """
    place: Any = parameters
    for part in _BETWEEN.split(name):
        if not isinstance(place, Mapping) or part not in place:
            return None
        place = place[part]
    return place


def require_places(names: Iterable[str]) -> None:
    """Check that every site has a place of its own, and none stands where others are below it."""
    seen: dict[str, str] = {}
    for name in names:
        place = dotted(name)
        for other, whose in seen.items():
            if place == other or place.startswith(f"{other}.") or other.startswith(f"{place}."):
                raise ProblemError(
                    f"the latent sites {whose!r} and {name!r} would have the same place in the draws, where '/' and "
                    "'.' separate the parts of a name: call one of them something else"
                )
        seen[place] = name
