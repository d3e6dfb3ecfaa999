"""What a corrected sampler's numbers leave: the errors of mean and variance to expect at every agent.

At the warm-up's mean `m` every agent's potential is replaced by its second-order expansion, in whitened coordinates

    U_i(m + S u) ≈ const + uᵀ Sᵀ∇U_i + ½ uᵀ Sᵀ∇²U_i S u,

and the exact law (`theory/affine.py`) of the sampler with the numbers found says where each agent's draws settle,
beside the normal law that the expansions add up to. It knows step size, exchanges and how unlike the agents are; it
does not know that a posterior is not normal. The noise of minibatches comes on top, as the temperature that it makes.

It takes every agent's own Hessian, which is more than the sums that agents tell each other. So it is made where all
agents are in one process, and left out where they are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.graphs import Graph
from consilience.kernel.tuning import Tuning
from consilience.kernel.whitening import Dense
from consilience.samplers import Corrected
from consilience.theory.affine import ExactLaw
from consilience.theory.gaussian import GaussianNetwork
from consilience.warmup.derivatives import Derivatives

MOST_NUMBERS = 120
"""Agents times parameters up to which the law is computed; its matrices have three times as many rows."""
NOT_AT_NODES = "it takes every agent's own curvature, which agents do not tell each other"


def predicted(sampler: Corrected, graph: Graph, tuning: Tuning, here: Derivatives) -> dict[str, Any]:
    """The errors to expect, from derivatives of all agents at the whitening's mean; or why they cannot be told.

    `mean_error` is in posterior deviations and `variance_error` a share, for each agent its worst parameter; so is
    `excess`, of its variance over that of the network's average, which a run can measure. A variance of the average
    is the posterior's but for the step size. Numbers for which no law is stationary are an `UnstableError`.
    """
    whitening, n = tuning.whitening, graph.num_agents
    assert isinstance(whitening, Dense)
    d, root = len(whitening.mean), np.asarray(whitening.root)
    network = GaussianNetwork(graph, root.T @ here.hessians @ root, -here.gradients @ root)
    if np.linalg.eigvalsh(network.precisions.sum(0))[0] <= 0:
        return left_out("the posterior is not log-concave at the warm-up's mean")
    law = ExactLaw(network, sampler.tuned(float(tuning.step_size), int(tuning.exchanges), 1.0))
    there = law.positions(law.stationary())
    target, average = network.posterior, network.average(there)
    blocks = there.covariance.reshape(n, d, n, d)[np.arange(n), :, np.arange(n)]
    known, together = _variances(root, target.covariance), _variances(root, average.covariance)
    own = np.stack([_variances(root, block) for block in blocks])
    away = (there.mean.reshape(n, d) - target.mean) @ root.T / np.sqrt(known)
    return {
        "mean_error": np.abs(away).max(1).tolist(),
        "variance_error": _worst(own / known - 1),
        "excess": _worst(own / together - 1),
    }


def heated(found: dict[str, Any], heating: float | None) -> dict[str, Any]:
    """The same with the noise of minibatches, which multiplies every agent's variances by a temperature.

    >>> [round(one, 3) for one in heated({"variance_error": [0.02]}, 1.05)["variance_error"]]
    [0.071]
    """
    if heating is None or "left_out" in found:
        return found
    return {**found, "variance_error": [float((1 + one) * heating - 1) for one in found["variance_error"]]}


def left_out(reason: str) -> dict[str, Any]:
    """A prediction that was not made."""
    return {"left_out": reason}


def _variances(root: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Of the parameters, from the covariance of their coordinates."""
    return np.einsum("ai,ij,aj->a", root, covariance, root)


def _worst(errors: np.ndarray) -> list[float]:
    """Of each agent the error of largest magnitude, with its sign."""
    return errors[np.arange(len(errors)), np.abs(errors).argmax(1)].tolist()
