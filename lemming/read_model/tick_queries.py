"""Questions to the read model: ticks with their turns, turns for requests, and the writes of files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.read_model.read_model import ReadModel
from lemming.read_model.tick_facts import TickFacts, TurnFacts
from lemming.read_model.tick_rows import restore_tick, restore_turn


def load_ticks(base: OrgPath, first: int = 0, last: int | None = None, *, with_reports: bool = True) -> list[TickFacts]:
    """Return the ticks with a journal in a range (`last` included), with turns, oldest first."""
    model, bounds = _model(base), (first, LAST_TICK if last is None else last)
    columns = "costs, facts, report" if with_reports else "costs, '{}', '{}'"
    turn_sql = f"SELECT tick, key, agent, request, {columns} FROM turn WHERE tick BETWEEN ? AND ? ORDER BY tick, rank"  # noqa: S608
    with model.hold():
        rows = model.query("SELECT tick, at, after, facts FROM tick WHERE tick BETWEEN ? AND ? ORDER BY tick", bounds)
        turn_rows = model.query(turn_sql, bounds)
    ticks = {tick: restore_tick(tick, at, after, _parse(facts)) for tick, at, after, facts in rows}
    for tick, key, agent, request, *texts in turn_rows:
        if tick in ticks:  # another process may have read a tick in between
            ticks[tick].turns[key] = restore_turn(agent, request, *map(_parse, texts))
    return [*ticks.values()]


def list_newest_ticks(base: OrgPath, count: int, *, before: int | None = None) -> list[int]:
    """Return the numbers of the newest ticks that have started, oldest first, optionally of those before a tick."""
    sql = "SELECT tick FROM tick WHERE facts != '{}' AND tick < ? ORDER BY tick DESC LIMIT ?"
    bounds = LAST_TICK + 1 if before is None else before, count
    return [tick for (tick,) in reversed(_model(base).query(sql, bounds))]


def load_newest_ticks(base: OrgPath, count: int, *, before: int | None = None) -> list[TickFacts]:
    """Return the newest ticks that have started, with turns, oldest first, optionally only ticks before a tick."""
    with _model(base).hold():
        numbers = list_newest_ticks(base, count, before=before)
        return load_ticks(base, numbers[0], numbers[-1]) if numbers else []


def find_working_turns(base: OrgPath, tick: int) -> dict[str, TurnFacts]:
    """Return the turns of a tick that have begun and not ended, by agent."""
    turns = [turn for facts in load_ticks(base, tick, tick) for turn in facts.turns.values()]
    return {turn.agent: turn for turn in turns if turn.report is None}


class ListedTick(NamedTuple):
    """A tick with a journal: the predecessor, and True for a readable, unbroken journal."""

    tick: int
    after: int | None
    is_whole: bool


def load_tick_list(base: OrgPath) -> list[ListedTick]:
    """Return all ticks with a journal, oldest first."""
    sql = "SELECT tick, after, whole FROM tick ORDER BY tick"
    return [ListedTick(tick, after, bool(whole)) for tick, after, whole in _model(base).query(sql)]


def load_reports_for_requests(base: OrgPath, since_tick: int) -> Iterator[tuple[int, Json]]:
    """Yield the ticks and reports of ended turns for requests, since a tick, oldest first."""
    model = _model(base)
    sql = "SELECT tick, report FROM turn WHERE request != '' AND report != '{}' AND tick >= ? ORDER BY tick, rank"
    for tick, report in model.query(sql, [since_tick]):
        yield tick, _parse(report)


def load_start_time(base: OrgPath, tick: int) -> str:
    """Return the clock time of a tick, or an empty string for a tick without a journal."""
    rows = _model(base).query("SELECT at FROM tick WHERE tick = ?", [tick])
    return rows[0][0] if rows else ""


def load_turn_report(base: OrgPath, tick: int, key: str) -> Json:
    """Return the report of a turn, or an empty dict before the turn's end."""
    rows = _model(base).query("SELECT report FROM turn WHERE tick = ? AND key = ?", [tick, key])
    return _parse(rows[0][0]) if rows else {}


def load_latest_reports(base: OrgPath, agent: str, before_tick: int, limit: int) -> list[Json]:
    """Return the reports of an agent's newest ended turns before a tick, newest first."""
    sql = "SELECT report FROM turn WHERE agent = ? AND tick < ? AND report != '{}' ORDER BY tick DESC, key DESC LIMIT ?"
    return [_parse(report) for (report,) in _model(base).query(sql, [agent, before_tick, limit])]


def _model(base: OrgPath) -> ReadModel:
    return Organisation.from_path(base).get_cache(ReadModel)


def _parse(text: str) -> Json:
    return {} if text == "{}" else json.loads(text)
