"""What `verify` must know of a tick, from its journal's bytes, without taking every record apart.

Most of a journal is prompts, answers and the names of those who are not due, and none of it is compared with
a file. The chain of checksums is followed through all lines; of the lines, those are read that name files.
"""

from __future__ import annotations

import json
import re

from lemming.files.jsontext import JsonProblem, parse
from lemming.journal.lines import holds_together
from lemming.journal.records import Record, TickCommitted, TickStarted, TurnStarted
from lemming.journal.sequence import NoRecord, record_of
from lemming.timeline.record import RecordedTick

_LINE_LIMIT_BYTES = 8 << 20
_BEGINS, _TURN = b'{"type":"tick_started"', b'{"type":"turn_started"'
_READ = tuple(
    b'{"type":"%b"' % kind
    for kind in (b"turn_committed", b"turn_skipped", b"entries_expired", b"tick_committed")
)
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
    except (JsonProblem, NoRecord, ValueError):
        return None
    return RecordedTick(tick, records) if _is_in_order(tick, records) else None


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
    if line.startswith(_BEGINS):
        return _record_without(line, b'"not_due":[')
    return _record_without(line, b'"entries":[') if line.startswith(_READ) else None


def _record_without(line: bytes, key: bytes) -> Record:
    """Return a record with one of its lists empty, which holds no other list; it is not compared."""
    before, found, after = line.partition(key)
    rest = after[after.find(b"]") :] if found else b""
    return record_of(parse(before + found + rest, limit_bytes=_LINE_LIMIT_BYTES))


def _start_of_a_turn(line: bytes) -> Record:
    agent, state = _AGENT.match(line), _STATE.search(line)
    if not agent or not state:
        raise ValueError("it is not written as the engine writes it")
    before, _ = _DECODER.raw_decode(line[state.end() :].decode())
    return TurnStarted.from_json({"agent": agent[1].decode(), "state": before})
