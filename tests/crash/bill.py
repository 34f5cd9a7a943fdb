"""What the trials paid for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lemming.kernel.journal.engine_events import Event, ModelAsked, TickBegins


@dataclass
class Bill:
    """The model calls asked for, as "tick agent call", in order. What is in it twice was paid twice.

    `is_known`: the same files had been run on from before, and were not run again.
    """

    calls: list[str] = field(default_factory=list)
    tick: int = 0
    is_known: bool = False

    def hear(self, event: Event) -> None:
        if isinstance(event, TickBegins):
            self.tick = event.tick
        elif isinstance(event, ModelAsked):
            self.calls.append(f"{self.tick} {event.agent} {event.call}")

    @property
    def repeated(self) -> list[str]:
        return list((Counter(self.calls) - Counter(set(self.calls))).elements())


def overpaid(bill: Bill, most: int, *, whole_tick: bool = False) -> list[str]:
    """Say if more was paid again than the promise allows: so many calls, or the calls of one tick."""
    if whole_tick:
        ticks = {call.split()[0] for call in bill.repeated}
        again = Counter(bill.repeated).values()
        return [f"paid again: {bill.repeated}"] if len(ticks) > 1 or max(again, default=0) > 1 else []
    return [f"paid again: {bill.repeated}"] if len(bill.repeated) > most else []
