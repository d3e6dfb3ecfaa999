"""What one node needs to know, beside the plan: who it is, where it listens, where its neighbours are, its secrets.

A node's file, `agent-3.toml`:

    agent = 3
    plan = "plan.toml"
    run = "runs/agent-3"
    listen = "127.0.0.1:7403"

    [neighbours]
    2 = "127.0.0.1:7402"
    4 = "127.0.0.1:7404"

    [tls]
    authority = "certificates/authority.pem"
    certificate = "certificates/agent-3.pem"
    key = "certificates/agent-3.key"

Paths are relative to the file. A node that can only connect outwards has `relay = "relay.example:7447"` in place of
`listen`, and that as the endpoint of every neighbour.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

import tomli_w
from pydantic import Field

from consilience.errors import InputError, NetworkError
from consilience.plans import Plan
from consilience.validation import Record


class TLS(Record):
    """The files of mutual TLS."""

    mistake: ClassVar[type[InputError]] = NetworkError

    authority: Path
    certificate: Path
    key: Path

    def below(self, directory: Path) -> TLS:
        """The same files with paths that are relative to a directory."""
        return TLS(**{name: directory / getattr(self, name) for name in TLS.model_fields})


class NodeSettings(Record):
    """One node's settings.

    Attributes:
        agent: which agent of the plan this node is, from 0.
        plan: the plan's file.
        run: the node's run directory.
        listen: `host:port` on which neighbours reach it.
        relay: `host:port` of the relay to connect to, in place of `listen`.
        neighbours: `host:port` of each neighbour, by its number.
        tls: certificates; `None` only on loopback.
        checkpoint_seconds: how often the node writes a checkpoint.
        ask_seconds: how long it waits for a neighbour's message before it asks for it.
        on_loss: what to do without a neighbour: `wait` for it, or `continue` with the others.
        patience: after how many seconds without its message a neighbour counts as lost, if nodes continue; the first
            round waits for everybody.
        on_implausible: what to do when a neighbour's messages are far from what its first rounds were like: `warn`,
            `stop` the network, or `clip` them to what is plausible.
        allow: modules that the plan may name as its problem; what Consilience itself has needs no permission.
        metrics: `host:port` on loopback where Prometheus may read measurements; by default nowhere.
        data: of a study, this site's own file; it is read here and nowhere else.
    """

    mistake: ClassVar[type[InputError]] = NetworkError

    agent: Annotated[int, Field(ge=0)]
    plan: Path
    run: Path
    listen: str | None = None
    relay: str | None = None
    neighbours: dict[int, str]
    tls: TLS | None = None
    checkpoint_seconds: Annotated[float, Field(gt=0)] = 10.0
    ask_seconds: Annotated[float, Field(gt=0)] = 0.5
    on_loss: Literal["wait", "continue"] = "wait"
    patience: Annotated[float, Field(gt=0)] = 30.0
    on_implausible: Literal["warn", "stop", "clip"] = "warn"
    allow: tuple[str, ...] = ()
    metrics: str | None = None
    data: Path | None = None

    @classmethod
    def load(cls, path: str | Path) -> NodeSettings:
        """The settings in a TOML file, its paths made absolute."""
        found, here = read_settings(cls, Path(path))
        tls = found.tls and found.tls.below(here)
        data = found.data and here / found.data
        return found.model_copy(update={"plan": here / found.plan, "run": here / found.run, "tls": tls, "data": data})

    def to_toml(self) -> str:
        """The settings as a TOML document."""
        entries = self.model_dump(mode="json", exclude_none=True)
        entries["neighbours"] = {str(number): place for number, place in self.neighbours.items()}
        return tomli_w.dumps(entries)

    @property
    def place(self) -> str:
        """Where the node meets its neighbours, in words."""
        return f"listening on {self.listen}" if self.relay is None else f"through the relay {self.relay}"

    def require_fitting(self, plan: Plan) -> None:
        """Check that agent, neighbours and addresses fit the plan, and that nothing is open without TLS."""
        if self.agent >= plan.num_agents:
            raise NetworkError(f"agent = {self.agent}, but the plan has the agents 0 to {plan.num_agents - 1}")
        wanted, given = neighbours_of(plan, self.agent), set(self.neighbours)
        if set(wanted) - given:
            missing = ", ".join(map(str, sorted(set(wanted) - given)))
            raise NetworkError(
                f"agent {self.agent} has the neighbours {sorted(wanted)} in the plan, but no endpoint is given for "
                f"{missing}: add it under [neighbours]"
            )
        if given - set(wanted):
            unknown = ", ".join(map(str, sorted(given - set(wanted))))
            raise NetworkError(
                f"agent {unknown} is no neighbour of agent {self.agent} in the plan: remove its endpoint"
            )
        if (self.listen is None) == (self.relay is None):
            raise NetworkError(
                'a node has either an endpoint, `listen = "host:port"`, or a `relay`: give one of them'
            )
        if self.metrics is not None and not is_loopback(split_endpoint(self.metrics)[0]):
            raise NetworkError(
                f"metrics = {self.metrics!r} is not on loopback, and measurements are not protected: write for "
                "example 127.0.0.1:9400, and let a Prometheus or a proxy on this machine read it"
            )
        own = [place for place in (self.listen, self.relay) if place is not None]
        require_protected([*own, *self.neighbours.values()], self.tls)


Settings = TypeVar("Settings", bound=Record)


def read_settings(kind: type[Settings], path: Path) -> tuple[Settings, Path]:
    """What a TOML file says, checked, and the directory that its paths are relative to."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NetworkError(f"there is no file {path}: make one with `consilience network init`") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NetworkError(f"the file {path} cannot be read: {error}") from None
    except RecursionError:
        raise NetworkError(f"the file {path} cannot be read: its entries are nested too deeply") from None
    if not any(entry.is_required() and name in entries for name, entry in kind.model_fields.items()):
        raise NetworkError(
            f"{path} is another kind of file: `consilience network init` makes those of nodes (agent-0.toml …) "
            "and of relays"
        )
    try:
        return kind(**entries), path.resolve().parent
    except InputError as error:
        raise NetworkError(f"{path}: {error}") from None


def require_protected(places: Sequence[str], tls: TLS | None) -> None:
    """Check that endpoints are ones, and on loopback if there is no TLS."""
    for place in places:
        host, _ = split_endpoint(place)
        if tls is None and not is_loopback(host):
            raise NetworkError(
                f"{place} is not on loopback, and without TLS nothing else is served: use the certificates that "
                "`consilience network init` makes"
            )


def neighbours_of(plan: Plan, agent: int) -> dict[int, float]:
    """The neighbours of an agent and the weights of its edges to them, in the order of their numbers."""
    graph, found = plan.graph, {}
    for (i, j), weight in zip(graph.edges.tolist(), graph.weights.tolist(), strict=True):
        if agent in (i, j):
            found[j if i == agent else i] = float(weight)
    return dict(sorted(found.items()))


def split_endpoint(place: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise NetworkError(f"{place!r} is no endpoint: write host:port, for example 192.0.2.7:7447")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, as seen from itself only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
