"""Which tick runs next, by the counter and the journals: the engine acts on it, all others only say it.

The counter may be one behind after power loss, and was left alone by `run_tick`; where it
contradicts the journals, a person decides.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, LemmingError, TickAlreadyCommitted
from lemming.kernel.journal.file import is_committed, last_record, read_journal, read_plan
from lemming.kernel.journal.lookup import may_have_gone_down, plan_in
from lemming.kernel.journal.records import (
    ModelReplied,
    Record,
    TickCommitted,
    TurnCommitted,
    TurnEnded,
    TurnStarted,
)
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import newest_in_ledgers, tick_by_files


class NextTick(NamedTuple):
    """Which tick runs next. With a `trouble` none does, and `tick` is what the counter should be to go on.

    taken back: the files are older than the journals. run already: the counter names a tick that is over.
    interrupted: it names one after a tick that was interrupted, in the turn of `agent`.
    `unclosed` is an earlier tick of which all turns are over and the end is not written.
    """

    tick: int
    counted: int
    newest: int = -1
    trouble: Literal["", "taken back", "run already", "interrupted"] = ""
    agent: str = ""
    unclosed: int | None = None

    @property
    def error(self) -> LemmingError | None:
        """The trouble as an error, with the way out."""
        hint = f'to go on, write {{"current_tick": {self.tick}}} into it'
        match self.trouble:
            case "taken back":
                message = (
                    f"the files are those before tick {self.counted}, as after a `git reset` or from a "
                    f"backup, but there are journals up to tick {self.newest}"
                )
                hint = (
                    f"`lemming repair --yes` moves the later journals aside, and tick {self.tick} runs afresh"
                )
            case "run already" if self.newest > self.counted:
                message = f"tick {self.counted} is over: tick {self.newest} has begun"
            case "run already":
                message = f"tick {self.counted} has been run already; a tick is applied once"
            case "interrupted":
                message = (
                    f"tick {self.tick} was interrupted in the turn of {self.agent} and has not been finished"
                )
                file = paths.journal_file(self.tick)
                hint = f'to finish it, write {{"current_tick": {self.tick}}}; to give it up, move {file} away'
                return CorruptState(message, where=paths.TICK_FILE, hint=hint)
            case _:
                return None
        return TickAlreadyCommitted(message, where=paths.TICK_FILE, hint=hint)


def find_next_tick(base: OrgPath, counted: int, ticks: list[int], *, boot_id: str) -> NextTick:
    """Return which tick runs next where `tick.json` says `counted`.

    `ticks` have a journal; the newest are enough. `boot_id` is of this start of the machine. Raises
    `CorruptState` for a journal of that tick or a later one that cannot be read, or an earlier one that is
    damaged and not over.
    """
    tick = counted + 1 if _has_lost_its_name(base, counted, ticks, boot_id) else counted
    found = NextTick(tick, counted, ticks[-1] if ticks else -1)
    earlier = next((at for at in reversed(ticks) if at < tick), None)
    if earlier is not None and not _may_be_over(base, earlier):
        records = read_journal(base, earlier)
        if missing := progress_of(records)["turns_left"]:
            return found._replace(tick=earlier, trouble="interrupted", agent=missing[0])
        found = found._replace(unclosed=earlier if records else None)
    if found.newest < tick:
        return found
    last = last_record(base, tick)
    if found.newest > tick or (isinstance(last, TickCommitted) and last.advanced):
        return _over(base, found, ticks)
    # Committed, and not `advanced`: `run_tick` ran it and leaves the counter alone.
    return found._replace(tick=tick + isinstance(last, TickCommitted))


def _may_be_over(base: OrgPath, tick: int) -> bool:
    """Return whether nothing says that a tick before the counter is not over.

    A journal that cannot be read at all (a pipe, a link, a file of holes) says nothing: `verify` tells of it.
    """
    try:
        return is_committed(base, tick)
    except CorruptState:
        return True


def require_newest(base: OrgPath, tick: int, ticks: list[int]) -> None:
    """Raise `TickAlreadyCommitted` for a tick before one that has begun: time does not run backwards."""
    if ticks and ticks[-1] > tick and (error := _over(base, NextTick(tick, tick, ticks[-1]), ticks).error):
        raise error


def _has_lost_its_name(base: OrgPath, tick: int, ticks: list[int], boot_id: str) -> bool:
    """Return whether power loss took the counter's newest name: it moves on without a flush of its own."""
    newest = ticks[-1:]
    last = last_record(base, tick) if newest == [tick] else None
    is_behind = newest == [tick + 1] or (isinstance(last, TickCommitted) and last.advanced)
    if not is_behind or not may_have_gone_down(read_plan(base, newest[0]), boot_id):
        return False
    return not _was_taken_back(base, tick, ticks)


def _over(base: OrgPath, found: NextTick, ticks: list[int]) -> NextTick:
    if _was_taken_back(base, found.tick, ticks):
        return found._replace(trouble="taken back")
    return found._replace(tick=tick_by_files(base, ticks)[0], trouble="run already")


def _was_taken_back(base: OrgPath, tick: int, ticks: list[int]) -> bool:
    """Return whether the files are older than the journals: no ledger tells of turns that these record."""
    if newest_in_ledgers(base) >= tick:
        return False
    records = read_journal(base, ticks[-1])
    return any(isinstance(record, TurnCommitted) and record.report.calls for record in records)


def progress_of(records: list[Record]) -> dict[str, Any]:
    """Return how far a tick has come: the answers of models that are kept, and whose turns are left.

    `answers_missing`: the turns left that have no answer yet; it may be that some of them ask for none.
    """
    plan, ended = plan_in(records), {it.turn_key for it in records if isinstance(it, TurnEnded)}
    under_way = {it.agent for it in records if isinstance(it, TurnStarted) and it.turn_key not in ended}
    answered = [record.agent for record in records if isinstance(record, ModelReplied)]
    left = [it for it in plan.order if it not in ended or it in under_way] if plan else []
    missing = len(set(left) - set(answered))
    return {"answers_kept": len(answered), "answers_missing": missing, "turns_left": left}
