"""Turns that were not done: who failed or may take none, why, and since which tick.

`logs/turns_not_done.jsonl` has a line for each change: an agent's turn was not done for another reason than
its last one, or is done again. So one dead provider is one line, not one a tick. An agent with nothing to do
has none. The file is throw-away: without it every reason is said once more. Format: docs/formats.md.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.redaction.secrets import redact_bytes
from lemming.kernel.files import fs
from lemming.kernel.journal.report import Status, TurnReport
from lemming.kernel.org.organisation import OrgPath

ROTATE_BYTES = 1 << 20
NOT_DONE: tuple[Status, ...] = ("failed", "skipped")
_LONGEST_REASON = 1000
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, kw_only=True)
class NotDone:
    """Why an agent's latest due turn was not done. `since_tick`: the first one in a row that ended so.

    `since`: when that was; empty where an earlier version wrote the line. `tick`: when this reason was first
    given.
    """

    agent: str
    status: Status
    reason: str
    error: str
    tick: int
    since_tick: int
    since: str = ""


class TurnsNotDone:
    """The agents of one organisation whose latest due turn was not done, by name."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._latest: dict[str, NotDone] | None = None
        self._noted: tuple[TurnReport, ...] = ()

    @property
    def latest(self) -> dict[str, NotDone]:
        """What the file says; nothing when it cannot be read."""
        if self._latest is None:
            self._latest = read_turns_not_done(self._base)
        return self._latest

    def note(self, tick: int, turns: tuple[TurnReport, ...], at: str) -> list[NotDone]:
        """Write a line for each agent that fares otherwise than before; `at` is the time now.

        Returns the turns that were not done for another reason than the agent's last one.
        """
        if turns == self._noted:  # as in most ticks in which nobody has anything to do
            return []
        self._noted = turns
        lines, changed = [], []
        for turn in turns:
            before = self.latest.get(turn.agent)
            if turn.status not in NOT_DONE:
                if before:
                    del self.latest[turn.agent]
                    lines.append({"agent": turn.agent, "status": turn.status, "tick": tick})
            elif turn.status == "failed" or turn.error:  # else it had nothing to do, or is a person's
                now = _outcome(tick, turn, before, at)
                if before is None or _words_of(before) != _words_of(now):
                    self.latest[turn.agent] = now
                    lines.append(asdict(now))
                    changed.append(now)
        if lines:
            self._write(lines)
        return changed

    def _write(self, lines: list[dict[str, Any]]) -> None:
        try:
            with fs.AppendFile(self._base, paths.TURNS_NOT_DONE) as file:
                file.append(redact_bytes(b"".join(compact(line) + b"\n" for line in lines)))
                is_full = file.size > ROTATE_BYTES
            if is_full:
                whole = b"".join(compact(asdict(turn)) + b"\n" for turn in self.latest.values())
                fs.publish(self._base, paths.TURNS_NOT_DONE, redact_bytes(whole))
        except DiskError as error:
            if not error.concerns_one_file:
                raise


def _words_of(turn: NotDone) -> tuple[str, str, str]:
    """Return what makes a reason: not its numbers, which may be those of a tick or of a time."""
    return turn.status, turn.error, _NUMBER.sub("", turn.reason)


def _outcome(tick: int, turn: TurnReport, before: NotDone | None, at: str) -> NotDone:
    since_tick, since = tick, at
    if before and before.status == turn.status:
        since_tick, since = before.since_tick, before.since
    reason = turn.reason[:_LONGEST_REASON]
    return NotDone(
        agent=turn.agent,
        status=turn.status,
        reason=reason,
        error=turn.error,
        tick=tick,
        since_tick=since_tick,
        since=since,
    )


def read_turns_not_done(base: OrgPath, *, until: int | None = None) -> dict[str, NotDone]:
    """Return the agents whose latest due turn was not done, by name; empty when no file tells.

    `until`: as it was after that tick, as far as the file goes back. A line that is not the engine's
    (torn, or edited) is passed over.
    """
    try:
        raw = fs.read_bytes(f"{base}/{paths.TURNS_NOT_DONE}", 4 * ROTATE_BYTES)
    except OSError:
        return {}
    latest: dict[str, NotDone] = {}
    for line in raw.splitlines():
        try:
            plain = parse(line)
        except JsonProblem:
            continue
        if not isinstance(plain, dict) or not isinstance(agent := plain.get("agent"), str):
            continue
        if until is not None and isinstance(tick := plain.get("tick"), int) and tick > until:
            continue
        latest.pop(agent, None)
        if (found := _not_done(plain)) is not None:
            latest[agent] = found
    return latest


def _not_done(plain: dict[str, Any]) -> NotDone | None:
    texts = [plain.get(key) for key in ("status", "reason", "error")]
    ticks = [plain.get(key) for key in ("tick", "since_tick")]
    is_whole = all(isinstance(text, str) for text in texts) and all(type(tick) is int for tick in ticks)
    if not is_whole or plain["status"] not in NOT_DONE:
        return None
    known = {key: plain[key] for key in cast(Any, NotDone).__dataclass_fields__ if key in plain}
    return NotDone(**{**known, "since": str(plain.get("since", ""))})
