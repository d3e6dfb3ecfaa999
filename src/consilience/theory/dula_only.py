"""The theory is about D-ULA: any other sampler is declined politely."""

from __future__ import annotations

from consilience.errors import ConditionError
from consilience.samplers import DULA, Sampler


def require_dula(sampler: Sampler) -> DULA:
    """The sampler, if it is the one that the theorems are about."""
    if isinstance(sampler, DULA):
        return sampler
    raise ConditionError(
        f"the theorems are about D-ULA, and say nothing about {sampler.kind}: "
        + (
            "it tunes itself, and a finished run says whether it has converged; for the theorems take --sampler dula "
            "with --steps"
            if sampler.tunes_itself
            else "`consilience check` says whether the plan is stable, or take --sampler dula"
        )
    )
