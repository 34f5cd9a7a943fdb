"""Find lost turns: turns in a journal without a ledger line, after a storage rollback or a hot copy.

A turn's ledger line is written after its other files; without the line the files may be missing too. The
record holds all answers, so the files are derived again and written if missing. An agent that was removed and
created anew has no ledger either: turns of the former agent of this name are not written into the new folder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, Problem
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.checksums import iter_lines
from lemming.kernel.journal.journal_file import OWN_LIMIT_BYTES, read_journal
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.organisation import Organisation

MAX_TICKS_BACK = 100
_TURN = re.compile(rb'\{"type":"turn_(started|committed)","epoch":\d+,"agent":"([^"]+)"')


def find_lost_turns(org: Organisation, ticks: list[int]) -> dict[int, list[str]]:
    """Return the agents with lost turns by tick, from the newest tick back to the first without a loss."""
    lost_turns: dict[int, list[str]] = {}
    for tick in reversed(ticks[-MAX_TICKS_BACK:]):
        names = _find_lost(org, tick)
        if not names:
            break
        # Storage that goes back in time loses the newest turns: a tick without a loss ends the search.
        lost_turns[tick] = names
    return dict(sorted(lost_turns.items()))


def make_lost_turns_problem(tick: int, agent_names: list[str]) -> Problem:
    """Return the problem that reports lost turns with restored files."""
    hint = "compare all files with the journals: `lemming verify`"
    message = (
        f"the files of {', '.join(agent_names)} lacked the writes of tick {tick}; they were "
        "written again from the journal"
    )
    return Problem(message, paths.journal_file(tick), hint=hint, severity="warning", code="LMG-301")


def is_lost(org: Organisation, tick: int, starts: Iterable[TurnStarted]) -> bool:
    """Return True if the ledger of an agent in the records ends before the tick."""
    return any(_is_behind(org, start.agent, (tick, start.turn)) and not _is_other_agent(org, start) for start in starts)


def _find_lost(org: Organisation, tick: int) -> list[str]:
    """Return the agents with a lost turn in a tick, without parsing the whole journal."""
    kinds: dict[bytes, Counter[str]] = {b"started": Counter(), b"committed": Counter()}
    for match in filter(None, map(_TURN.match, _iter_raw_lines(org, tick))):
        kinds[match[1]][match[2].decode()] += 1
    ended = kinds[b"committed"]
    behind = {name for name in kinds[b"started"] if ended[name] and _is_behind(org, name, (tick, ended[name] - 1))}
    if not behind:
        return []
    records = read_journal(org, tick, limit_bytes=OWN_LIMIT_BYTES)
    starts = (record for record in records if isinstance(record, TurnStarted) and record.agent in behind)
    return sorted({start.agent for start in starts if not _is_other_agent(org, start)})


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


def _is_behind(org: Organisation, agent_name: str, turn_position: tuple[int, int]) -> bool:
    """Return True if an agent's ledger ends before the turn with this number in a tick."""
    if not paths.AGENT_NAME.match(agent_name) or not path_exists(f"{org}/{paths.resume_file(agent_name)}"):
        return False
    try:
        return read_state(org, agent_name).position < turn_position
    except CorruptState:  # a person has to repair it
        return False


def _is_other_agent(org: Organisation, start: TurnStarted) -> bool:
    """Return True if the record belongs to a former agent of the same name.

    A new agent has had no turn, and the record is not the first turn of an agent with this resume.
    """
    name = start.agent
    if read_state(org, name).tick >= 0:
        return False
    if start.state["tick"] >= 0:
        return True
    from lemming.kernel.turn.prompt_prefix import PREFIX_KEYS

    try:
        resume = load_agent(org, name).as_json
    except ConfigError:
        return True
    return start.resume != {key: resume[key] for key in resume if key not in (*PREFIX_KEYS, "paused")}
