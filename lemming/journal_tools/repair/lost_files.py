"""Lost files: files written in committed turns and now missing, with their recorded content.

An entry is lost if the file is missing and retention did not remove it. People and tools may remove other
files; these are reported only if the newest turn of their agent wrote them, which covers losses by a copy
during a run or by storage that went back in time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.verify.journal_facts import JournalFacts, WrittenFile
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.ledger import FILE_LIMIT_BYTES
from lemming.kernel.org.organisation import OrgPath

_TICKS = re.compile(rb'^\{"tick":([0-9]{1,12}),', re.MULTILINE)


class LostFile(NamedTuple):
    """A missing file. `content` is the content of an entry or a memory, or None for other files."""

    file: str
    tick: int
    agent: str
    content: bytes | None


def find_lost_files(base: OrgPath, facts: JournalFacts) -> Iterator[LostFile]:
    """Yield the lost files, oldest first, without files of uncommitted ticks, which are still being written.

    Files of a removed agent are not lost, and a new agent with the same name has no ledger line of the tick.
    """
    in_ledger = cache(lambda agent: _list_ledger_ticks(base, agent))
    # The retention of a tick without a readable journal may have removed any earlier entry.
    unknown = max((tick for tick in [*facts.damaged, *facts.lost_ticks] if tick <= facts.ticks[-1]), default=-1)
    for file, written in facts.files.items():
        agent, tick = written.agent, written.tick
        if _is_file_of_agent("outbox", file, agent):
            is_expected = tick > unknown
        else:  # of other files only the newest turn's: a person may have removed older ones
            is_expected = tick == max(facts.turns.get(agent, [tick])) and not file.startswith("/")
        if not is_expected or tick in facts.uncommitted or path_exists(f"{base}/{file}"):
            continue
        if tick in in_ledger(agent):
            yield LostFile(file, tick, agent, _find_recorded_content(base, file, written))


def _list_ledger_ticks(base: OrgPath, agent: str) -> frozenset[int]:
    """Return the ticks with a line in a readable ledger, or an empty set without a resume."""
    if not path_exists(f"{base}/{paths.resume_file(agent)}"):
        return frozenset()
    try:
        raw = fs.read_bytes(f"{base}/{paths.ledger_file(agent)}", FILE_LIMIT_BYTES)
    except OSError:
        return frozenset()
    return frozenset(map(int, _TICKS.findall(raw)))


def _find_recorded_content(base: OrgPath, file: str, written: WrittenFile) -> bytes | None:
    """Return the content a turn wrote to its outbox or memory. None for other files and without a usable record."""
    try:
        turn = load_tick_record(base, written.tick).find_turn(written.key)
    except LemmingError:
        return None
    content = None
    if turn and _is_file_of_agent("outbox", file, turn.agent):
        content = next((entry.content for entry in turn.entries if entry.file == file), None)
    elif turn and any(paths.memory_file(turn.agent, key) == file for key in turn.memory):
        content = turn.writes[file].content
    # a record that was altered must restore nothing
    return content if content is not None and hashlib.sha256(content).hexdigest() == written.sha256 else None


def _is_file_of_agent(folder: str, file: str, agent: str) -> bool:
    parent, _, name = file.rpartition("/")
    return parent == f"agents/{agent}/{folder}" and bool(name)
