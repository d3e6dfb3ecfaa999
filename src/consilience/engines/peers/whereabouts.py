"""What a node in unison says every ten seconds: where it is, and whose posterior it samples if not everybody's."""

from __future__ import annotations

import logging

from consilience.engines.peers.clock import Clock
from consilience.engines.peers.membership import names
from consilience.engines.peers.participants import Participants
from consilience.plans import Plan

log = logging.getLogger("consilience.peers")
SAY_SECONDS = 10.0


class Whereabouts:
    """Of one agent; `say` is called with every sum, also while the node waits in one.

    Attributes:
        step: at which the agent is.
        participants: who take part in it.
    """

    def __init__(self, agent: int, plan: Plan, participants: Participants, clock: Clock) -> None:
        self.step, self.participants = 0, participants
        self._agent, self._plan, self._clock, self._said_at = agent, plan, clock, clock.now()

    def arrive(self, step: int, participants: Participants) -> None:
        """Be at a step from now on."""
        self.step, self.participants = step, participants
        self.say()

    def say(self) -> None:
        """Say where the agent is, if it is time to."""
        now = self._clock.now()
        if now - self._said_at >= SAY_SECONDS:
            self._said_at = now
            log.info("agent %d: %s", self._agent, self.in_words(), extra={"round": self.step})

    def in_words(self) -> str:
        """Where it is."""
        warmup, taking_part = self._plan.burn_in, self.participants.agents
        where = f"warming up, {self.step:,} of {warmup:,}" if self.step < warmup else f"{self.step - warmup:,} draws"
        if len(taking_part) < self._plan.num_agents:
            where += f", of the posterior of {names(taking_part)} only"
        return where
