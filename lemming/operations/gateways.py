"""Gateways carry messages between an organisation and the outside: received before a tick, delivered after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Protocol

from lemming.kernel.agents import Survey, survey_agents
from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import load_installed

Tell = Callable[[Problem], None]
Now = Callable[[], datetime]


class Gateway(Protocol):
    """A capability's message gateway, created and cached by its `Organisation`.

    Reports errors instead of raising them.

    `poll_after_s`: seconds until the next poll is useful, or None to wait for an arrival. `has_received`:
    True if the last poll received messages.
    """

    poll_after_s: float | None
    has_received: bool

    def receive(self, config: Config, survey: Survey, tick: int, clock: Now, tell: Tell) -> None:
        """Turn arrived messages into entries of `tick`, the tick about to start."""
        ...

    def deliver(self, config: Config, survey: Survey, tick: int, clock: Now, tell: Tell) -> None:
        """Deliver entries written before `tick` and addressed to the gateway's agents."""
        ...

    def undelivered(self, config: Config, survey: Survey, tick: int) -> frozenset[str]:
        """Return the ids of undelivered entries of ticks before `tick`."""
        ...

    def arrival_folder(self) -> str:
        """Return the folder with arrivals since the last poll, or an empty text."""
        ...


class Gateways:
    """The gateways of an organisation with channels, as `org.own(Gateways)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org

    @cached_property
    def all(self) -> Sequence[Gateway]:
        """The gateways of the installed capabilities, loaded by the first tick of an organisation with channels."""
        return [self._org.get_cache(kind) for kind in load_installed("gateways")]

    @property
    def _loaded(self) -> Sequence[Gateway]:
        gateways: Sequence[Gateway] = vars(self).get("all", ())
        return gateways

    def receive(self, config: Config, tick: int, clock: Now, tell: Tell) -> None:
        """Deliver entries left by an earlier run, and turn arrived messages into entries of this tick."""
        survey = survey_agents(self._org)
        for gateway in self.all:
            gateway.deliver(config, survey, tick, clock, tell)
            gateway.receive(config, survey, tick, clock, tell)

    def deliver(self, config: Config, report: TickReport, clock: Now, tell: Tell) -> None:
        """Deliver entries addressed to outside agents, after their tick is over."""
        survey = survey_agents(self._org)
        for gateway in self.all:
            gateway.deliver(config, survey, report.tick + 1, clock, tell)

    def undelivered(self, config: Config, survey: Survey, tick: int) -> frozenset[str]:
        """Return the ids of undelivered entries."""
        return frozenset[str]().union(*(gateway.undelivered(config, survey, tick) for gateway in self.all))

    @property
    def has_received(self) -> bool:
        """True if the last poll received messages."""
        return any(gateway.has_received for gateway in self._loaded)

    @property
    def poll_after_s(self) -> float | None:
        """Seconds until the next poll is useful; None to wait for an arrival."""
        return min((gateway.poll_after_s for gateway in self._loaded if gateway.poll_after_s is not None), default=None)

    def arrival_folder(self) -> str:
        """Return a folder with arrivals since the last poll, or an empty text."""
        return next((folder for gateway in self._loaded if (folder := gateway.arrival_folder())), "")
