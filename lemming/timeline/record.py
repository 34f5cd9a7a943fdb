"""One tick as its journal tells it: who was asked what, what came back, what was written.

Only the journal is read, so a tick can be shown whole after its entries have expired and its files have
changed. What its answers led to is what `take_turn` makes of them. Format: docs/formats.md, "Journal".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from lemming.kernel.base.errors import OUTCOME_CODES, Outcome
from lemming.kernel.base.turn_numbers import split_key, turn_key
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.file import JournalContents, reading_of
from lemming.kernel.journal.prompts import PromptReader
from lemming.kernel.journal.record_parts import FailedAttempt
from lemming.kernel.journal.records import (
    ModelFailed,
    ModelReplied,
    Record,
    TickCommitted,
    TickStarted,
    ToolFinished,
    ToolStarted,
    TurnResumed,
    TurnStarted,
    TurnStopped,
)
from lemming.kernel.journal.report import TickReport, TurnReport
from lemming.kernel.journal.turn_start import first_question
from lemming.kernel.memory import decode_memory
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.gaps import no_journal
from lemming.timeline.tick_records import TickRecords

if TYPE_CHECKING:
    from lemming.timeline.retake import Retaken, RetakenQuestion


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One call of a turn's model. `error`: why there is no answer. `problem`: why the answer is no reply.
    `earlier`: the attempts of the same call that failed before, each with code, error and message.
    `key`: that of the fallback that answered, if one did.
    """

    call: int
    text: str = ""
    error: str = ""
    problem: str = ""
    at: str = ""
    model: str = ""
    key: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    credits: float = 0.0
    cost_usd: float | None = None
    duration_ms: int = 0
    code: str = ""
    earlier: list[FailedAttempt] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """One tool call. `success` is None and `outcome` empty while its end is not recorded; `args` is None when
    nothing tells them.

    `is_unknown`: the engine died while it ran, so it may or may not have happened. `kept`: what
    capabilities keep with it.
    """

    index: int
    tool: str
    args: Any = None
    success: bool | None = None
    output: str = ""
    files: list[str] = field(default_factory=list)
    reached_outside: bool = False
    is_unknown: bool = False
    outcome: Literal[Outcome, ""] = ""
    code: str = ""
    duration_ms: int = 0
    kept: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TurnRecord:
    """One turn, number `turn` of the agent's in the tick, at a `place` among all turns of the tick.

    `report` is None when it has not ended; `started` when no model was about to be asked.

    `attempts` counts how often it was begun, `stops` how often a person stopped it. `questions` are what its
    models were asked, by the number of the call. `writes` are the files
    that it really wrote, by place, with their content. `results_shown`: how many results of the turn's own
    calls the reply had been shown that wrote a file, by place; under "" its last reply.
    """

    tick: int
    place: int
    agent: str
    turn: int = 0
    report: TurnReport | None = None
    started: TurnStarted | None = None
    attempts: int = 0
    stops: int = 0
    calls: list[ModelCall] = field(default_factory=list)
    questions: dict[int, RetakenQuestion] = field(default_factory=dict)
    tools: list[ToolUse] = field(default_factory=list)
    entries: list[OutboxEntry] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, FileEffect] = field(default_factory=dict)
    results_shown: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells it from the tick's other turns."""
        return turn_key(self.agent, self.turn)

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
        return first_question(self.started) if self.started else []

    @property
    def shown(self) -> list[str]:
        """The ids of the new entries that the prompt showed."""
        return list(self.started.entries) if self.started else []

    @property
    def results(self) -> list[dict[str, Any]]:
        """Results of earlier tool calls that the prompt showed."""
        return list(self.started.state["results"]) if self.started else []


class RecordedTick(TickRecords):
    """The records of one tick, and its turns as they tell of them."""

    def __init__(
        self, tick: int = -1, records: list[Record] | None = None, *, engine_starts: int = 1
    ) -> None:
        super().__init__(tick, records, engine_starts=engine_starts)
        self._turns: dict[str, TurnRecord] = {}

    @property
    def turns(self) -> list[TurnRecord]:
        """Its turns in their order."""
        return [self._turn_of(key) for key in self.turn_keys]

    def turn_of(self, key: str) -> TurnRecord | None:
        """Return the turn of a key: an agent's, its first in the tick; None when the plan has none for it."""
        return self._turn_of(key) if key in self.turn_keys else None

    def _turn_of(self, key: str) -> TurnRecord:
        if key not in self._turns:
            self._turns[key] = _turn(self, key)
        return self._turns[key]

    @property
    def totals(self) -> dict[str, Any]:
        """The sums over the turns, with the answers that those under way have already."""
        reports = [ended.report for ended in self.ended.values()]
        totals = TickReport(tick=self.tick, turns=(*reports, *self.plan.turns_not_taken())).totals
        answers = [
            answer
            for answer in self.answers.values()
            if isinstance(answer, ModelReplied) and answer.turn_key not in self.ended
        ]
        for key in ("credits", "input_tokens", "output_tokens"):
            totals[key] += sum(getattr(answer, key) for answer in answers)
        if answers:
            costs = [totals["cost_usd"] if totals["calls"] else 0.0, *(answer.cost_usd for answer in answers)]
            known = [cost for cost in costs if cost is not None]
            totals["cost_usd"] = sum(known) if len(known) == len(costs) else None
        totals["calls"] += len(answers)
        return totals


def quiet_tick(tick: int, skipped: Mapping[str, str], broken: Mapping[str, str]) -> RecordedTick:
    """Return what there is to tell of a tick in which nobody took a turn, with those who could take none."""
    begin = TickStarted(at="", tick=tick, order=[], skipped={**skipped}, broken={**broken})
    end = TickCommitted(tick=tick, advanced=True, totals={})
    return RecordedTick(tick, [begin, end], engine_starts=0)


def recorded_in(tick: int, reading: JournalContents) -> RecordedTick:
    """Return the tick that a reading of its journal tells of."""
    return RecordedTick(tick, reading.records, engine_starts=len(reading.epochs))


def read_tick(base: OrgPath, tick: int, prompts: PromptReader | None = None) -> RecordedTick:
    """Return what a tick's journal tells. Raises `UsageError` without one, `CorruptState` for damage.

    `prompts` as in `read_journal`.
    """
    reading = reading_of(base, tick, prompts=prompts)
    if not reading.records:
        raise no_journal(base, tick)
    return recorded_in(tick, reading)


def _turn(recorded: RecordedTick, key: str) -> TurnRecord:
    (agent, turn), records = split_key(key), recorded.records_of(key)
    started, ended = recorded.started.get(key), recorded.ended.get(key)
    report = ended.report if ended else None
    calls = [record for record in records if isinstance(record, (ModelReplied, ModelFailed))]
    retaken = _retaken(started, recorded) if started else None
    writes = retaken.writes(report) if retaken else {}
    return TurnRecord(
        tick=recorded.tick,
        place=recorded.turn_keys.index(key),
        agent=agent,
        turn=turn,
        report=report,
        started=started,
        attempts=sum(isinstance(record, (TurnStarted, TurnResumed)) for record in records),
        stops=sum(isinstance(record, TurnStopped) for record in records),
        calls=[_call(record, retaken) for record in calls],
        questions=retaken.questions_asked if retaken else {},
        tools=_tools(records, retaken),
        entries=[entry for entry in retaken.entries if entry.file in writes] if retaken else [],
        memory=_memories(agent, writes),
        writes=writes,
        results_shown=retaken.results_shown if retaken else {},
    )


def _retaken(started: TurnStarted, recorded: RecordedTick) -> Retaken:
    # Here, as all that takes turns comes with it, which whoever only asks for records does without.
    from lemming.kernel.turn.on_record import from_record
    from lemming.timeline.retake import Retaken

    return Retaken(from_record(started, recorded.tick), recorded)


def _call(record: ModelReplied | ModelFailed, retaken: Retaken | None) -> ModelCall:
    if isinstance(record, ModelFailed):
        error = f"{record.error}: {record.message}"
        took = record.duration_ms
        return ModelCall(
            call=record.call, code=record.code, earlier=record.earlier, error=error, duration_ms=took
        )
    plain = record.as_json()
    facts = {key: plain[key] for key in ModelCall.__dataclass_fields__ if key in plain}
    return ModelCall(**facts, problem=retaken.problems.get(record.call, "") if retaken else "")


def _tools(records: list[Record], retaken: Retaken | None) -> list[ToolUse]:
    """Return the tool calls in their order, with those that were asked for and have not begun."""
    from lemming.kernel.tick.recorded_answers import recorded_result

    uses: dict[int, ToolUse] = {}
    args = retaken.args if retaken else {}
    for record in records:
        match record:
            case ToolStarted(index=index):
                uses[index] = ToolUse(index=index, tool=record.tool, args=record.args, reached_outside=True)
            case ToolFinished(index=index):
                begun, result = uses.get(index), recorded_result(record)
                uses[index] = ToolUse(
                    index=index,
                    tool=record.tool,
                    args=begun.args if begun else args.get(index),
                    success=record.success,
                    output=record.output,
                    files=[effect.place for effect in result.effects],
                    reached_outside=begun is not None,
                    is_unknown=result.outcome == "interrupted",
                    outcome=result.outcome,
                    code=OUTCOME_CODES[result.outcome],
                    duration_ms=record.duration_ms,
                    kept=record.kept,
                )
    first = max(uses, default=retaken.first - 1 if retaken else -1) + 1
    left = enumerate(retaken.not_begun if retaken else [], first)
    return [
        *(uses[index] for index in sorted(uses)),
        *(ToolUse(index=index, tool=call.tool, args=call.args) for index, call in left),
    ]


def _memories(agent: str, writes: dict[str, FileEffect]) -> dict[str, Any]:
    """Return the memories among the files that a turn wrote, by key."""
    prefix = f"agents/{agent}/memory/"
    return {
        place.removeprefix(prefix).removesuffix(".json"): decode_memory(effect.content, place)
        for place, effect in writes.items()
        if place.startswith(prefix)
    }


def is_unknown(record: ToolFinished) -> bool:
    """Return whether a `tool_finished` says that nobody knows whether the call happened."""
    from lemming.kernel.tick.recorded_answers import recorded_result

    return recorded_result(record).outcome == "interrupted"
