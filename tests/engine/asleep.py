"""An engine that sleeps by an alarm clock of ours, for the tests of `wake_on_change`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lemming.engine import load_tick, persist_tick, run_opened
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.turn_report import TickReport
from lemming.operations.change_poller import ChangePoller
from lemming.operations.open_org import open_org
from lemming.testing import FrozenClock, resume

CHANGED = {"wake": "changed"}
EVERY_TENTH = {"run_every_n_ticks": 10}
MINUTE = 60.0
Action = Callable[[], object]


class Alarm(threading.Event):
    """A stop switch in whose `wait` time passes at once; on the way it does what is planned for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.waits: list[float] = []
        self.planned: list[tuple[float, Action]] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        until = self.now + timeout
        for moment, action in sorted(self.planned, key=lambda plan: plan[0]):
            if self.now <= moment <= until and not self.is_set():
                self.planned.remove((moment, action))
                action()
                self.now = moment if self.is_set() else self.now
        self.now = self.now if self.is_set() else until
        return self.is_set()


E = TypeVar("E", bound=Event)


@dataclass
class Night:
    """An organisation whose engine sleeps by an alarm clock of ours, one tick and one sleep at a time."""

    base: Path
    sleeper: ChangePoller
    alarm: Alarm
    events: list[Event] = field(default_factory=list)
    passed: int = 0

    def tick(self, meanwhile: Action = lambda: None) -> TickReport:
        """Run a tick and sleep after it; in between, when the turns have been taken, do something."""
        with self.sleeper.around_tick():
            report = run_opened(self.sleeper.runtime, load_tick(self.base), advance=True)
        meanwhile()
        self.passed = self.sleeper.sleep(report, MINUTE, float("inf"))
        persist_tick(self.base, report.tick + 1 + self.passed)
        return report

    def told(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def asleep(base: Path) -> Iterator[Night]:
    alarm, events = Alarm(), list[Event]()
    with open_org(base, clock=FrozenClock(), notify=events.append, stop=alarm) as runtime:
        yield Night(base, ChangePoller(runtime, lambda: alarm.now), alarm, events)


def reader(name: str, **blocks: Any) -> dict[str, Any]:
    return resume(name, **{"schedule": CHANGED, "permissions": {"read_outboxes": ["human"]}, **blocks})


def human() -> dict[str, Any]:
    return resume("human", model={"key": "human"})


def send(base: Path, tick: int = 1, identity: str = "a" * 12) -> None:
    plain = {"id": identity, "tick": tick, "agent": "human", "kind": "message", "tags": []}
    entry = {**plain, "payload": {"text": "hi"}, "created_at": "2026-01-01T00:00:00.000Z"}
    fs.write_atomic(base, f"agents/human/outbox/{tick:08d}_{identity}.json", dump_pretty(entry))
