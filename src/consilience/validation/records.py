"""Frozen records whose mistakes come back as one line that names the entry, not as a library's report."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from consilience.errors import InputError, PlanError

_KINDS: set[str] = set()
"""The `kind` of every record that has one: in an entry's path it stands for a choice, not for an entry."""


class Record(BaseModel):
    """A frozen record with checked entries; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mistake: ClassVar[type[InputError]] = PlanError
    """What a wrong entry raises."""

    def __init__(self, **entries: Any) -> None:
        try:
            super().__init__(**entries)
        except ValidationError as error:
            raise self.mistake(_explained(error, list(type(self).model_fields))) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        kind = cls.model_fields.get("kind")
        if kind is not None and isinstance(kind.default, str):
            _KINDS.add(kind.default)


def _explained(error: ValidationError, known: list[str]) -> str:
    """Each entry that is wrong, and the nearest right name for a typo."""
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"] if part not in _KINDS)
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, known, n=1)
            lines.append(f"unknown entry '{name}'" + (f", did you mean '{near[0]}'?" if near else ""))
        elif problem["type"] == "missing":
            lines.append(f"entry '{name}' is missing")
        elif problem["type"].startswith("union_tag") or problem["type"] == "model_attributes_type":
            lines.append(_choice(name, problem))
        elif isinstance((problem.get("ctx") or {}).get("error"), InputError):
            lines.append(f"'{name}': {problem['ctx']['error']}" if name else str(problem["ctx"]["error"]))
        else:
            message = problem["msg"].removeprefix("Value error, ")
            text = f"{message[0].lower()}{message[1:]}, got {problem['input']!r:.60}"
            lines.append(f"'{name}': {text}" if name else text)
    return "; ".join(lines)


def _choice(name: str, problem: Any) -> str:
    """An entry that is one of several kinds of records, and is none of them."""
    if name.split(".")[-1] == "sampler":
        known = (problem.get("ctx") or {}).get("expected_tags", "")
        return f"'{name}' needs a table with `kind`" + (f", one of {known}".replace("'", "") if known else "")
    return f"'{name}' needs a number, or a table with `kind` (constant, polynomial or from_to)"
