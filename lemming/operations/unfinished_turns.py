"""Unfinished turns: agents with a failed or impossible turn, the reason, and the tick since when.

`logs/turns_not_done.jsonl` has a line for each change: a turn failed for a new reason, or succeeded again.
One dead provider is one line, not a line per tick. An agent with nothing to do has none. The file is
disposable: without the file, every reason is reported once more. Format: docs/formats.md.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact_bytes
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.journal.turn_report import Status, TickReport, TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.lenient_json import parse_object_or_empty

ROTATE_BYTES = 1 << 20
NOT_DONE: tuple[Status, ...] = ("failed", "skipped")
_MAX_REASON_CHARS = 1000
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, kw_only=True)
class UnfinishedTurn:
    """The reason an agent's latest due turn was not done.

    `since_tick`: the first tick of the current series of such turns. `since`: the time of that tick, empty in
    lines of earlier versions. `tick`: the tick in which this reason first occurred.
    """

    agent: str
    status: Status
    reason: str
    error: str
    tick: int
    since_tick: int
    since: str = ""


class UnfinishedTurns:
    """The unfinished latest due turns of an organisation, by agent."""

    def __init__(self, org: Organisation) -> None:
        self._base = org.base
        self._latest: dict[str, UnfinishedTurn] | None = None
        self._last_reports: tuple[TurnReport, ...] = ()

    @property
    def by_agent(self) -> Mapping[str, UnfinishedTurn]:
        """The unfinished turns in the file; empty for an unreadable file."""
        return self._load()

    def _load(self) -> dict[str, UnfinishedTurn]:
        if self._latest is None:
            self._latest = load_unfinished_turns(self._base)
        return self._latest

    def record_tick(self, tick_report: TickReport, at: str) -> None:
        """Write a line for each changed agent, and log the turns unfinished for a new reason, at the current time."""
        tick, reports = tick_report.tick, tick_report.turns
        if reports == self._last_reports:  # the usual case: no agent has work
            return
        self._last_reports, lines = reports, list[dict[str, Any]]()
        for report in reports:
            previous = self.by_agent.get(report.agent)
            if report.status not in NOT_DONE:
                if previous:
                    del self._load()[report.agent]
                    lines.append({"agent": report.agent, "status": report.status, "tick": tick})
            elif report.status == "failed" or report.error:  # else nothing to do, or a person's turn
                began = previous if previous and previous.status == report.status else None
                unfinished = UnfinishedTurn(
                    agent=report.agent,
                    status=report.status,
                    reason=report.reason[:_MAX_REASON_CHARS],
                    error=report.error,
                    tick=tick,
                    since_tick=began.since_tick if began else tick,
                    since=began.since if began else at,
                )
                if previous is None or _reason_key(previous) != _reason_key(unfinished):
                    self._load()[report.agent] = unfinished
                    lines.append(asdict(unfinished))
                    if tick_report.is_quiet or unfinished.error == "ConfigError":  # else reported by the turn itself
                        EngineLog(self._base).warning("turn_not_done", **asdict(unfinished))
        if lines:
            self._write(lines)

    def _write(self, lines: list[dict[str, Any]]) -> None:
        try:
            with fs.AppendFile(self._base, paths.TURNS_NOT_DONE) as file:
                file.append(redact_bytes(b"".join(dump_compact(line) + b"\n" for line in lines)))
                is_full = file.size > ROTATE_BYTES
            if is_full:
                whole = b"".join(dump_compact(asdict(turn)) + b"\n" for turn in self.by_agent.values())
                fs.write_atomic(self._base, paths.TURNS_NOT_DONE, redact_bytes(whole))
        except DiskError as error:
            # The file is disposable: an error about it alone must not end the run.
            if not error.concerns_one_file:
                raise


def _reason_key(turn: UnfinishedTurn) -> tuple[str, str, str]:
    """Return the reason without its numbers, which may be ticks or times."""
    return turn.status, turn.error, _NUMBER.sub("", turn.reason)


def load_unfinished_turns(base: OrgPath, *, until: int | None = None) -> dict[str, UnfinishedTurn]:
    """Return the unfinished latest due turns, by agent; empty without a file.

    `until`: the state after this tick, as far as the file reaches back. Lines not written by the engine (torn
    or edited) are ignored.
    """
    try:
        raw = fs.read_bytes(f"{base}/{paths.TURNS_NOT_DONE}", 4 * ROTATE_BYTES)
    except OSError:
        return {}
    latest: dict[str, UnfinishedTurn] = {}
    for line in raw.splitlines():
        raw_line = parse_object_or_empty(line)
        if not isinstance(agent := raw_line.get("agent"), str):
            continue
        if until is not None and isinstance(tick := raw_line.get("tick"), int) and tick > until:
            continue
        latest.pop(agent, None)
        with contextlib.suppress(ValueError):  # the turn was done, or the line was edited
            unfinished = to_value(UnfinishedTurn, raw_line)
            if unfinished.status in NOT_DONE:
                latest[agent] = unfinished
    return latest
