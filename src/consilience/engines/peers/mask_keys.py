"""The keys behind masks: each node makes its own, announces the public half, and shares a secret with its partners.

A node makes an X25519 key at its first start and keeps it in its run directory, so that a run that begins anew has
new masks. The public half, signed with the key of the node's certificate, goes from neighbour to neighbour until all
have it; partners need not be neighbours. What `network init` makes centrally is no secret from its maker; this is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from consilience.engines.peers.messages import Rejected
from consilience.engines.peers.settings import TLS
from consilience.engines.peers.signatures import is_signed, sign
from consilience.errors import NetworkError

KEY_BYTES = 32
_LONGEST_CHAIN = 32_000
_LONGEST_SIGNATURE = 1024


def own_key(path: Path) -> Any:
    """A node's private key in a file; made if there is none, readable by its owner alone."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    if not path.exists():
        draft = path.with_name(f"{path.name}.partial")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(X25519PrivateKey.generate().private_bytes_raw())
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    content = path.read_bytes()
    if len(content) != KEY_BYTES:
        raise NetworkError(
            f"{path} is not a mask key of {KEY_BYTES} bytes: restore it from a copy; without one, move the run "
            "directories of all agents away and start anew"
        )
    return X25519PrivateKey.from_private_bytes(content)


class Announcement(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """An agent's public key, and who says so."""

    run: str
    agent: int
    public: bytes
    chain: bytes = b""
    """The agent's certificate; empty without TLS."""
    signature: bytes = b""

    def statement(self) -> bytes:
        """What is signed."""
        return msgspec.msgpack.encode(["consilience mask key", self.run, self.agent, self.public])


@dataclass(frozen=True)
class Registry:
    """Makes and checks announcements of one run.

    Attributes:
        run: the run's identity, a digest of its plan.
        num_agents: of the whole network.
        tls: the node's certificates; `None` only on loopback.

    >>> registry = Registry("run", 3)
    >>> registry.read(registry.announce(1, b"x" * 32)).agent
    1
    >>> registry.read(b"nonsense").reason
    'it is no announcement'
    """

    run: str
    num_agents: int
    tls: TLS | None = None

    def announce(self, agent: int, public: bytes) -> bytes:
        """An agent's public key as bytes, signed if there are certificates."""
        said = Announcement(self.run, agent, public)
        if self.tls is not None:
            chain, signature = self.tls.certificate.read_bytes(), sign(said.statement(), self.tls.key)
            said = Announcement(self.run, agent, public, chain, signature)
        return msgspec.msgpack.encode(said)

    def read(self, content: bytes) -> Announcement | Rejected:
        """The announcement in some bytes, or why it is none."""
        try:
            said = msgspec.msgpack.decode(bytes(content), type=Announcement)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return Rejected("it is no announcement")
        if said.run != self.run:
            return Rejected("it belongs to another run", other_run=True)
        if not 0 <= said.agent < self.num_agents:
            return Rejected(f"there is no agent {said.agent}")
        if len(said.public) != KEY_BYTES or not any(said.public):
            return Rejected(f"the key of agent {said.agent} is none")
        if len(said.chain) > _LONGEST_CHAIN or len(said.signature) > _LONGEST_SIGNATURE:
            return Rejected(f"the certificate of agent {said.agent} is too long")
        if self.tls is not None and not is_signed(
            said.statement(), said.signature, said.chain, f"agent-{said.agent}", self.tls.authority
        ):
            return Rejected(f"agent {said.agent} did not sign its key with a certificate of this network")
        return said


def shared_secret(key: Any, public: bytes, run: str, agent: int, partner: int, epoch: bytes = b"") -> bytes:
    """The secret of two agents, the same at both ends; another one in every epoch.

    >>> from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    >>> one, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    >>> mine = shared_secret(one, other.public_key().public_bytes_raw(), "run", 0, 1)
    >>> mine == shared_secret(other, one.public_key().public_bytes_raw(), "run", 1, 0), len(mine)
    (True, 32)
    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    low, high = sorted((agent, partner))
    about = msgspec.msgpack.encode(["consilience mask", run, low, high, epoch])
    try:
        common = key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise NetworkError(
            f"the mask key of agent {partner} is weak: its operator must move its run directory away and start anew"
        ) from None
    return HKDF(hashes.SHA256(), KEY_BYTES, None, about).derive(common)
