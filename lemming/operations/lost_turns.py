"""Lost turns: turns in a journal without a ledger line, after a storage rollback or a hot copy.

A turn's ledger line is written after its other files; without the line the files may be missing too. The
record holds all answers, so the files are derived again and written if missing. An agent that was removed and
created anew has no ledger either: turns of the former agent of this name are not written into the new folder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from operator import itemgetter

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, Problem
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.journal.checksums import iter_lines
from lemming.kernel.journal.journal_file import OWN_LIMIT_BYTES, Journal, load_tick_started, read_journal
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.context_builder import build_tick_context
from lemming.kernel.tick.runtime import Runtime
from lemming.operations.turns.running_tick import RunningTick, is_former_agent, is_ledger_behind

MAX_TICKS_BACK = 100
_TURN = re.compile(rb'\{"type":"turn_(started|committed)","epoch":\d+,"agent":"([^"]+)"')


def restore_lost_turns(runtime: Runtime, config: Config, ticks: list[int]) -> None:
    """Write the files of the lost turns of earlier ticks again, and report them."""
    # Storage that goes back in time loses the newest turns: a tick without a loss ends the search.
    losses = ((tick, _find_lost(runtime.org, tick)) for tick in reversed(ticks[-MAX_TICKS_BACK:]))
    for tick, agent_names in sorted(takewhile(itemgetter(1), losses)):
        started = load_tick_started(runtime.org, tick)
        tick_context = build_tick_context(runtime.org, config, tick, TickPlan.from_record(started) if started else None)
        with Journal(runtime.org, tick, epoch=runtime.epoch, durability=config.org.durability) as journal:
            RunningTick.start_or_resume(runtime, journal, tick_context, previous=None).rewrite_committed(agent_names)
        names = ", ".join(agent_names)
        message = f"the files of {names} lacked the writes of tick {tick}; they were written again from the journal"
        hint, file = "compare all files with the journals: `lemming verify`", paths.journal_file(tick)
        runtime.report_problem(Problem(message, file, hint=hint, severity="warning", code="LMG-301"))


def _find_lost(org: Organisation, tick: int) -> list[str]:
    """Return the agents with a lost turn in a tick, without parsing the whole journal."""
    kinds: dict[bytes, Counter[str]] = {b"started": Counter(), b"committed": Counter()}
    for match in filter(None, map(_TURN.match, _iter_raw_lines(org, tick))):
        kinds[match[1]][match[2].decode()] += 1
    ended = kinds[b"committed"]
    behind = {
        name for name in kinds[b"started"] if ended[name] and is_ledger_behind(org, name, (tick, ended[name] - 1))
    }
    if not behind:
        return []
    records = read_journal(org, tick, limit_bytes=OWN_LIMIT_BYTES)
    starts = (record for record in records if isinstance(record, TurnStarted) and record.agent in behind)
    return sorted({start.agent for start in starts if not is_former_agent(org, start)})


def _iter_raw_lines(org: Organisation, tick: int) -> Iterator[bytes]:
    """Yield the lines of a journal, up to a damaged line; damage is reported elsewhere."""
    file = paths.journal_file(tick)
    try:
        with open_regular(f"{org}/{file}") as stream:
            yield from iter_lines(stream, file)
    except CorruptState:
        return
    except OSError as error:
        require_about_one_file(file, error)
