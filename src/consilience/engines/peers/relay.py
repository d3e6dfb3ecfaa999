"""A relay, for nodes that can only connect outwards: all connect to it, and it passes on what they say.

It is Zenoh's router, with mutual TLS. Who connects is known by the name in the certificate: an agent may speak under
its own name only and hear only its neighbours in the plan, and the operator may ask for everybody's status. The relay
needs the plan, for who is whose neighbour, and no data.

Its file, `relay.toml`:

    listen = "relay.example:7447"
    plan = "plan.toml"

    [tls]
    authority = "certificates/authority.pem"
    certificate = "certificates/relay.pem"
    key = "certificates/relay.key"
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tomli_w
from pydantic import Field

from consilience.engines.peers.certificates import require_usable
from consilience.engines.peers.settings import TLS, neighbours_of, read_settings, require_protected
from consilience.engines.peers.zenoh_transport import (
    HEARD,
    LOGGED,
    NO_SCOUTING,
    OPERATOR,
    RELAY,
    ROOT,
    SPOKEN,
    access_control,
    allow_many_files,
    listening,
    open_keys,
    require_free_port,
    rule,
    transport_entries,
)
from consilience.errors import InputError, NetworkError
from consilience.plans import Plan
from consilience.validation import Record

log = logging.getLogger("consilience.peers")


class RelaySettings(Record):
    """A relay's settings.

    Attributes:
        listen: `host:port` on which all nodes reach it.
        plan: the plan's file.
        tls: certificates; `None` only on loopback.
        longest_message: bytes of the longest message that it takes in; it knows the plan, not the model.
    """

    mistake: ClassVar[type[InputError]] = NetworkError

    listen: str
    plan: Path
    tls: TLS | None = None
    longest_message: Annotated[int, Field(ge=1_000_000)] = 100_000_000

    @classmethod
    def load(cls, path: str | Path) -> RelaySettings:
        """The settings in a TOML file, its paths made absolute."""
        found, here = read_settings(cls, Path(path))
        return found.model_copy(update={"plan": here / found.plan, "tls": found.tls and found.tls.below(here)})

    def to_toml(self) -> str:
        """The settings as a TOML document."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


@contextlib.contextmanager
def relaying(settings: RelaySettings) -> Iterator[None]:
    """Pass messages on while the context lasts."""
    import zenoh

    plan = Plan.load(settings.plan)
    require_protected([settings.listen], settings.tls)
    if settings.tls is not None:
        require_usable(settings.tls.certificate, settings.tls.key, settings.tls.authority, RELAY)
    require_free_port(settings.listen)
    allow_many_files()
    zenoh.init_log_from_env_or(LOGGED)
    try:
        session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(settings, plan))))
    except zenoh.ZError as error:
        raise NetworkError(f"the relay cannot listen on {settings.listen}: {error}") from None
    log.info("the relay of %d agents listens on %s", plan.num_agents, settings.listen)
    with session:
        yield


def configuration(settings: RelaySettings, plan: Plan) -> dict[str, Any]:
    """Zenoh's configuration of a relay."""
    found: dict[str, Any] = {
        "mode": "router",
        "listen": {"endpoints": [listening(settings.listen, settings.tls)]},
        "scouting": NO_SCOUTING,
    }
    found["transport"] = transport_entries(settings.tls, settings.longest_message, plan.num_agents)
    if settings.tls is not None:
        found["access_control"] = _access_control(plan)
    return found


def _access_control(plan: Plan) -> dict[str, Any]:
    """Who may say and hear what through the relay; `ingress` is what it receives, `egress` what it sends."""
    rules = [
        rule("ask status", "ingress", ["query"], f"{ROOT}/*/status"),
        rule("status", "egress", ["reply", "declare_queryable"], f"{ROOT}/*/status"),
    ]
    used = {OPERATOR: ["ask status", "status"]}
    for agent in range(plan.num_agents):
        key = f"{ROOT}/{agent}/**"
        rules.append(rule(f"{agent} speaks", "ingress", SPOKEN, key))
        rules.append(rule(f"{agent} is asked", "egress", HEARD, key))
        rules.append(rule(f"ask {agent}", "ingress", HEARD, *open_keys(agent)))
        rules.append(rule(f"hear {agent}", "egress", SPOKEN, key))
        rules.append(rule(f"{agent} asks itself", "ingress", ["query"], f"{ROOT}/{agent}/status"))
        answers = ["reply", "declare_queryable"]
        rules.append(rule(f"{agent} hears itself", "egress", answers, f"{ROOT}/{agent}/status"))
        granted = [f"{agent} speaks", f"{agent} is asked", f"{agent} asks itself", f"{agent} hears itself"]
        for number in neighbours_of(plan, agent):
            its_edge = f"ask {number} for the edge to {agent}"
            rules.append(rule(its_edge, "ingress", ["query"], f"{ROOT}/{number}/edge/{agent}"))
            its_own = f"hear what {number} sends {agent} alone"
            rules.append(rule(its_own, "ingress", ["declare_subscriber"], f"{ROOT}/{number}/to/{agent}"))
            granted += [f"ask {number}", f"hear {number}", its_edge, its_own]
        used[f"agent-{agent}"] = granted
    return access_control(rules, used)
