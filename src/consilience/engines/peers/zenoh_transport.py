"""A node's connections to its neighbours, by Zenoh: publish a message, receive theirs, ask for one that was missed.

Keys are `consilience/agent/NUMBER/…`: `message` (published every round), `since/K` (kept messages, asked for), `to/N`
(heard by agent N alone), `totals/K`, `part/K` and `keys` (sums and mask keys, asked for), `edge/N` (asked by agent N
alone: use a lost edge again), `status` and `plan` (asked for), `levels` and `found` (asked for before sampling),
`notice` (a last word, why the network cannot continue), `alive` (a token that vanishes with the process). There is no
scouting: a node connects to the neighbours of its plan, or to the relay, and to nobody else. With TLS both sides of a
connection show a certificate of the network's authority, and access control by the name in it lets a neighbour speak
under its own name only, and hear only what this node says. A relay speaks for all neighbours: it has checked their
names.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import socket
from typing import Any

from consilience.engines.peers.certificates import require_usable
from consilience.engines.peers.settings import TLS, NodeSettings, split_endpoint
from consilience.engines.peers.transport import LONGEST_OBJECT, Connect, Handlers, read_object
from consilience.errors import NetworkError

log = logging.getLogger("consilience.peers")
ROOT = "consilience/agent"
SPOKEN = ["put", "reply", "declare_queryable", "liveliness_token"]
HEARD = ["query", "declare_subscriber", "declare_liveliness_subscriber", "liveliness_query"]
NO_SCOUTING = {"multicast": {"enabled": False}, "gossip": {"enabled": False}}
LOGGED = "error,zenoh_link_tls=warn"
"""Of what Zenoh logs: errors, and the connections that it refuses."""
_HANDSHAKE = "#tls_handshake_timeout_ms=600000"
"""Of those who call: Zenoh stops accepting for a tenth of a second whenever a handshake fails, and one that is slow
does no harm until it has failed."""
_MORE_SESSIONS = 16
_THREADS = "(rx: (handover: app), acc: (handover: app), net: (handover: app), app: (worker_threads: 2))"
"""Zenoh's threads in this process, unless `ZENOH_RUNTIME` says otherwise: the one that hears that bytes have come
also reads them. By itself Zenoh wakes three threads for a message, each of which waits for a core."""
ASKED, NUMBERED = ("status", "plan", "keys", "census", "levels", "found"), ("totals", "part")
"""What neighbours ask a node for, and what they ask for by a number."""
RELAY = "relay"
"""The name in a relay's certificate."""

OPERATOR = "operator"
"""The name in the certificate of the one who may ask every node for its status."""


def by_zenoh(settings: NodeSettings) -> Connect:
    """How a node joins its network over real connections."""
    return lambda handlers: ZenohTransport(settings, handlers)


class ZenohTransport:
    """The open connections of one node.

    Args:
        settings: who and where it and its neighbours are.
        handlers: what it does with what arrives.
    """

    def __init__(self, settings: NodeSettings, handlers: Handlers) -> None:
        import zenoh

        self._zenoh, self.settings = zenoh, settings
        os.environ.setdefault("ZENOH_RUNTIME", _THREADS)  # it looks when it opens its first session
        zenoh.init_log_from_env_or(LOGGED)
        allow_many_files()
        if settings.listen is not None:
            require_free_port(settings.listen)
        if settings.tls is not None:
            tls = settings.tls
            require_usable(tls.certificate, tls.key, tls.authority, f"agent-{settings.agent}")
        try:
            self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(settings, handlers.longest))))
        except zenoh.ZError as error:
            raise NetworkError(f"the node cannot join the network ({settings.place}): {error}") from None
        own = f"{ROOT}/{settings.agent}"
        self._publisher = self._session.declare_publisher(
            f"{own}/message", congestion_control=zenoh.CongestionControl.BLOCK, express=True
        )

        self._direct = {
            number: self._session.declare_publisher(
                f"{own}/to/{number}", congestion_control=zenoh.CongestionControl.BLOCK, express=True
            )
            for number in settings.neighbours
        }

        def reply(query: Any) -> None:
            sent = b"" if query.payload is None else query.payload.to_bytes()
            content = handlers.answer(str(query.key_expr).removeprefix(f"{own}/"), sent)
            if content is not None:
                query.reply(query.key_expr, content)

        asked = ("since/*", "edge/*", *(f"{what}/*" for what in NUMBERED), *ASKED)
        self._declared: list[Any] = [self._session.declare_queryable(f"{own}/{what}", reply) for what in asked]
        for number in settings.neighbours:
            heard, seen, told = self._reactions(number, handlers)
            key = f"{ROOT}/{number}"
            self._declared.append(self._session.declare_subscriber(f"{key}/message", heard))
            self._declared.append(self._session.declare_subscriber(f"{key}/to/{settings.agent}", heard))
            self._declared.append(self._session.declare_subscriber(f"{key}/notice", told))
            self._declared.append(self._session.liveliness().declare_subscriber(f"{key}/alive", seen, history=True))
        self._declared.append(self._session.liveliness().declare_token(f"{own}/alive"))

    def _reactions(self, number: int, handlers: Handlers) -> tuple[Any, Any, Any]:
        """What to do with a neighbour's message, with its coming and going, and with its last word."""

        def heard(sample: Any) -> None:
            handlers.receive(number, sample.payload.to_bytes())

        def seen(sample: Any) -> None:
            handlers.change(number, sample.kind == self._zenoh.SampleKind.PUT)

        def told(sample: Any) -> None:
            handlers.notice(number, sample.payload.to_bytes())

        return heard, seen, told

    def publish(self, content: bytes) -> None:
        """Send a message to all neighbours that are connected; what does not reach them they ask for."""
        with contextlib.suppress(self._zenoh.ZError):  # closed meanwhile, to connect anew
            self._publisher.put(content)

    def send(self, neighbour: int, content: bytes) -> None:
        """Send a message to one neighbour, if it is connected; what does not reach it, it asks for."""
        with contextlib.suppress(self._zenoh.ZError):  # closed meanwhile, to connect anew
            self._direct[neighbour].put(content)

    def notify(self, content: bytes) -> None:
        """Send a last word to all neighbours that are connected."""
        self._session.put(f"{ROOT}/{self.settings.agent}/notice", content)

    def ask(self, neighbour: int, what: str, seconds: float, content: bytes | None = None) -> bytes | None:
        """What a neighbour answers to `what`, or `None` if it does not within so many seconds."""
        with contextlib.suppress(self._zenoh.ZError):  # closed meanwhile, to connect anew
            for reply in self._session.get(f"{ROOT}/{neighbour}/{what}", timeout=seconds, payload=content):
                if reply.ok is not None:
                    return reply.ok.payload.to_bytes()
        return None

    def close(self) -> None:
        """Leave the network."""
        with contextlib.suppress(self._zenoh.ZError):  # closed before
            for one in self._declared:
                one.undeclare()
        self._session.close()


def ask_status(settings: NodeSettings, asking: TLS | None, seconds: float) -> dict[str, Any] | None:
    """What a node says of itself, asked by the operator or its own site; `None` if it does not answer."""
    import zenoh

    zenoh.init_log_from_env_or("off")
    scheme = "tcp" if asking is None else "tls"
    wanted = {
        "mode": "client",
        "connect": {
            "endpoints": [f"{scheme}/{settings.relay or settings.listen}"],
            "timeout_ms": int(1000 * seconds),
            "exit_on_failure": True,
        },
        "scouting": NO_SCOUTING,
        "transport": transport_entries(asking, LONGEST_OBJECT, 1),
    }
    try:
        with zenoh.open(zenoh.Config.from_json5(json.dumps(wanted))) as session:
            for reply in session.get(f"{ROOT}/{settings.agent}/status", timeout=seconds):
                if reply.ok is not None:
                    return read_object(reply.ok.payload.to_bytes()) or None
    except zenoh.ZError:
        return None
    return None


def configuration(settings: NodeSettings, longest: int) -> dict[str, Any]:
    """Zenoh's configuration of a node; messages that are longer than `longest` bytes are not taken in."""
    scheme = "tcp" if settings.tls is None else "tls"
    called = [*settings.neighbours.values()]  # both ends call: strangers that crowd one of them are not enough
    found: dict[str, Any] = {
        "mode": "peer" if settings.relay is None else "client",
        "listen": {"endpoints": [] if settings.listen is None else [listening(settings.listen, settings.tls)]},
        "connect": {
            "endpoints": [f"{scheme}/{place}" for place in (called if settings.relay is None else [settings.relay])],
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": {"period_init_ms": 100, "period_max_ms": 1000, "period_increase_factor": 2},
        },
        "scouting": NO_SCOUTING,
    }
    found["transport"] = transport_entries(settings.tls, longest, len(settings.neighbours))
    if settings.tls is not None:
        found["access_control"] = _access_control(settings)
    return found


def listening(place: str, tls: TLS | None) -> str:
    """Zenoh's endpoint for being called."""
    return f"tcp/{place}" if tls is None else f"tls/{place}{_HANDSHAKE}"


def allow_many_files() -> None:
    """Let this process have as many connections open as it may: with none left, Zenoh accepts nobody ever again."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def transport_entries(tls: TLS | None, longest: int, num_members: int) -> dict[str, Any]:
    """Zenoh's entries for what comes in: from how many, how much, and by which certificates."""
    return {
        "shared_memory": {"enabled": False},  # by which neighbours on one machine would get around the limit
        "unicast": {"max_sessions": num_members + _MORE_SESSIONS},
        "link": {"rx": {"max_message_size": longest}, **({} if tls is None else {"tls": _tls_entries(tls)})},
    }


def _tls_entries(tls: TLS) -> dict[str, Any]:
    """Mutual TLS, the same files for calls and for being called."""
    own = {"certificate": str(tls.certificate), "private_key": str(tls.key)}
    return {
        "root_ca_certificate": str(tls.authority),
        "enable_mtls": True,
        "verify_name_on_connect": True,
        **{f"{side}_{name}": value for side in ("listen", "connect") for name, value in own.items()},
    }


def _access_control(settings: NodeSettings) -> dict[str, Any]:
    """Who may say and hear what: a neighbour speaks under its own name only, and hears this node only."""
    own = f"{ROOT}/{settings.agent}"
    own_keys = open_keys(settings.agent)
    rules = [rule("speak", "egress", SPOKEN, f"{own}/**"), rule("be heard", "ingress", HEARD, *own_keys)]
    used: dict[str, list[str]] = {}
    for number in settings.neighbours:
        theirs = f"{ROOT}/{number}/**"
        rules.append(rule(f"hear {number}", "ingress", SPOKEN, theirs))
        rules.append(rule(f"ask {number}", "egress", HEARD, theirs))
        rules.append(rule(f"give {number} its edge", "ingress", ["query"], f"{own}/edge/{number}"))
        rules.append(rule(f"send {number} its own", "ingress", ["declare_subscriber"], f"{own}/to/{number}"))
        name = f"agent-{number}" if settings.relay is None else RELAY
        used.setdefault(name, ["speak", "be heard"]).extend(
            (f"hear {number}", f"ask {number}", f"give {number} its edge", f"send {number} its own")
        )
    if settings.relay is None:
        rules.append(rule("status", "ingress", ["query"], f"{own}/status"))
        rules.append(rule("answer", "egress", ["reply", "declare_queryable"], f"{own}/status"))
        used[OPERATOR] = used[f"agent-{settings.agent}"] = ["status", "answer"]  # its own site may ask too
    return access_control(rules, used)


def open_keys(agent: int) -> list[str]:
    """What all neighbours of an agent may hear and ask for; `edge/N` and `to/N` are for neighbour N alone."""
    heard = ("message", "alive", "notice")
    asked = ("since/*", *(f"{what}/*" for what in NUMBERED), *ASKED)
    return [f"{ROOT}/{agent}/{what}" for what in (*heard, *asked)]


def rule(name: str, flow: str, messages: list[str], *keys: str) -> dict[str, Any]:
    """A rule of Zenoh's access control that allows some kinds of messages about some keys in one direction."""
    return {"id": name, "permission": "allow", "flows": [flow], "messages": messages, "key_exprs": [*keys]}


def access_control(rules: list[dict[str, Any]], used: dict[str, list[str]]) -> dict[str, Any]:
    """Zenoh's access control: by the name in a certificate, the rules for its holder; all else is denied."""
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": [{"id": name, "cert_common_names": [name]} for name in used],
        "policies": [{"rules": names, "subjects": [name]} for name, names in used.items()],
    }


def require_free_port(place: str) -> None:
    """Say clearly that a port is taken, which the network library says less clearly."""
    host, port = split_endpoint(place)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise NetworkError(
            f"nothing can listen on {place} here ({error.strerror or error}): is another node running there? If "
            "not, choose another port in this file and in the files of those who connect to it"
        ) from None
