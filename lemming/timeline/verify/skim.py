"""What `verify` must know of a tick, from its journal's bytes, without taking every record apart.

Most of a journal is prompts, answers and the names of those who are not due, and none of it is compared with
a file. The chain of checksums is followed through all lines; of the lines, those are read that name files.
"""

from __future__ import annotations

import json
import re

from lemming.base.jsontext import JsonProblem, parse
from lemming.files.fields import Json
from lemming.journal.lines import holds_together
from lemming.journal.records import Record, TickCommitted, TickStarted, TurnCommitted, TurnStarted
from lemming.journal.sequence import NoRecord, record_of
from lemming.timeline.record import RecordedTick

_LINE_LIMIT_BYTES = 8 << 20
_BEGINS, _TURN = b'{"type":"tick_started"', b'{"type":"turn_started"'
_COMMITTED = b'{"type":"turn_committed"'
_READ = tuple(b'{"type":"%b"' % kind for kind in (b"turn_skipped", b"entries_expired", b"tick_committed"))
_FILE = re.compile(rb'\{"path":"([^"\\\x00-\x1f\x7f]{1,4096})","sha256":"([0-9a-f]{64})"\}')
_AROUND_A_PATH = len('{"path":"","sha256":""},') + 64
_AGENT = re.compile(rb'\{"type":"turn_started","epoch":[0-9]+,"agent":"([a-z0-9_-]+)"')
_STATE = re.compile(rb'(?:"repairs":[0-9]+|"entries":\[[^]]*\]),"state":(?=\{)')
_DECODER = json.JSONDecoder()


def skimmed(tick: int, raw: bytes) -> RecordedTick | None:
    """Return the records of a journal that `verify` compares with files; of starts only what it needs.

    None for one that is to be taken apart: it is torn or damaged, or not written as the engine writes it.
    """
    lines = raw.split(b"\n")
    if lines[-1] or not lines[0].startswith(_BEGINS) or not holds_together([*lines, b""]):
        return None
    try:
        records = [record for line in lines if (record := _record_in(line))]
        return RecordedTick(tick, records) if _is_in_order(tick, records) else None
    except (JsonProblem, NoRecord, ValueError):
        return None


def _is_in_order(tick: int, records: list[Record]) -> bool:
    begin, *_, end = records
    if not (isinstance(begin, TickStarted) and isinstance(end, TickCommitted) and begin.tick == tick):
        return False
    within = records[1:-1]
    return not any(isinstance(record, (TickStarted, TickCommitted)) for record in within) and all(
        record.about in begin.order for record in within if record.about
    )


def _record_in(line: bytes) -> Record | None:
    if line.startswith(_TURN):
        return _start_of_a_turn(line)
    if line.startswith(_COMMITTED):
        return _end_of_a_turn(line)
    if line.startswith(_BEGINS):
        return record_of(_parsed(_without(b'"not_due":[', line)[0]))
    return record_of(_parsed(line)) if line.startswith(_READ) else None


def _parsed(line: bytes) -> Json:
    plain: Json = parse(line, limit_bytes=_LINE_LIMIT_BYTES)
    return plain


def _without(key: bytes, line: bytes) -> tuple[bytes, bytes]:
    """Return a line with one of its lists empty, which holds no other list, and what was in the list."""
    before, found, after = line.partition(key)
    end = after.find(b"]")
    return (before + found + after[end:], after[:end]) if found else (line, b"")


def _end_of_a_turn(line: bytes) -> Record:
    """Return how a turn ended, without its entries: they are among the files, most of what the line holds."""
    rest, listed = _without(b'"files":[', _without(b'"entries":[', line)[0])
    plain, files = _parsed(rest), _FILE.findall(listed)
    record_of(plain)  # raises for what is none
    found_bytes = sum(len(path) + _AROUND_A_PATH for path, _ in files)
    if (listed and found_bytes - 1 != len(listed)) or b".." in listed:
        raise ValueError("it is not written as the engine writes it")
    written = [{"path": path.decode(), "sha256": digest.decode()} for path, digest in files]
    return TurnCommitted.from_json({**plain, "files": written})


def _start_of_a_turn(line: bytes) -> Record:
    agent, state = _AGENT.match(line), _STATE.search(line)
    if not agent or not state:
        raise ValueError("it is not written as the engine writes it")
    before, _ = _DECODER.raw_decode(line[state.end() :].decode())
    return TurnStarted.from_json({"agent": agent[1].decode(), "state": before})
