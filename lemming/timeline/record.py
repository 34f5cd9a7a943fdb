"""One tick as its journal tells it: who was asked what, what came back, what was written.

Only the journal is read, so a tick can be shown whole after its entries have expired and its files have
changed. Format: docs/formats.md, "Journal".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lemming.agents import TurnLimits
from lemming.contract import Keep, MemoryUpdate, NewEntry, ToolCall, TurnReply, parse_reply
from lemming.errors import AnswerTooLarge, ContractError, ToolError
from lemming.files.effects import FileEffect
from lemming.journal.file import reading_of
from lemming.journal.parts import FailedAttempt
from lemming.journal.records import (
    EntriesExpired,
    ModelFailed,
    ModelReplied,
    Record,
    TickCommitted,
    ToolFinished,
    ToolStarted,
    TurnResumed,
    TurnStarted,
    TurnStopped,
    start_and_end,
)
from lemming.journal.starts import agent_of
from lemming.memory import decode_memory, memory_effect
from lemming.messages import OutboxEntry, entry_effect, entry_id
from lemming.providers import require_reply
from lemming.report import TickReport, TurnReport
from lemming.tick.plan import Plan, turns_not_taken
from lemming.timeline.gaps import no_journal
from lemming.tools import ToolResult, is_unknown_outcome


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One call of a turn's model. `error`: why there is no answer. `problem`: why the answer is no reply.
    `earlier`: the attempts of the same call that failed before, each with code, error and message.
    """

    call: int
    text: str = ""
    error: str = ""
    problem: str = ""
    at: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    credits: float = 0.0
    cost_usd: float | None = None
    duration_ms: int = 0
    code: str = ""
    earlier: list[FailedAttempt] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """One tool call. `success` is None while its end is not recorded; `args` when nothing tells them.

    `is_unknown`: the engine died while it ran, so it may or may not have happened.
    """

    index: int
    tool: str
    args: Any = None
    success: bool | None = None
    output: str = ""
    files: list[str] = field(default_factory=list)
    reached_outside: bool = False
    is_unknown: bool = False


@dataclass(frozen=True, kw_only=True)
class TurnRecord:
    """One turn. `report` is None when it has not ended; `started` when no model was about to be asked.

    `attempts` counts how often it was begun, `stops` how often a person stopped it. `writes` are the files
    that it really wrote, by place, with their content. `results_shown`: how many results of the turn's own
    calls the reply had been shown that wrote a file, by place; under "" its last reply.
    """

    tick: int
    place: int
    agent: str
    report: TurnReport | None = None
    started: TurnStarted | None = None
    attempts: int = 0
    stops: int = 0
    calls: list[ModelCall] = field(default_factory=list)
    tools: list[ToolUse] = field(default_factory=list)
    entries: list[OutboxEntry] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, FileEffect] = field(default_factory=dict)
    results_shown: dict[str, int] = field(default_factory=dict)

    def tools_shown(self, place: str) -> list[ToolUse]:
        """Return the calls whose results had been shown when the turn wrote what is at a place."""
        return self.tools[: self.results_shown.get(place, self.results_shown.get("", 0))]

    @property
    def status(self) -> str:
        """How the turn ended; "unfinished" or "not begun" when it has not."""
        if self.report:
            return self.report.status
        return "unfinished" if self.attempts else "not begun"

    @property
    def at(self) -> str:
        """When the model's last answer came; empty without one."""
        return next((call.at for call in reversed(self.calls) if call.at), "")

    @property
    def prompt(self) -> list[dict[str, str]]:
        """The messages the model was sent first."""
        return list(self.started.prompt) if self.started else []

    @property
    def shown(self) -> list[str]:
        """The ids of the new entries that the prompt showed."""
        return list(self.started.entries) if self.started else []

    @property
    def results(self) -> list[dict[str, Any]]:
        """Results of earlier tool calls that the prompt showed."""
        return list(self.started.state["results"]) if self.started else []


@dataclass(frozen=True, kw_only=True)
class TickRecord:
    """One tick. `engine_starts` counts the engines that worked on it: more than one means interruptions.

    `after` is the newest tick before it that had a journal.
    """

    tick: int
    at: str
    plan: Plan
    turns: list[TurnRecord]
    expired: list[str]
    unread: dict[str, int]
    """How many of the expired entries each agent had not been shown."""
    is_committed: bool
    engine_starts: int
    after: int | None

    @property
    def totals(self) -> dict[str, Any]:
        """The sums over the turns, with the answers that those under way have already."""
        ended = [turn.report for turn in self.turns if turn.report]
        totals = TickReport(tick=self.tick, turns=(*ended, *turns_not_taken(self.plan))).totals
        answers = [call for turn in self.turns if not turn.report for call in turn.calls if not call.error]
        for key in ("credits", "input_tokens", "output_tokens"):
            totals[key] += sum(getattr(call, key) for call in answers)
        if answers:
            costs = [totals["cost_usd"] if totals["calls"] else 0.0, *(call.cost_usd for call in answers)]
            known = [cost for cost in costs if cost is not None]
            totals["cost_usd"] = sum(known) if len(known) == len(costs) else None
        totals["calls"] += len(answers)
        return totals

    def turn_of(self, agent: str) -> TurnRecord | None:
        """Return an agent's turn; None when the plan has none for it."""
        return next((turn for turn in self.turns if turn.agent == agent), None)


def quiet_tick(tick: int) -> TickRecord:
    """Return what there is to tell of a tick in which nobody took a turn."""
    return TickRecord(
        tick=tick,
        at="",
        plan=Plan(tick=tick, order=[]),
        turns=[],
        expired=[],
        unread={},
        is_committed=True,
        engine_starts=0,
        after=None,
    )


def read_tick(base: Path, tick: int) -> TickRecord:
    """Return what a tick's journal tells. Raises `UsageError` without one, `CorruptState` for damage."""
    reading = reading_of(base, tick)
    records, started = reading.records, reading.plan
    if started is None:
        raise no_journal(base, tick)
    plan = Plan.of(started)
    by_agent: dict[str, list[Record]] = {}
    for record in records:
        by_agent.setdefault(record.about, []).append(record)
    expired = next((record for record in records if isinstance(record, EntriesExpired)), None)
    return TickRecord(
        tick=tick,
        at=started.at,
        plan=plan,
        turns=[_turn(tick, place, name, by_agent.get(name, [])) for place, name in enumerate(plan.order)],
        expired=expired.files if expired else [],
        unread=expired.unread if expired else {},
        is_committed=isinstance(records[-1], TickCommitted),
        engine_starts=len(reading.epochs),
        after=started.after,
    )


def _turn(tick: int, place: int, name: str, records: list[Record]) -> TurnRecord:
    started, ended = start_and_end(records)
    report = ended.report if ended else None
    walk = _Walk(tick, name, _limits(started), started.repairs if started else 0)
    for record in records:
        walk.take(record)
    entries, writes = walk.outcome(report)
    return TurnRecord(
        tick=tick,
        place=place,
        agent=name,
        report=report,
        started=started,
        attempts=sum(isinstance(record, (TurnStarted, TurnResumed)) for record in records),
        stops=sum(isinstance(record, TurnStopped) for record in records),
        calls=walk.calls,
        tools=walk.all_tools(),
        entries=entries,
        memory={key: value for key, (value, place) in walk.memory.items() if place in writes},
        writes=writes,
        results_shown=walk.results_shown,
    )


def _limits(started: TurnStarted | None) -> TurnLimits:
    return agent_of(started).turn if started else TurnLimits()


class _Walk:
    """Goes through a turn's records in their order and stages what they say, as the turn itself did."""

    def __init__(self, tick: int, agent: str, limits: TurnLimits, repairs: int) -> None:
        self._tick, self._agent, self._limits, self._repairs = tick, agent, limits, repairs
        self._wrong: list[ModelReplied] = []  # the replies since the last one that was taken
        self._taken = 0
        self._updates: list[tuple[MemoryUpdate, str, int]] = []
        self.calls: list[ModelCall] = []
        self.memory: dict[str, tuple[Any, str]] = {}
        self._tools: dict[int, ToolUse] = {}
        self._asked: list[ToolCall] = []
        self._entries: list[OutboxEntry] = []
        self._staged: dict[str, FileEffect] = {}
        self._settled: dict[str, FileEffect] = {}
        self.results_shown: dict[str, int] = {}

    def take(self, record: Record) -> None:
        """Take one record of the turn."""
        if isinstance(record, ModelReplied):
            self._replied(record)
        elif isinstance(record, ModelFailed):
            error = f"{record.error}: {record.message}"
            self.calls.append(
                ModelCall(call=record.call, code=record.code, earlier=record.earlier, error=error)
            )
            if self._wrong and record.error == "OutOfCredits":  # no correction could be paid for
                self._salvage(self._wrong[-1])
        elif isinstance(record, ToolStarted):
            use = ToolUse(index=record.index, tool=record.tool, args=record.args, reached_outside=True)
            self._tools[use.index] = use
            self._settled.update(self._staged)  # the engine writes them before such a tool runs
            self._staged.clear()
        elif isinstance(record, ToolFinished):
            self._finished(record)

    def all_tools(self) -> list[ToolUse]:
        """Return the tool calls in their order, with those that were asked for and have not begun."""
        begun = [self._tools[index] for index in sorted(self._tools)]
        unfinished = [use.index for use in begun if use.success is None]
        left = self._asked[len(unfinished) :]
        first = max(self._tools, default=-1) + 1
        return begun + [
            ToolUse(index=first + number, tool=call.tool, args=call.args) for number, call in enumerate(left)
        ]

    def outcome(self, report: TurnReport | None) -> tuple[list[OutboxEntry], dict[str, FileEffect]]:
        """Return the entries and files the turn wrote; of a turn under way, those it is about to write."""
        self._remember_updates()
        staged = {**self._staged, **{entry.file: entry_effect(entry) for entry in self._entries}}
        if report is not None:
            kept = {file["path"] for file in report.files}
            staged = {place: effect for place, effect in staged.items() if place in kept}
        entries = [entry for entry in self._entries if entry.file in staged]
        return entries, {**self._settled, **staged}

    def _replied(self, record: ModelReplied) -> None:
        problem, reply = "", None
        self._remember_updates()
        self._asked = []
        try:
            reply = self._reply(record)
        except (AnswerTooLarge, ContractError) as error:
            problem = str(error)
            self._wrong.append(record)
        plain = record.as_json()
        facts = {key: plain[key] for key in ModelCall.__dataclass_fields__ if key in plain}
        self.calls.append(ModelCall(**facts, problem=problem))
        if reply is not None:
            self._take_reply(reply, record)
        elif len(self._wrong) > self._repairs:
            self._salvage(record)

    def _salvage(self, record: ModelReplied) -> None:
        with contextlib.suppress(AnswerTooLarge, ContractError):
            self._take_reply(self._reply(record, keep="any" if self._taken else "some"), record)

    def _take_reply(self, reply: TurnReply, record: ModelReplied) -> None:
        self._wrong, self._taken = [], self._taken + 1
        self._asked = list(reply.tool_calls)
        shown = self.results_shown[""] = len(self._tools)
        room = self._limits.max_entries - len(self._entries)
        for new in reply.outbox_entries[: max(room, 0)]:
            self._entries.append(self._entry(new, record.at))
            self.results_shown[self._entries[-1].file] = shown
        self._updates = [(update, record.at, shown) for update in reply.memory_updates]

    def _remember_updates(self) -> None:
        """Stage the memories of the reply whose tools have run."""
        updates, self._updates = self._updates, []
        for update, at, shown in updates:
            try:
                effect = memory_effect(self._agent, update.key, update.value, at, is_from_reply=True)
            except ToolError:
                continue
            self.memory[update.key] = (update.value, effect.place)
            self._staged[effect.place] = effect
            self.results_shown[effect.place] = shown

    def _reply(self, record: ModelReplied, *, keep: Keep = "all") -> TurnReply:
        require_reply(record.finish)
        limits = self._limits
        return parse_reply(record.text, kinds=limits.kinds, max_entries=limits.max_entries, keep=keep)

    def _entry(self, new: NewEntry, at: str) -> OutboxEntry:
        identity = entry_id(self._tick, self._agent, len(self._entries))
        return OutboxEntry(identity, self._tick, self._agent, new.kind, new.payload, new.tags, at)

    def _finished(self, record: ToolFinished) -> None:
        index = record.index
        asked = self._asked.pop(0) if self._asked else None
        effects = [FileEffect.from_json(plain) for plain in record.effects]
        begun = self._tools.get(index)
        self._tools[index] = ToolUse(
            index=index,
            tool=record.tool,
            args=begun.args if begun else asked.args if asked else None,
            success=record.success,
            output=record.output,
            files=[effect.place for effect in effects],
            reached_outside=begun is not None,
            is_unknown=is_unknown(record),
        )
        self._staged.update((effect.place, effect) for effect in effects)
        self.results_shown.update((effect.place, self.results_shown.get("", 0)) for effect in effects)
        self._remember(effects)

    def _remember(self, effects: Iterable[FileEffect]) -> None:
        """Take note of memories that a tool wrote."""
        prefix = f"agents/{self._agent}/memory/"
        for effect in effects:
            if effect.place.startswith(prefix):
                key = effect.place.removeprefix(prefix).removesuffix(".json")
                self.memory[key] = (value_in(effect), effect.place)


def value_in(effect: FileEffect) -> Any:
    """Return the value in a memory's file as the engine wrote it."""
    return decode_memory(effect.content, effect.place)


def is_unknown(record: ToolFinished) -> bool:
    """Return whether a `tool_finished` says that nobody knows whether the call happened."""
    return is_unknown_outcome(ToolResult(record.success, record.output))
