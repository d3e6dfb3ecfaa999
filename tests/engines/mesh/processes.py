"""Teams of real processes on this machine, each the command line as a user starts it."""

import contextlib
import os
import socket

import numpy as np

from tests.command import Command

SECONDS = 300
SLURM = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "node[01-02]", "SLURM_NTASKS": "2", "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
}  # fmt: skip
PROBLEM = '''
import jax.numpy as jnp, numpy as np, os
import consilience as cs

def one(num_agents, agent):
    """Unequal shards; every agent that is loaded leaves its number behind. Uses JAX, as experiments do."""
    assert jnp.ones(2).sum() == 2
    with open(os.environ.get("LOADED", os.devnull), "a") as file:
        file.write(f"{agent}\\n")
    rng = np.random.default_rng(agent)
    features = rng.normal(size=(5 + agent % 3, 3)).astype(np.float32)
    targets = features.sum(1) + agent
    if os.environ.get("BAD_AGENT") == str(agent):
        targets[:] = np.nan
    return cs.models.linear_regression([(features, targets)])

if "FULL" in os.environ:
    import orbax.checkpoint

    def refuse(*arguments, **others):
        raise OSError(28, "No space left on device")

    orbax.checkpoint.CheckpointManager.save = refuse
if "OTHER_VERSION" in os.environ:
    import importlib.metadata

    original = importlib.metadata.version
    importlib.metadata.version = lambda name: "0.0.1" if name == os.environ["OTHER_VERSION"] else original(name)
'''


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_free(port):
    with socket.socket() as listener, contextlib.suppress(OSError):
        listener.bind(("127.0.0.1", port))
        return True
    return False


@contextlib.contextmanager
def team(commands, cwd, environments=None):
    """Processes that run together; those that are left at the end are killed."""
    places = cwd if isinstance(cwd, list) else [cwd] * len(commands)
    made = [
        Command(*command, cwd=place, environment=environment)
        for command, place, environment in zip(commands, places, environments or [None] * len(commands), strict=True)
    ]
    try:
        yield made
    finally:
        for process in made:
            if process.poll() is None:
                process.kill()
                process.wait(10)


def rendezvous_options(count, port=None, seconds=60):
    """The options that tell each of so many processes where to meet."""
    port = port or free_port()
    common = ["--coordinator", f"127.0.0.1:{port}", "--num-processes", count, "--join-seconds", seconds]
    return [[*common, "--process-id", number] for number in range(count)]


def slurm(count):
    """The environments that Slurm would give to so many tasks on this machine; their port is one that is free."""
    first = 65535 - 2**12 + 1
    job = next(job for job in np.random.default_rng().permutation(2**12) if is_free(first + int(job)))
    common = {**SLURM, "SLURM_JOB_ID": str(job), "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": str(count)}
    return [{**os.environ, **common, "SLURM_PROCID": str(number)} for number in range(count)]


def finished(made):
    """Exit codes and last lines of standard error."""
    told = []
    for process in made:
        _, said = process.communicate(SECONDS)
        lines = said.strip().splitlines()
        told.append((process.returncode, lines[-1] if lines else ""))
    return told


def require_finished(made, count):
    """All ended well and said nothing; but the first says that so short a run has not converged."""
    told = finished(made)
    assert [code for code, _ in told] == [0] * count
    assert told[0][1].startswith("Warning: Not converged")
    assert [said for _, said in told[1:]] == [""] * (count - 1)
