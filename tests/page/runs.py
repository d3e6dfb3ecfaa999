"""Runs and answers for tests of the page, some with hostile names."""

import jax.numpy as jnp
import numpy as np

import consilience as cs
from tests.made_runs import gossip_plan, made_run, unison_plan

HOSTILE = """<img src=x onerror="document.title='owned'">{{ constructor }}"""
"""As HTML it would run a program, and as a template of the page's it would be evaluated."""


def problem(name="a problem", labels=("age", "stage", "treatment")):
    return cs.Problem(
        log_likelihood=lambda w, x: -0.5 * ((x - w["effects"]) ** 2).sum(-1),
        log_prior=lambda w: -0.5 * (w["effects"] ** 2).sum(),
        init=lambda key: {"effects": jnp.zeros(3)},
        shards=[jnp.ones((2, 3))] * 3,
        name=name,
        labels={"effects": labels},
    )


def draws(chains, agents, count, apart=0.0, seed=0):
    """Independent normal draws `(chains, agents, draws, 3)`; agents may be apart."""
    noise = np.random.default_rng(seed).normal(size=(chains, 1, count, 3))
    return noise + apart * np.arange(agents)[:, None, None]


def gossip_run(path, count=500, apart=0.0, model=None, **about):
    return made_run(path, model or problem(), gossip_plan(3, count), {"effects": draws(2, 3, count, apart)}, **about)


def unison_run(path, count=500, **about):
    return made_run(path, problem(), unison_plan(3, count), {"effects": draws(2, 1, count)[:, 0]}, **about)


def answer(agent, round_=100, here=True, **entries):
    """What a node of three says of itself."""
    if not here:
        return {"agent": agent, "here": False}
    return {
        "agent": agent, "here": True, "round": round_, "num_rounds": 1000, "durable": round_ // 2, "done": False,
        "neighbours": {str(other): True for other in range(3) if other != agent}, "lost": [], "present": [0, 1, 2],
        "messages": {"sent": round_, "received": 2 * round_, "rejected": 0},
        "traffic": {"bytes_sent": 10 * round_, "bytes_received": 20 * round_, "asked_for": 0}, "rejections": {},
        **entries,
    }  # fmt: skip
