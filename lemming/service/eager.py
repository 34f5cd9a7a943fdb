"""Ticks that follow each other at once while there is something for an agent to go on with."""

from __future__ import annotations

from dataclasses import dataclass

from lemming.config import ORG_FILE
from lemming.errors import Problem
from lemming.report import TickReport, TurnReport
from lemming.tick.addressed import who_goes_on
from lemming.tick.runtime import Runtime
from lemming.tick.snapshot import take_snapshot


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
        self.names = self._who(report)
        if not self.names:
            self.in_a_row = 1
            return False
        limit = self.runtime.load_config().org.ticks_in_a_row
        if self.in_a_row >= limit:
            self._tell(limit)
            self.in_a_row = 1
            return False
        self.in_a_row += 1
        return True

    def _who(self, report: TickReport) -> tuple[str, ...]:
        if not report.is_complete:
            return ()
        runtime = self.runtime
        failed = {turn.agent for turn in report.turns if turn.status == "failed" and not _is_counted(turn)}
        snapshot = take_snapshot(runtime.org, runtime.load_config(), report.tick + 1, at=runtime.now())
        return tuple(name for name in who_goes_on(snapshot) if name not in failed)

    def _tell(self, limit: int) -> None:
        names = ", ".join(self.names[:5])
        hint = "it goes on after the usual pause; raise the setting if that is too few"
        text = f"{limit} ticks have followed each other at once, and there is still something for {names}"
        self.runtime.tell(
            Problem(text, ORG_FILE, pointer="/ticks_in_a_row", hint=hint, severity="warning", code="LMG-301")
        )


def _is_counted(turn: TurnReport) -> bool:
    """Return whether a turn that failed is one of few that may: its request has failed after some."""
    return bool(turn.request) and turn.error == "ContractError"
