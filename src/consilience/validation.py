"""Frozen records whose mistakes come back as one line that names the entry, not as a library's report."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from consilience.errors import InputError, PlanError


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


def _explained(error: ValidationError, known: list[str]) -> str:
    """Each entry that is wrong, and the nearest right name for a typo."""
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"] if part not in _UNION_TAGS)
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, known, n=1)
            lines.append(f"unknown entry '{name}'" + (f", did you mean '{near[0]}'?" if near else ""))
        elif problem["type"] == "missing":
            lines.append(f"entry '{name}' is missing")
        elif problem["type"].startswith("union_tag") or problem["type"] == "model_attributes_type":
            lines.append(f"'{name}' needs a number, or a table with `kind` (constant, polynomial or from_to)")
        elif isinstance((problem.get("ctx") or {}).get("error"), InputError):
            lines.append(f"'{name}': {problem['ctx']['error']}" if name else str(problem["ctx"]["error"]))
        else:
            message = problem["msg"].removeprefix("Value error, ")
            text = f"{message[0].lower()}{message[1:]}, got {problem['input']!r:.60}"
            lines.append(f"'{name}': {text}" if name else text)
    return "; ".join(lines)


_UNION_TAGS = {"constant", "polynomial", "from_to"}
