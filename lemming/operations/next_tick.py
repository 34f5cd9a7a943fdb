"""The next tick by the counter, the journals and the ledgers; if they contradict each other, a person decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, LemmingError, Problem, TickAlreadyCommitted
from lemming.kernel.journal.journal_file import (
    is_committed,
    journal_ticks,
    last_record,
    load_tick_started,
    read_journal,
)
from lemming.kernel.journal.journal_parser import find_tick_started, may_have_rebooted
from lemming.kernel.journal.journal_records import (
    ModelReplied,
    Record,
    TickCommitted,
    TurnCommitted,
    TurnEnded,
    TurnStarted,
)
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.tick_counter import newest_ledger_tick, tick_from_files


def explain_skipped_ticks(tick: int, last_left: int | None) -> Problem | None:
    """Return a problem if the counter is ahead of the tick an engine left, else None."""
    if last_left is None or tick <= last_left:
        return None
    skipped = f"ticks {last_left} to {tick - 1} are skipped"
    message = f"current_tick must be {last_left}, where the engine left it, got {tick}: {skipped}"
    hint = f'write {{"current_tick": {last_left}}} into the file before the next tick to run them'
    return Problem(message, paths.TICK_FILE, hint=hint, severity="warning", code="LMG-301")


def missing_counter_problem(base: OrgPath) -> Problem | None:
    """Return the problem to report if counter and journals are missing but other files record turns."""
    if journal_ticks(base) or (tick := tick_from_files(base, [])[0]) == 1:
        return None
    message = "the tick counter and the journals do not exist"
    hint = f"check tick {tick}, the next by the ledgers and outboxes; spent credits stay spent"
    return Problem(message, paths.TICK_FILE, hint=hint, severity="warning", code="LMG-301")


def require_no_later_turns(org: Organisation, tick: int, agent_names: Iterable[str]) -> None:
    """Raise `TickAlreadyCommitted` if an agent's ledger records a turn in a later tick.

    A recorded turn in this same tick is allowed: the tick was interrupted and its journal moved away. The
    tick runs again, and spent credits stay spent.
    """
    newest, name = max(((newest_ledger_tick(org, [name]), name) for name in agent_names), default=(-1, ""))
    if newest > tick:
        raise TickAlreadyCommitted(
            f"tick {tick} is over: {paths.ledger_file(name)} holds a turn of tick {newest}",
            where=paths.TICK_FILE,
            hint=f'write {{"current_tick": {newest_ledger_tick(org) + 1}}} into the file to continue',
        )


class NextTick(NamedTuple):
    """The next tick. With a `contradiction` no tick runs, and `tick` is the counter value needed to continue.

    `contradiction`: "rolled back" (the files are older than the journals), "already run" (the counter names a completed tick)
    or "interrupted" (the counter is past a tick that was interrupted in the turn of `agent`). `unclosed` is an
    earlier tick with all turns over but without an end record.
    """

    tick: int
    counted: int
    newest: int = -1
    contradiction: Literal["", "rolled back", "already run", "interrupted"] = ""
    agent: str = ""
    unclosed: int | None = None

    @property
    def to_error(self) -> LemmingError | None:
        """The contradiction as an error with a hint, or None."""
        hint = f'write {{"current_tick": {self.tick}}} into the file to continue'
        match self.contradiction:
            case "rolled back":
                message = (
                    f"the files are from before tick {self.counted}, as after a `git reset` or a restored "
                    f"backup, but there are journals up to tick {self.newest}"
                )
                hint = f"run `lemming repair --yes`: it moves the later journals aside, and tick {self.tick} runs anew"
            case "already run" if self.newest > self.counted:
                message = f"tick {self.counted} is over: tick {self.newest} has started"
            case "already run":
                message = f"tick {self.counted} has already run; a tick is applied once"
            case "interrupted":
                message = f"tick {self.tick} was interrupted in the turn of {self.agent} and is unfinished"
                file = paths.journal_file(self.tick)
                hint = f'write {{"current_tick": {self.tick}}} to finish it, or move {file} away to give it up'
                return CorruptState(message, where=paths.TICK_FILE, hint=hint)
            case _:
                return None
        return TickAlreadyCommitted(message, where=paths.TICK_FILE, hint=hint)


def find_next_tick(base: OrgPath, counted: int, ticks: list[int], *, boot_id: str) -> NextTick:
    """Return the next tick for the counter value `counted` of `tick.json`.

    `ticks` are ticks with a journal; the newest are enough. `boot_id` identifies the current boot of the
    machine. Raises `CorruptState` for an unreadable journal of this or a later tick, or a damaged journal of
    an earlier incomplete tick.
    """
    tick = counted + 1 if _is_counter_reverted(base, counted, ticks, boot_id) else counted
    next_tick = NextTick(tick, counted, ticks[-1] if ticks else -1)
    earlier = next((number for number in reversed(ticks) if number < tick), None)
    if earlier is not None:
        is_incomplete = False
        with contextlib.suppress(CorruptState):  # a pipe, a link, a sparse file: `verify` reports it
            is_incomplete = not is_committed(base, earlier)
        records = read_journal(base, earlier) if is_incomplete else []
        if missing := summarize_progress(records)["turns_left"]:
            return next_tick._replace(tick=earlier, contradiction="interrupted", agent=missing[0])
        next_tick = next_tick._replace(unclosed=earlier if records else None)
    if next_tick.newest < tick:
        return next_tick
    last = last_record(base, tick)
    if next_tick.newest > tick or (isinstance(last, TickCommitted) and last.advanced):
        return _with_completeness(base, next_tick, ticks)
    # Committed, and not `advanced`: `run_tick` ran it and leaves the counter alone.
    return next_tick._replace(tick=tick + isinstance(last, TickCommitted))


def require_newest(base: OrgPath, tick: int, ticks: list[int]) -> None:
    """Raise `TickAlreadyCommitted` if a later tick has begun: ticks never run backwards."""
    if ticks and ticks[-1] > tick:
        error = _with_completeness(base, NextTick(tick, tick, ticks[-1]), ticks).to_error
        if error:
            raise error


def _is_counter_reverted(base: OrgPath, tick: int, ticks: list[int], boot_id: str) -> bool:
    """Return True if power loss reverted the counter file, which advances without a flush of its own."""
    newest = ticks[-1:]
    last = last_record(base, tick) if newest == [tick] else None
    # Without a reboot no power cut did it: somebody set the counter back, and a person decides.
    is_behind = newest == [tick + 1] or (isinstance(last, TickCommitted) and last.advanced)
    if not is_behind or not may_have_rebooted(load_tick_started(base, newest[0]), boot_id):
        return False
    return not _is_rolled_back(base, tick, ticks)


def _with_completeness(base: OrgPath, next_tick: NextTick, ticks: list[int]) -> NextTick:
    if _is_rolled_back(base, next_tick.tick, ticks):
        return next_tick._replace(contradiction="rolled back")
    return next_tick._replace(tick=tick_from_files(base, ticks)[0], contradiction="already run")


def _is_rolled_back(base: OrgPath, tick: int, ticks: list[int]) -> bool:
    """Return True if the files are older than the journals: recorded turns are in no ledger."""
    if newest_ledger_tick(base) >= tick:
        return False
    records = read_journal(base, ticks[-1])
    return any(isinstance(record, TurnCommitted) and record.report.calls for record in records)


def summarize_progress(records: list[Record]) -> dict[str, Any]:
    """Return the progress of a tick: the number of recorded answers, and the agents with turns left.

    `answers_missing`: number of remaining turns without an answer; some of these turns may need none.
    """
    started, ended = find_tick_started(records), {entry.turn_key for entry in records if isinstance(entry, TurnEnded)}
    under_way = {entry.agent for entry in records if isinstance(entry, TurnStarted) and entry.turn_key not in ended}
    answered = [record.agent for record in records if isinstance(record, ModelReplied)]
    turns_left = [entry for entry in started.order if entry not in ended or entry in under_way] if started else []
    missing = len(set(turns_left) - set(answered))
    return {"answers_kept": len(answered), "answers_missing": missing, "turns_left": turns_left}
