"""The tick counter: `tick.json`, and what journals and ledgers say of it where it is gone or goes back.

A tick is applied once. An engine that began again at a lower tick would write over entries and forget what
was spent, so it goes on after the newest tick that any record tells of, or stops and says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from operator import itemgetter

from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import CorruptState, Problem, TickAlreadyCommitted
from lemming.kernel.base.integers import LAST_TICK, bounded_int
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty_words
from lemming.kernel.files import fs
from lemming.kernel.files.documents import why_unreadable
from lemming.kernel.journal.file import is_committed, journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.organisation import Organisation, OrgPath


def load_tick(base_path: str | os.PathLike[str]) -> int:
    """Return the tick that runs next, from `tick.json`; 1 in an organisation that never ran.

    Without a counter and without a journal (a copy that left out `logs/`) the ledgers tell it.
    Raises `CorruptState` for anything that is not a tick; the journals then tell what it was.
    """
    return load_counter(base_path)[0]


def load_counter(base_path: str | os.PathLike[str]) -> tuple[int, str]:
    """Return the tick that runs next, and the last reading of the clock if one was kept, else nothing.

    Raises as `load_tick`; a reading that is none counts as nothing.
    """
    base = paths.as_base(base_path)
    try:
        plain = parse(fs.read_bytes(f"{base}/{paths.TICK_FILE}", 4096), allow_bom=True, any_integer=False)
    except FileNotFoundError as error:
        if not journal_ticks(base):
            return _tick_by_turns(base), ""
        raise _uncounted(base, "the tick counter is gone") from error
    except (OSError, JsonProblem) as error:
        why = why_unreadable(error) if isinstance(error, OSError) else str(error)
        raise _uncounted(base, f"cannot read the tick counter: {why}") from error
    tick = bounded_int(plain.get("current_tick"), le=LAST_TICK) if isinstance(plain, dict) else None
    if tick is None:
        raise _uncounted(base, 'expected {"current_tick": N} with a whole number N')
    read_at = plain.get("read_at", "")
    return tick, read_at if is_timestamp(read_at) else ""


def explain_skipped_ticks(tick: int, left: int | None) -> Problem | None:
    """Return a problem where the counter is ahead of the place at which an engine `left` it."""
    if left is None or tick <= left:
        return None
    message = f"says {tick}, and the engine left it at {left}: ticks {left} to {tick - 1} are passed over"
    hint = f'if nobody meant that, write {{"current_tick": {left}}} into it before the next tick'
    return Problem(message, paths.TICK_FILE, hint=hint, severity="warning", code="LMG-301")


def persist_tick(
    base_path: str | os.PathLike[str], tick: int, *, read_at: str = "", sync: bool = False
) -> None:
    """Write `tick.json`: the tick that runs next, and the clock's reading of the last one if it is needed."""
    fs.publish(paths.as_base(base_path), paths.TICK_FILE, counter(tick, read_at), sync=sync)


def counter(tick: int, read_at: str = "") -> bytes:
    """Return the content of `tick.json`."""
    plain: dict[str, int | str] = {"current_tick": tick}
    return pretty_words({**plain, "read_at": read_at} if read_at else plain)


def newest_in_ledgers(base: OrgPath) -> int:
    """Return the newest tick of which a ledger tells; -1 for none. One that cannot be read is passed over."""
    names = filter(paths.AGENT_NAME.match, agent_folders(base))
    org = Organisation.at(base)
    return max((_latest_turn(org, name) for name in names), default=-1)


def _tick_by_turns(base: OrgPath) -> int:
    """Return the tick after all that ledgers and entries tell of; 1 where nobody ran."""
    newest = max(newest_in_ledgers(base), _newest_entry(base))
    return 1 if newest == 1 and newest_in_ledgers(base) < 0 else newest + 1  # sent before the first tick


def why_not_tick_1(base: OrgPath) -> Problem | None:
    """Return what to tell a person where counter and journals are gone and other files tell of turns."""
    if journal_ticks(base) or (tick := _tick_by_turns(base)) == 1:
        return None
    message = "the tick counter and the journals are gone"
    hint = f"by the ledgers and outboxes tick {tick} is next; what was spent stays spent"
    return Problem(message, paths.TICK_FILE, hint=hint, severity="warning", code="LMG-301")


def require_ledgers_before(org: Organisation, tick: int, agent_names: Iterable[str]) -> None:
    """Raise `TickAlreadyCommitted` if one of these agents has had its turn in a later tick.

    A turn in this very tick is no riddle: the tick was interrupted and its journal moved away. It runs
    afresh, and what was spent stays spent.
    """
    newest = max(((_latest_turn(org, name), name) for name in agent_names), default=(-1, ""))
    if newest[0] > tick:
        raise TickAlreadyCommitted(
            f"tick {tick} is over: {paths.ledger_file(newest[1])} tells of tick {newest[0]}",
            where=paths.TICK_FILE,
            hint=f'to go on, write {{"current_tick": {newest_in_ledgers(org.base) + 1}}} into it',
        )


def _latest_turn(org: Organisation, agent_name: str) -> int:
    try:
        return read_state(org, agent_name).tick
    except CorruptState:  # its agent's own turn says so
        return -1


def tick_by_files(base: OrgPath, ticks: list[int]) -> tuple[int, str]:
    """Return the tick that runs next as all but the counter tell it, and which of them does, in words.

    An interrupted tick runs again. One that a ledger tells of is over, whatever became of its journal. One in
    which nobody took a turn has none, but an entry may have been sent in it.
    """
    if not ticks:
        tick = _tick_by_turns(base)
        others = f", and ledgers and outboxes tell of ticks up to {tick - 1}" if tick > 1 else ""
        return tick, f"there is no journal{others}"
    newest, ledger, entry = ticks[-1], newest_in_ledgers(base), _newest_entry(base)
    by_journals = newest + is_committed(base, newest)  # one that is not over runs again
    found = [
        (by_journals, f"the last journal is of tick {newest}"),
        (ledger + 1 if ledger > newest else 0, f"a ledger tells of tick {ledger}, whose journal is gone"),
        (entry, f"an outbox has an entry of tick {entry}"),
    ]
    return max(found, key=itemgetter(0))


def _newest_entry(base: OrgPath) -> int:
    from lemming.kernel.messages import list_outbox

    authors = filter(paths.AGENT_NAME.match, agent_folders(base))
    names = (name for author in authors for name in list_outbox(base, author))
    # An id that somebody chose may stand under any tick, however far ahead.
    return max((name.tick for name in names if name.is_derived and name.tick < LAST_TICK), default=0)


def _uncounted(base: OrgPath, message: str) -> CorruptState:
    tick, known = tick_by_files(base, journal_ticks(base))
    hint = f'{known}; write {{"current_tick": {tick}}} into it'
    return CorruptState(message, where=paths.TICK_FILE, hint=hint)
