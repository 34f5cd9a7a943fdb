"""Tool calls of which nobody knows whether they happened, and what a person found out about them.

What a person says is added to the agent's waiting results, in the ledger's own form: one more line, the
last state with one more result. The agent reads it in its next prompt, and the journal keeps it from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lemming import paths
from lemming.agents import agent_folders
from lemming.engine import load_tick
from lemming.errors import CorruptState, UsageError
from lemming.journal import Record, journal_ticks, last_record, read_journal
from lemming.jsontext import compact
from lemming.ledger import read_state, write_state
from lemming.timeline.record import is_unknown

CALL = "call"
"""The key that marks a result as a person's word on an earlier call; its value is the call's id."""


@dataclass(frozen=True)
class UnknownCall:
    """A tool call that was begun and of which no end was recorded."""

    tick: int
    agent: str
    index: int
    tool: str
    args: Any

    @property
    def id(self) -> str:
        """`TICK/AGENT/INDEX`, as `lemming repair --mark` takes it."""
        return f"{self.tick}/{self.agent}/{self.index}"

    @property
    def text(self) -> str:
        """The tool and its arguments on one line."""
        return f"{self.tool} {compact(self.args).decode()}"

    def as_json(self) -> dict[str, Any]:
        """Return the call as JSON values."""
        return {"id": self.id, **vars(self)}


def find_unknown_calls(base: Path, ticks: Iterable[int]) -> list[UnknownCall]:
    """Return the unknown calls of these ticks that no person has said anything about, oldest first."""
    calls: list[UnknownCall] = []
    marked = set(_marks_in_ledgers(base))
    for tick in ticks:
        try:
            records = read_journal(base, tick)
        except CorruptState:
            continue
        calls += _unknown_calls(tick, records)
        marked.update(_marks(records))
    return [call for call in calls if call.id not in marked]


def mark_call(base: Path, call_id: str, *, happened: bool) -> UnknownCall:
    """Let an agent know what a person found out about one of its calls, and return the call.

    The organisation must be held. Raises `UsageError` for an id that names no unknown call, and while a tick
    is unfinished: finishing it would write the agent's state anew.
    """
    calls = {call.id: call for call in find_unknown_calls(base, journal_ticks(base))}
    if call_id not in calls:
        known = f"unknown calls: {', '.join(calls)}" if calls else "there is no such call"
        raise UsageError(f'"{call_id}" is no call whose outcome is unknown', hint=known)
    record = last_record(base, tick := load_tick(base))
    if record is not None and record["type"] != "tick_committed":
        raise UsageError(f"tick {tick} is unfinished", hint="finish it first: `lemming run-once`")
    call = calls[call_id]
    if call.agent not in agent_folders(base):
        raise UsageError(f"there is no agent {call.agent} any more")
    state = read_state(base, call.agent)
    write_state(base, call.agent, replace(state, results=(*state.results, _note(call, happened))))
    return call


def _note(call: UnknownCall, happened: bool) -> dict[str, Any]:
    outcome = "it did happen" if happened else "it did not happen"
    return {
        "tool": call.tool,
        "args": call.args,
        "success": happened,
        "output": f"A person has found out about this call of tick {call.tick}: {outcome}.",
        CALL: call.id,
    }


def _unknown_calls(tick: int, records: list[Record]) -> Iterator[UnknownCall]:
    args = {
        (record["agent"], record["index"]): record["args"]
        for record in records
        if record["type"] == "tool_started"
    }
    for record in records:
        if record["type"] == "tool_finished" and is_unknown(record):
            place = (record["agent"], record["index"])
            yield UnknownCall(tick, *place, record["tool"], args.get(place))


def _marks(records: list[Record]) -> Iterator[str]:
    for record in records:
        if record["type"] == "turn_started":
            yield from (result[CALL] for result in record["state"]["results"] if CALL in result)


def _marks_in_ledgers(base: Path) -> Iterator[str]:
    for name in agent_folders(base):
        if not paths.AGENT_NAME.match(name):
            continue
        try:
            yield from (result[CALL] for result in read_state(base, name).results if CALL in result)
        except CorruptState:
            continue
