"""Ticks that follow each other at once while there is something for an agent to go on with."""

from __future__ import annotations

from dataclasses import dataclass

from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.report import TickReport, TurnReport
from lemming.kernel.org.config import ORG_FILE
from lemming.kernel.tick.addressed import who_goes_on
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import take_snapshot


@dataclass
class Eager:
    """Counts the ticks that follow each other at once; `limit` (settings: `ticks_in_a_row`) ends a row."""

    runtime: Runtime
    in_a_row: int = 1
    names: tuple[str, ...] = ()

    def goes_on(self, report: TickReport) -> bool:
        """Return whether the next tick is to begin at once; `names` then are those who have a reason.

        The limit is said when it is reached; then a new row may begin.
        """
        limit = self.runtime.load_config().org.ticks_in_a_row
        self.names = self._who(report, limit - self.in_a_row)
        if not self.names:
            self.in_a_row = 1
            return False
        if self.in_a_row >= limit:
            self._log(limit)
            self.in_a_row = 1
            return False
        self.in_a_row += 1
        return True

    def _who(self, report: TickReport, left: int) -> tuple[str, ...]:
        """Return those for whom the next tick begins at once; `left`: so many ticks may follow this one.

        Ticks in which nobody is due go by at once as far as somebody is due then.
        """
        if not report.is_complete:
            return ()
        runtime = self.runtime
        is_at_work = any(turn.calls for turn in report.turns)
        failed = {turn.agent for turn in report.turns if _came_to_nothing(turn, is_at_work=is_at_work)}
        snapshot = take_snapshot(runtime.org, runtime.load_config(), report.tick + 1, at=runtime.now())
        going = who_goes_on(snapshot)
        if names := [name for name in going.now if name not in failed]:
            return tuple(names)
        furthest = report.tick + max(left, 1)
        return tuple(name for name, tick in going.later.items() if tick <= furthest and name not in failed)

    def _log(self, limit: int) -> None:
        names = ", ".join(self.names[:5])
        hint = "it goes on after the usual pause; raise the setting if that is too few"
        text = f"{limit} ticks have followed each other at once, and there is still something for {names}"
        self.runtime.tell(
            Problem(text, ORG_FILE, pointer="/ticks_in_a_row", hint=hint, severity="warning", code="LMG-301")
        )


def _came_to_nothing(turn: TurnReport, *, is_at_work: bool) -> bool:
    """Return whether the same would come of a turn again: it failed, or may not ask a model.

    `is_at_work`: others asked one, and what is left when they have may be enough. A reply that is none is one
    of few that may be: its request has failed after some. One that has failed with its turn is over: the turn
    wrote so, and what waits now is another.
    """
    if turn.status == "failed":
        return not (turn.entries or (turn.request and turn.error == "ContractError"))
    return turn.status == "skipped" and bool(turn.error) and not is_at_work
