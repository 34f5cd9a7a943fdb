"""The tick counter `tick.json`, and its recovery from journals and ledgers if missing or reverted.

A tick is applied once. An engine restarting at a lower tick would overwrite entries and forget spending. The
engine therefore continues after the newest recorded tick, or stops with an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from operator import itemgetter

from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import CorruptState, Problem, TickAlreadyCommitted
from lemming.kernel.base.integers import LAST_TICK, bounded_int
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty_flat, parse
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import unreadable_reason
from lemming.kernel.journal.journal_file import is_committed, journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.organisation import Organisation, OrgPath


def load_tick(base_path: str | os.PathLike[str]) -> int:
    """Return the next tick, from `tick.json`; 1 in an organisation without any run.

    Without counter and journals (a copy without `logs/`), the tick is derived from the ledgers. Raises
    `CorruptState` for an invalid counter; the message names the tick according to the journals.
    """
    return load_counter(base_path)[0]


def load_counter(base_path: str | os.PathLike[str]) -> tuple[int, str]:
    """Return the next tick, and the last recorded clock reading or an empty text.

    Raises as `load_tick` does; an invalid reading counts as empty.
    """
    base = paths.as_base(base_path)
    try:
        raw_counter = parse(fs.read_bytes(f"{base}/{paths.TICK_FILE}", 4096), allow_bom=True, any_integer=False)
    except FileNotFoundError as error:
        if not journal_ticks(base):
            return _tick_from_turns(base), ""
        raise _missing_counter_error(base, "the file does not exist") from error
    except (OSError, JsonProblem) as error:
        reason = unreadable_reason(error) if isinstance(error, OSError) else str(error)
        raise _missing_counter_error(base, f"cannot read the tick counter: {reason}") from error
    tick = bounded_int(raw_counter.get("current_tick"), le=LAST_TICK) if isinstance(raw_counter, dict) else None
    if tick is None:
        raise _missing_counter_error(base, 'expected {"current_tick": N} with a whole number N')
    read_at = raw_counter.get("read_at", "")
    return tick, read_at if is_timestamp(read_at) else ""


def explain_skipped_ticks(tick: int, last_left: int | None) -> Problem | None:
    """Return a problem if the counter is ahead of the tick an engine left, else None."""
    if last_left is None or tick <= last_left:
        return None
    message = (
        f"current_tick must be {last_left}, where the engine left it, got {tick}: ticks "
        f"{last_left} to {tick - 1} are skipped"
    )
    hint = f'write {{"current_tick": {last_left}}} into the file before the next tick to run them'
    return Problem(message, paths.TICK_FILE, hint=hint, severity="warning", code="LMG-301")


def persist_tick(base_path: str | os.PathLike[str], tick: int, *, read_at: str = "", sync: bool = False) -> None:
    """Write `tick.json`: the next tick, and the last clock reading if needed."""
    fs.write_atomic(paths.as_base(base_path), paths.TICK_FILE, encode_counter(tick, read_at), sync=sync)


def encode_counter(tick: int, read_at: str = "") -> bytes:
    """Return the content of `tick.json`."""
    raw_counter: dict[str, int | str] = {"current_tick": tick}
    return dump_pretty_flat({**raw_counter, "read_at": read_at} if read_at else raw_counter)


def newest_ledger_tick(base: OrgPath) -> int:
    """Return the newest tick recorded in a ledger, or -1. Unreadable ledgers are ignored."""
    names = filter(paths.AGENT_NAME.match, list_agent_folders(base))
    org = Organisation.from_path(base)
    return max((_latest_turn(org, name) for name in names), default=-1)


def _tick_from_turns(base: OrgPath) -> int:
    """Return the tick after the newest in ledgers and entries; 1 before the first turn."""
    newest = max(newest_ledger_tick(base), _newest_entry(base))
    # An entry of tick 1 and no turn: it was sent before the first tick.
    return 1 if newest == 1 and newest_ledger_tick(base) < 0 else newest + 1


def missing_counter_problem(base: OrgPath) -> Problem | None:
    """Return the problem to report if counter and journals are missing but other files record turns."""
    if journal_ticks(base) or (tick := _tick_from_turns(base)) == 1:
        return None
    message = "the tick counter and the journals do not exist"
    hint = f"check tick {tick}, the next by the ledgers and outboxes; spent credits stay spent"
    return Problem(message, paths.TICK_FILE, hint=hint, severity="warning", code="LMG-301")


def require_no_later_turns(org: Organisation, tick: int, agent_names: Iterable[str]) -> None:
    """Raise `TickAlreadyCommitted` if an agent's ledger records a turn in a later tick.

    A recorded turn in this same tick is allowed: the tick was interrupted and its journal moved away. The
    tick runs again, and spent credits stay spent.
    """
    newest = max(((_latest_turn(org, name), name) for name in agent_names), default=(-1, ""))
    if newest[0] > tick:
        raise TickAlreadyCommitted(
            f"tick {tick} is over: {paths.ledger_file(newest[1])} holds a turn of tick {newest[0]}",
            where=paths.TICK_FILE,
            hint=(f'write {{"current_tick": {newest_ledger_tick(org.base) + 1}}} into the file to continue'),
        )


def _latest_turn(org: Organisation, agent_name: str) -> int:
    try:
        return read_state(org, agent_name).tick
    except CorruptState:  # reported by the agent's own turn
        return -1


def tick_from_files(base: OrgPath, ticks: list[int]) -> tuple[int, str]:
    """Return the next tick according to journals, ledgers and outboxes, with a description of the source.

    An interrupted tick runs again. A tick recorded in a ledger is over, even without its journal. A tick
    without turns has no journal, but may have entries.
    """
    if not ticks:
        tick = _tick_from_turns(base)
        other_sources = f", and ledgers and outboxes have ticks up to {tick - 1}" if tick > 1 else ""
        return tick, f"no journal exists{other_sources}"
    newest, ledger, entry = ticks[-1], newest_ledger_tick(base), _newest_entry(base)
    by_journals = newest + is_committed(base, newest)  # an unfinished tick runs again
    candidates = [
        (by_journals, f"the last journal is of tick {newest}"),
        (ledger + 1 if ledger > newest else 0, f"a ledger has tick {ledger}, whose journal is missing"),
        (entry, f"an outbox has an entry of tick {entry}"),
    ]
    return max(candidates, key=itemgetter(0))


def _newest_entry(base: OrgPath) -> int:
    from lemming.kernel.messages import list_outbox

    authors = filter(paths.AGENT_NAME.match, list_agent_folders(base))
    names = (name for author in authors for name in list_outbox(base, author))
    # A hand-made entry may be under any tick, however far ahead.
    return max((name.tick for name in names if name.has_engine_id and name.tick < LAST_TICK), default=0)


def _missing_counter_error(base: OrgPath, message: str) -> CorruptState:
    tick, source = tick_from_files(base, journal_ticks(base))
    hint = f'write {{"current_tick": {tick}}} into the file; {source}'
    return CorruptState(message, where=paths.TICK_FILE, hint=hint)
