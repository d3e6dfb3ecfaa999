"""What a run spent for its draws: rounds, bytes and gradients, for one effective draw of the worst parameter.

Bytes are those of numbers in messages, of all agents and chains together, without headers. A round by gossip takes a
message over each edge in both directions. A sum in unison takes one over each edge of a tree in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from consilience.plans import Plan
from consilience.samplers import Corrected
from consilience.samplers.base import SpeaksFirst, SpeaksLast

_WORDS = {"nuts": 2, "hmc": 6}
"""What a sum has beside the gradient: energy, how many it does not fit, and of `hmc` four of private parameters."""


def spent(plan: Plan, summary: Mapping[str, Any], measured: Mapping[str, Any], num_shared: int) -> dict[str, Any]:
    """Costs for one effective draw, and those of the warm-up.

    Args:
        plan: of the run.
        summary: of the run.
        measured: with the effective draws of means and squares.
        num_shared: how many shared parameters there are, unconstrained.
    """
    chains = plan.num_chains
    rounds = (summary["rounds"] - summary["warmup_rounds"]) * chains
    gradients = (summary["gradients"] - summary["warmup_gradients"]) * chains
    messages = gradients * 2 * (plan.num_agents - 1) if plan.is_unison else rounds * 2 * plan.graph.num_edges
    sent = messages * _message_bytes(plan, num_shared)
    totals = {"rounds": rounds, "bytes": sent, "gradients": gradients}
    per_draw = {
        f"{name}_per_effective_{moment}": total / measured[f"ess_{moment}"]
        for name, total in totals.items()
        for moment in ("mean", "square")
    }
    return {**per_draw, "rounds": summary["rounds"], "warmup_rounds": summary["warmup_rounds"]}


def _message_bytes(plan: Plan, num_shared: int) -> int:
    """Of one message of one chain."""
    if plan.is_unison:
        return 8 * (num_shared + _WORDS[plan.sampler.kind])
    sampler, nothing = plan.gossip, np.zeros(num_shared)
    if isinstance(sampler, Corrected):
        sampler = sampler.tuned(1.0, 1, 1.0)
    state, message = sampler.init(nothing), None
    if isinstance(sampler, SpeaksFirst):
        message = sampler.share(state)
    elif isinstance(sampler, SpeaksLast):
        message = sampler.share(state, nothing, sampler.coefficients(0, plan.num_agents), nothing)
    numbers = sum(np.size(leaf) for leaf in jax.tree.leaves(message))
    return int(numbers * np.dtype(plan.dtype).itemsize)
