"""The tick counter `tick.json`, and its recovery from journals and ledgers if missing or reverted.

A tick is applied once. An engine restarting at a lower tick would overwrite entries and forget spending. The
engine therefore continues after the newest recorded tick, or stops with an error.

The counter may be one behind after power loss, or unchanged after `run_tick`. If the counter contradicts the journals, a
person decides.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from operator import itemgetter

from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import CorruptState
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
    """Return the next tick, and the last valid clock reading or an empty text. Raises as `load_tick` does."""
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


def persist_tick(base_path: str | os.PathLike[str], tick: int, *, read_at: str = "", sync: bool = False) -> None:
    """Write `tick.json`: the next tick, and the last clock reading if needed."""
    fs.write_atomic(paths.as_base(base_path), paths.TICK_FILE, encode_counter(tick, read_at), sync=sync)


def encode_counter(tick: int, read_at: str = "") -> bytes:
    """Return the content of `tick.json`."""
    raw_counter: dict[str, int | str] = {"current_tick": tick}
    return dump_pretty_flat({**raw_counter, "read_at": read_at} if read_at else raw_counter)


def newest_ledger_tick(base: OrgPath, agent_names: Iterable[str] | None = None) -> int:
    """Return the newest tick recorded in a ledger, of all agents or of these, or -1. Unreadable ledgers are ignored."""
    org, newest = Organisation.from_path(base), -1
    names = filter(paths.AGENT_NAME.match, list_agent_folders(base)) if agent_names is None else agent_names
    for name in names:
        with contextlib.suppress(CorruptState):  # reported by the agent's own turn
            newest = max(newest, read_state(org, name).tick)
    return newest


def _tick_from_turns(base: OrgPath) -> int:
    """Return the tick after the newest in ledgers and entries; 1 before the first turn."""
    newest = max(newest_ledger_tick(base), _newest_entry(base))
    # An entry of tick 1 and no turn: it was sent before the first tick.
    return 1 if newest == 1 and newest_ledger_tick(base) < 0 else newest + 1


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
