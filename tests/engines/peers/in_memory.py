"""Nodes of one process, each in a thread, joined in memory: everything they say and answer is kept."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from consilience.deployment.networks import make_network
from consilience.deployment.nodes import run_node
from consilience.engines.peers.memory import MemoryNetwork
from consilience.engines.peers.settings import NodeSettings


class Tapped:
    """A node's end of the network, of which all that goes out is kept, and what is answered to it."""

    def __init__(self, transport, kept):
        self._transport, self._kept = transport, kept

    def publish(self, content):
        self._kept.append(content)
        self._transport.publish(content)

    def send(self, neighbour, content):
        self._kept.append(content)
        self._transport.send(neighbour, content)

    def notify(self, content):
        self._kept.append(content)
        self._transport.notify(content)

    def ask(self, neighbour, what, seconds, content=None):
        answer = self._transport.ask(neighbour, what, seconds, content)
        self._kept += [one for one in (content, answer) if one]
        return answer

    def close(self):
        self._transport.close()


def sampled_in_memory(plan, problem, directory, network=None, clock=None, **options):
    """The runs of all nodes, and everything that was said."""
    files = make_network(plan, directory, insecure=True, **options)
    network, said = network or MemoryNetwork(), []

    def node(agent):
        settings = NodeSettings.load(files[agent])
        connect = network.connect(agent, settings.neighbours)
        return run_node(
            settings, problem.of_agent(agent), clock=clock, connect=lambda handlers: Tapped(connect(handlers), said)
        )

    with ThreadPoolExecutor(len(files)) as threads:
        runs = [job.result(300) for job in [threads.submit(node, agent) for agent in range(len(files))]]
    return runs, said


def words_of(said):
    """All words of eight bytes that stand anywhere in some messages, sorted."""
    long = [one for one in said if len(one) >= 16]
    parts = [np.frombuffer(one, np.uint64, (len(one) - at) // 8, at) for one in long for at in range(8)]
    return np.unique(np.concatenate(parts))


def found_in(words, numbers):
    """Which numbers stand among the words, as they are or as integers on a grid of any fineness."""
    numbers = np.unique(np.asarray(numbers, np.float64).ravel())
    numbers = numbers[np.abs(numbers) > 1e-3]
    found = np.isin(numbers.view(np.uint64), words)
    for exponent in range(20, 61):
        fixed = np.round(numbers * 2.0**exponent)
        usable = (np.abs(fixed) > 2.0**40) & (np.abs(fixed) < 2.0**62)  # smaller ones may stand there by chance
        whole = np.where(usable, fixed, 0).astype(np.int64)
        found |= usable & np.isin(whole.view(np.uint64), words)
    return numbers[found]
