"""What all nodes of a network must have in common: the plan, and some settings. Others are refused."""

from __future__ import annotations

from typing import Any

import jax

from consilience.engines.peers.settings import NodeSettings
from consilience.plans import Plan


def run_identity(plan: Plan, settings: NodeSettings) -> str:
    """By which a message says to which run it belongs."""
    return " ".join([plan.digest(), *_in_common(plan, settings).values()])


def common_entries(plan: Plan, settings: NodeSettings) -> dict[str, Any]:
    """The same by name, to find out in what two nodes differ."""
    return {**plan.model_dump(mode="json"), **_in_common(plan, settings)}


def _in_common(plan: Plan, settings: NodeSettings) -> dict[str, str]:
    """Beside the plan: replicas are those of one version of JAX."""
    if plan.is_unison:
        return {"on_loss": settings.on_loss, "jax": jax.__version__}
    return {"on_loss": settings.on_loss, "on_implausible": settings.on_implausible}
