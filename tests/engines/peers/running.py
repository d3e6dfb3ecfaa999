"""Networks for tests, on real connections over loopback: nodes as processes, or quicker as threads of this one."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from consilience import Run, experiments
from consilience.deployment.merging import network_draws
from consilience.deployment.networks import make_network
from consilience.deployment.nodes import run_node
from consilience.engines.peers.settings import NodeSettings


def sample_by_peers(plan, directory, problem=None, **options):
    """The draws of a network whose nodes run side by side, `(chain, agent, draw, …)` by variable."""
    files = make_network(plan, directory, **options)
    whole = problem or experiments.load_problem(plan)
    with ThreadPoolExecutor(len(files)) as threads:
        jobs = [
            threads.submit(run_node, NodeSettings.load(path), whole.of_agent(agent))
            for agent, path in enumerate(files)
        ]
        runs = [Run(job.result(timeout=240).path) for job in jobs]
    return network_draws([run.path for run in runs]), runs


def assert_same_draws(found, run, tolerance=2e-5):
    """Peers' draws against those of `simulate`."""
    for name, values in found.items():
        np.testing.assert_allclose(values, run.draws[name].to_numpy(), atol=tolerance, rtol=tolerance)


@contextlib.contextmanager
def ended_at_last(nodes):
    """Processes of nodes, none of which outlives the test; the list may change meanwhile."""
    try:
        yield
    finally:
        for node in nodes:
            if node.poll() is None:
                node.kill()
                node.wait(10)


def wait_for_success(nodes, seconds=240):
    """Wait until all processes have ended well."""
    for node in nodes:
        _, said = node.communicate(timeout=seconds)
        assert node.returncode == 0, said[-2000:]
