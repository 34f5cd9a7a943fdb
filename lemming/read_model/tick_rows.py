"""Rows of the read model: the tables, and a tick's facts as rows and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.write_offs import WriteOff
from lemming.read_model.tick_facts import (
    NO_COSTS,
    CallCost,
    LedgerCosts,
    TickFacts,
    TurnFacts,
    fold_journal,
    is_chain_intact,
)

if TYPE_CHECKING:
    import sqlite3

SCHEMA = """
CREATE TABLE source (path TEXT PRIMARY KEY, identity TEXT, digest TEXT) WITHOUT ROWID;
CREATE TABLE outbox (author TEXT PRIMARY KEY, stamp TEXT, files TEXT) WITHOUT ROWID;
CREATE TABLE tick (tick INTEGER PRIMARY KEY, source TEXT, at TEXT, after INTEGER, whole INTEGER, facts TEXT);
CREATE INDEX tick_source ON tick (source);
CREATE TABLE turn (tick INTEGER, key TEXT, rank INTEGER, agent TEXT, request TEXT, costs TEXT, facts TEXT,
    report TEXT, PRIMARY KEY (tick, key)) WITHOUT ROWID;
CREATE INDEX turn_agent ON turn (agent, tick);
CREATE INDEX turn_request ON turn (request, tick) WHERE request != '';
CREATE TABLE file_write (path TEXT, tick INTEGER, rank INTEGER, key TEXT, digest TEXT, PRIMARY KEY (path, tick, key))
    WITHOUT ROWID;
CREATE INDEX file_write_tick ON file_write (tick);
CREATE TABLE removal (path TEXT, tick INTEGER, agent TEXT, PRIMARY KEY (path, tick)) WITHOUT ROWID;
CREATE INDEX removal_tick ON removal (tick);
CREATE TABLE tool (agent TEXT, tick INTEGER, tool TEXT, PRIMARY KEY (agent, tick, tool)) WITHOUT ROWID;
CREATE INDEX tool_tick ON tool (tick);
"""
"""The tables. `source`: files with journals, and the digest behind their rows. `outbox`: files about requests of
outboxes with this stamp. `whole`: all lines could be read and follow from each other. `removal`: files removed by a
turn, or without an agent by expiry. `tool`: tools started with side effects. `costs`, `report` and `facts` are JSON;
values with a column of their own are in none."""

TABLES = ("tick", "turn", "file_write", "removal", "tool")


class TickRows(NamedTuple):
    """The row of a tick without its source, and the rows of the other tables by table."""

    tick: tuple[int, str, int | None, bool, str]
    by_table: dict[str, list[tuple[Any, ...]]]

    @classmethod
    def of_damage(cls, tick: int, problem: str) -> TickRows:
        """Return the rows of a tick whose journal cannot be read."""
        return cls((tick, "", None, False, dump_compact({"problem": problem}).decode()), {})


def fold_tick_rows(tick: int, raw: bytes) -> TickRows:
    """Return the rows of a tick from its journal's bytes."""
    facts = fold_journal(tick, raw)
    ranks = {key: rank for rank, key in enumerate(facts.turn_keys)}
    turns, writes, remover_by_path, tools = [], dict[tuple[str, str], tuple[Any, ...]](), dict[str, str](), set()
    for key, turn in facts.turns.items():
        rank = ranks.get(key, len(ranks))
        turns.append((tick, key, rank, turn.agent, turn.request, *_turn_columns(turn)))
        for path, digest in turn.list_written_files():
            writes[path, key] = (path, tick, rank, key, digest)
        remover_by_path |= dict.fromkeys((turn.report or {}).get("removed", ()), turn.agent)
        tools |= {(turn.agent, tick, tool) for tool in turn.tools}
    remover_by_path |= dict.fromkeys(facts.expired, "")
    removals = [(path, tick, agent) for path, agent in remover_by_path.items()]
    by_table = {"turn": turns, "file_write": [*writes.values()], "removal": removals, "tool": [*tools]}
    if not all(isinstance(cell, str | int) for rows in by_table.values() for row in rows for cell in row):
        return TickRows.of_damage(tick, "a line holds a value of a wrong type")
    keys = ("order", "people", "last_at", "latest_at", "epochs", "totals", "expired", "problem")
    values = {**vars(facts), "epochs": sorted(facts.epochs)}
    plain = dump_compact({key: values[key] for key in keys if values[key] not in ("", None, [], {})}).decode()
    return TickRows(
        (tick, facts.at, facts.after, is_chain_intact(raw.split(b"\n")) and not facts.problem, plain), by_table
    )


def insert_tick(connection: sqlite3.Connection, source: str, rows: TickRows) -> None:
    """Insert the rows of a tick, which came from a file."""
    number, *columns = rows.tick
    for table, table_rows in {"tick": [(number, source, *columns)], **rows.by_table}.items():
        if table_rows:
            marks = ", ".join("?" * len(table_rows[0]))
            connection.executemany(f"REPLACE INTO {table} VALUES ({marks})", table_rows)  # noqa: S608 - one of our tables


def remove_source(connection: sqlite3.Connection, path: str) -> None:
    """Remove a file, with the rows of its ticks."""
    ticks = connection.execute("SELECT tick FROM tick WHERE source = ?", (path,)).fetchall()
    for table in TABLES:
        connection.executemany(f"DELETE FROM {table} WHERE tick = ?", ticks)  # noqa: S608 - one of our tables
    connection.execute("DELETE FROM source WHERE path = ?", (path,))


def _turn_columns(turn: TurnFacts) -> Iterator[str]:
    """Yield the JSON columns of a turn: costs and facts without empty values, and the report."""
    ledger = None if turn.ledger == NO_COSTS else turn.ledger
    costs = {"ledger": ledger, "model": turn.model, "calls": turn.calls, "lost": turn.write_off.as_json()}
    times = {"answer_times": turn.answer_times, "tool_times": turn.tool_times}
    facts = {"started": turn.is_started, "new_entries": turn.new_entries, **times}
    if turn.report is None:
        facts |= {"since": turn.since, "tool": turn.tool}
    for values in (costs, facts):
        yield dump_compact({key: value for key, value in values.items() if value}).decode()
    yield dump_compact(turn.report or {}).decode()


def restore_turn(agent: str, request: str, costs: Json, facts: Json, report: Json) -> TurnFacts:
    """Return a turn's facts from its columns, without tools and paths, which are rows of their own."""
    return TurnFacts(
        agent=agent,
        request=request,
        ledger=LedgerCosts(*costs.get("ledger", ())),
        model=costs.get("model", ""),
        calls=[CallCost(*call) for call in costs.get("calls", ())],
        settled_write_off=WriteOff.from_json(costs.get("lost")),
        report=report or None,
        is_started=facts.get("started", False),
        **{key: value for key, value in facts.items() if key != "started"},
    )


def restore_tick(tick: int, at: str, after: int | None, facts: Json) -> TickFacts:
    """Return a tick's facts from its row, without its turns."""
    return TickFacts(tick, at, after, **{**facts, "epochs": set(facts.get("epochs", ()))})
