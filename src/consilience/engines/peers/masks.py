"""Masks that hide each agent's part of a sum and cancel in the total.

Partners `i < j` share a secret. In every operation both draw the same stream of 64-bit words from it; `i` adds the
stream to its part and `j` subtracts it, modulo 2^64. Nobody, not even the tree's root, sees the part of an agent
whose partners do not all help: only sums. The stream is ChaCha20 with the pair's secret as its key and the label
(epoch, number) as its nonce. Labels never repeat, and a node that restarts computes the very part it had sent before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from consilience.errors import NetworkError
from consilience.graphs import Graph

ALL_PARTNERS = 20
"""Up to so many agents, each is a partner of all others."""
LEAST_PARTNERS = 4


class Masks:
    """One agent's masks.

    Args:
        agent: its number.
        secrets: 32 bytes for each partner, the same at its end.

    >>> both = [Masks(0, {1: b"0" * 32}), Masks(1, {0: b"0" * 32})]
    >>> sum(one.of(0, 17, 3) for one in both).tolist()
    [0, 0, 0]
    """

    def __init__(self, agent: int, secrets: Mapping[int, bytes]) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        self._agent, self._secrets = agent, dict(sorted(secrets.items()))
        self._cipher, self._chacha = Cipher, algorithms.ChaCha20

    def of(self, epoch: int, number: int, size: int) -> np.ndarray:
        """`(size,)` words of uint64 to add to the own part of an operation."""
        # the first four bytes count blocks within a stream, the other twelve are the nonce
        nonce, empty = bytes(4) + number.to_bytes(8, "little") + epoch.to_bytes(4, "little"), bytes(8 * size)
        found = np.zeros(size, np.uint64)
        for partner, secret in self._secrets.items():
            stream = self._cipher(self._chacha(secret, nonce), None).encryptor().update(empty)
            words = np.frombuffer(stream, "<u8")
            if self._agent < partner:
                found += words
            else:
                found -= words
        return found


def partners(graph: Graph) -> list[tuple[int, ...]]:
    """Who shares a secret with whom: all with all, or in a large network at least four each.

    Neighbours are partners, and so are agents whose numbers follow each other, the last and the first too; an agent
    with fewer than four chooses the next numbers after its own, and is a partner of those. In the ring of numbers any
    group has a partner outside besides the one that it reports to, if there is anybody else: so nobody sees the sum
    of a group, such as one behind a bridge.

    >>> from consilience.graphs import ring
    >>> partners(ring(5))[0], partners(ring(100))[7]
    ((1, 2, 3, 4), (4, 5, 6, 8, 9, 10))
    """
    require_enough(graph.num_agents)
    if graph.num_agents <= ALL_PARTNERS:
        return [tuple(j for j in range(graph.num_agents) if j != i) for i in range(graph.num_agents)]
    found: list[set[int]] = [set() for _ in range(graph.num_agents)]
    following_numbers = [(i, (i + 1) % graph.num_agents) for i in range(graph.num_agents)]
    for i, j in [*graph.edges.tolist(), *following_numbers]:
        found[i].add(j)
        found[j].add(i)
    wanted = [(i, set(near)) for i, near in enumerate(found) if len(near) < LEAST_PARTNERS]
    for i, near in wanted:
        following = i
        while len(near) < LEAST_PARTNERS:
            following = (following + 1) % graph.num_agents
            near.add(following)
        for j in near:
            found[i].add(j)
            found[j].add(i)
    return [tuple(sorted(near)) for near in found]


def require_enough(num_agents: int) -> None:
    """Check that there is something to hide: with two agents, the total less the own part is the other's."""
    if num_agents < 3:
        who = "two agents" if num_agents == 2 else "an agent and itself"
        raise NetworkError(
            f"masks hide nothing between {who}: each reads the other's part off the total. Sample without masks, or "
            "let a third agent take part"
        )
