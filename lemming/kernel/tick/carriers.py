"""Who carries messages between an organisation and what is outside: in before a tick, out after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from lemming.kernel.agents import Survey, survey_agents
from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.report import TickReport
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import carrier_classes

Tell = Callable[[Problem], None]
Now = Callable[[], datetime]


class Carrier(Protocol):
    """A capability's carriers of messages; its `Organisation` makes and keeps it. What it raises it tells.

    `again_s`: after how many seconds another look is worth it; None: when something arrives. `has_taken_in`:
    whether the last look brought anything.
    """

    again_s: float | None
    has_taken_in: bool

    def take_in(self, config: Config, survey: Survey, tick: int, now: Now, tell: Tell) -> None:
        """Turn what has arrived into entries of `tick`, which is about to begin."""
        ...

    def hand_out(self, config: Config, survey: Survey, tick: int, now: Now, tell: Tell) -> None:
        """Send out what is addressed to agents that it speaks for, written before `tick`."""
        ...

    def waiting(self, config: Config, survey: Survey, tick: int) -> frozenset[str]:
        """Return the identities of entries that are still to go out, of ticks before `tick`."""
        ...

    def has_arrived(self) -> str:
        """Return the folder in which something has arrived since the last look; empty when nothing has."""
        ...


class Carriers:
    """The carriers of an organisation, of use where it has channels: `org.own(Carriers)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self.all: Sequence[Carrier] = [org.own(kind) for kind in carrier_classes()]

    def take_in(self, config: Config, tick: int, now: Now, tell: Tell) -> None:
        """Send out what an earlier run left; make entries of this tick of what has arrived."""
        survey = survey_agents(self._org)
        for carrier in self.all:
            carrier.hand_out(config, survey, tick, now, tell)
            carrier.take_in(config, survey, tick, now, tell)

    def hand_out(self, config: Config, report: TickReport, now: Now, tell: Tell) -> None:
        """Send out what is addressed to agents that are outside, once its tick is over."""
        survey = survey_agents(self._org)
        for carrier in self.all:
            carrier.hand_out(config, survey, report.tick + 1, now, tell)

    def waiting(self, config: Config, survey: Survey, tick: int) -> frozenset[str]:
        """Return the identities of entries that are still to go out."""
        return frozenset[str]().union(*(it.waiting(config, survey, tick) for it in self.all))

    @property
    def has_taken_in(self) -> bool:
        """Whether the last look brought anything."""
        return any(it.has_taken_in for it in self.all)

    @property
    def again_s(self) -> float | None:
        """After how many seconds another look is worth it; None: when something arrives."""
        return min((it.again_s for it in self.all if it.again_s is not None), default=None)

    def has_arrived(self) -> str:
        """Return a folder in which something has arrived since the last look; empty when nothing has."""
        return next((folder for it in self.all if (folder := it.has_arrived())), "")
