"""Turns that a journal records and whose ledger line is not there: storage that went back, or a hot copy.

A turn's line is written after its other files, so where it is missing they may be too. The record holds all
answers, so the files are worked out from it again and written where they are not there. An agent that was
removed and made anew has no ledger either: its namesake's turns are not written into its folder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, Problem
from lemming.kernel.files.descriptors import open_regular
from lemming.kernel.files.refusals import require_about_one_file
from lemming.kernel.files.stamps import is_there
from lemming.kernel.journal.checksums import lines
from lemming.kernel.journal.file import OWN_LIMIT_BYTES, read_journal
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.records import TurnStarted
from lemming.kernel.org.organisation import Organisation

LOOKED_BACK = 100
_TURN = re.compile(rb'\{"type":"turn_(started|committed)","epoch":\d+,"agent":"([^"]+)"')


def find_lost_turns(org: Organisation, ticks: list[int]) -> dict[int, list[str]]:
    """Return whose turns are lost, by tick, going back through these to the first that has lost none."""
    lost: dict[int, list[str]] = {}
    for tick in reversed(ticks[-LOOKED_BACK:]):
        names = _lost_in(org, tick)
        if not names:
            break
        lost[tick] = names
    return dict(sorted(lost.items()))


def lost_text(tick: int, agent_names: list[str]) -> Problem:
    """Return what a person is told of lost turns whose files were written again."""
    hint = "they were written again from the journal; `lemming verify` compares all files with the journals"
    message = f"the files of {', '.join(agent_names)} did not hold what was written in tick {tick}"
    return Problem(message, paths.journal_file(tick), hint=hint, severity="warning", code="LMG-301")


def is_lost(org: Organisation, tick: int, starts: Iterable[TurnStarted]) -> bool:
    """Return whether the ledger of one of the agents whose turns these records began ends before the tick."""
    return any(
        _is_behind(org, start.agent, (tick, start.turn)) and not _is_namesake(org, start) for start in starts
    )


def _lost_in(org: Organisation, tick: int) -> list[str]:
    """Return the agents whose turn in a tick is lost; found without parsing what the journal says."""
    kinds: dict[bytes, Counter[str]] = {b"started": Counter(), b"committed": Counter()}
    for found in filter(None, map(_TURN.match, _lines_of(org, tick))):
        kinds[found[1]][found[2].decode()] += 1
    ended = kinds[b"committed"]
    behind = {it for it in kinds[b"started"] if ended[it] and _is_behind(org, it, (tick, ended[it] - 1))}
    if not behind:
        return []
    records = read_journal(org, tick, limit_bytes=OWN_LIMIT_BYTES)
    starts = (record for record in records if isinstance(record, TurnStarted) and record.agent in behind)
    return sorted({start.agent for start in starts if not _is_namesake(org, start)})


def _lines_of(org: Organisation, tick: int) -> Iterator[bytes]:
    """Yield the lines of a journal, up to one that nobody wrote: what is wrong with it is said elsewhere."""
    file = paths.journal_file(tick)
    try:
        with open_regular(f"{org}/{file}") as stream:
            yield from lines(stream, file)
    except CorruptState:
        return
    except OSError as error:
        require_about_one_file(file, error)


def _is_behind(org: Organisation, agent_name: str, place: tuple[int, int]) -> bool:
    """Return True if an agent's ledger ends before the turn with this number in a tick."""
    if not paths.AGENT_NAME.match(agent_name) or not is_there(f"{org}/{paths.resume_file(agent_name)}"):
        return False
    try:
        return read_state(org, agent_name).place < place
    except CorruptState:  # a person's to look at
        return False


def _is_namesake(org: Organisation, start: TurnStarted) -> bool:
    """Return whether the agent is another one than the one whose turn the record began.

    It has had no turn, and that was not the first turn of an agent with this resume.
    """
    name = start.agent
    if read_state(org, name).tick >= 0:
        return False
    if start.state["tick"] >= 0:
        return True
    from lemming.kernel.turn.opening import IN_THE_OPENING

    try:
        resume = load_agent(org, name).plain
    except ConfigError:
        return True
    return start.resume != {key: resume[key] for key in resume if key not in (*IN_THE_OPENING, "paused")}
