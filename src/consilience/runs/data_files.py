"""Where the data files of a run were, which is no part of what the run is: they may be elsewhere when it is resumed.

A run's status notes the path of each file and a digest of what was read from it. A file that has moved is named, and
can be given again; one that has changed is named too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.errors import RunError
from consilience.problems import Problem
from consilience.runs.files import read_json

ENTRY = "data_files"


def noted(files: Sequence[Path], problem: Problem) -> list[dict[str, str]]:
    """What a run notes about its files; without digests where some of them are at other processes."""
    digests = [one.hex() for one in problem.shard_digests()] if problem.network_size is None else [""] * len(files)
    return [{"path": str(path.resolve()), "digest": digest} for path, digest in zip(files, digests, strict=True)]


def of_task(run: Path, given: Sequence[Path]) -> tuple[Path, ...]:
    """The files that are given, or those with which a run began."""
    if given or not (run / "status.json").is_file():
        return tuple(given)
    before = [Path(one["path"]) for one in read_json(run / "status.json").get(ENTRY, [])]
    missing = [str(path) for path in before if not path.is_file()]
    if missing:
        raise RunError(
            f"the data of {run} was in {', '.join(missing)}, and no file is there now: give all of its files again, "
            f"in their order, with `consilience resume {run}{' --data FILE' * len(before)}`"
        )
    return tuple(before)


def require_same(run: Path, before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> None:
    """Check that files hold what they held when a run began."""
    for site, (old, new) in enumerate(zip(before, now, strict=False)):
        if old.get("digest") and new.get("digest") and old["digest"] != new["digest"]:
            raise RunError(
                f"{new['path']} (site {site}) does not hold the rows with which {run} began: give the files of all "
                "sites in their order, with --data, or start a new run"
            )
