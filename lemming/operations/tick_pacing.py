"""Pauses between ticks: a fixed interval, or none during a burst, while an agent has work to continue."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import Deadline, MonotonicClock
from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.turn_report import TickReport, TurnReport
from lemming.kernel.tick.context_builder import build_tick_context
from lemming.kernel.tick.runtime import Runtime
from lemming.operations.pending_work import find_pending_work


@dataclass
class IntervalTimer:
    """Sleeps from the start of a tick to the start of the next tick."""

    runtime: Runtime
    monotonic: MonotonicClock = time.monotonic
    _since_tick: Deadline = field(default_factory=Deadline)  # time since the start of the tick

    @contextmanager
    def around_tick(self) -> Iterator[None]:
        """Surround a tick to record its start time."""
        self._since_tick = Deadline(clock=self.monotonic)
        yield

    def sleep(self, report: TickReport, interval_s: float, max_ticks: float) -> int:
        """Sleep after a tick until the next tick is due, or until the engine stops.

        Return the number of missed ticks. At most `max_ticks` further ticks may be counted, including the tick run
        after the sleep.
        """
        self.runtime.stop.wait(max(0.0, interval_s - self._since_tick.elapsed()))
        return 0


def count_remaining_ticks(tick: int, completed: int, max_ticks: int | None, until_tick: int | None) -> float:
    """Return the number of ticks still to run; `tick` is the next tick, `completed` the number of ticks run.

    >>> count_remaining_ticks(5, 3, max_ticks=10, until_tick=6), count_remaining_ticks(5, 3, None, None)
    (2, inf)
    """
    by_count = math.inf if max_ticks is None else max_ticks - completed
    by_number = math.inf if until_tick is None else until_tick + 1 - tick
    return max(0, min(by_count, by_number))


@dataclass
class BurstController:
    """Counter of immediate ticks; the setting `ticks_in_a_row` limits a burst."""

    runtime: Runtime
    burst_length: int = 1
    agents: tuple[str, ...] = ()

    def should_continue(self, report: TickReport) -> bool:
        """Return True if the next tick should begin at once, and store the agents with a reason in `agents`.

        A reached limit is reported; afterwards a new burst can begin.
        """
        limit = self.runtime.load_config().org.ticks_in_a_row
        self.agents = self._find_triggers(report, limit - self.burst_length)
        if not self.agents:
            self.burst_length = 1
            return False
        if self.burst_length >= limit:
            names = ", ".join(self.agents[:5])
            text = f"{limit} ticks ran without a pause, and {names} still has new entries"
            hint = "ticks continue after the usual pause; raise the setting for longer bursts"
            self.runtime.report_problem(
                Problem(text, paths.ORG_FILE, pointer="/ticks_in_a_row", hint=hint, severity="warning", code="LMG-301")
            )
            self.burst_length = 1
            return False
        self.burst_length += 1
        return True

    def _find_triggers(self, report: TickReport, remaining: int) -> tuple[str, ...]:
        """Return the agents for the next immediate tick. `remaining`: number of ticks left in the burst.

        Idle ticks also count as immediate, up to the next tick with a due agent.
        """
        if not report.is_complete:
            return ()
        runtime = self.runtime
        is_at_work = any(turn.calls for turn in report.turns)
        failed = {turn.agent for turn in report.turns if _is_unproductive(turn, is_at_work=is_at_work)}
        tick_context = build_tick_context(runtime.org, runtime.load_config(), report.tick + 1, at=runtime.now())
        continuing = find_pending_work(tick_context)
        if names := [name for name in continuing.due_now if name not in failed]:
            return tuple(names)
        last_tick = report.tick + max(remaining, 1)
        return tuple(name for name, tick in continuing.later.items() if tick <= last_tick and name not in failed)


def _is_unproductive(turn: TurnReport, *, is_at_work: bool) -> bool:
    """Return True if another turn would fail again: the turn failed, or the agent may not call a model.

    `is_at_work`: another agent called a model, so the credits may suffice after its turn. An invalid
    reply may succeed on a retry; a request fails after a few invalid replies. A request failed by its turn is
    over: the turn wrote the failure, and any waiting request is a new request.
    """
    if turn.status == "failed":
        return not (turn.entries or (turn.request and turn.error == "ContractError"))
    return turn.status == "skipped" and bool(turn.error) and not is_at_work
