"""A tick from the journal: prompts, answers, tool calls and written files of its turns.

Only the journal is read, so a tick can be shown in full after its entries have expired and its files have
changed. The effects of the answers come from `take_turn`. Format: docs/formats.md, "Journal".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from lemming.journal_tools.tick_ranges import missing_journal_error
from lemming.journal_tools.tick_records import TickRecords
from lemming.kernel.base.errors import OUTCOME_CODES, Outcome
from lemming.kernel.base.turn_numbers import split_key, turn_key
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.journal_file import load_contents
from lemming.kernel.journal.journal_parser import JournalContents
from lemming.kernel.journal.journal_records import (
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
from lemming.kernel.journal.prompt_store import PromptReader
from lemming.kernel.journal.record_parts import FailedAttempt
from lemming.kernel.journal.turn_report import TickReport, TurnReport
from lemming.kernel.memory import decode_memory
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import OrgPath

if TYPE_CHECKING:
    from lemming.journal_tools.turn_replay import ReplayedPrompt, ReplayedTurn


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """A model call of a turn.

    `error`: the reason for a missing answer. `problem`: the reason an answer is no valid reply. `earlier`: the failed
    attempts before, each with code, error and message. `key`: the model key of the answering fallback, if any.
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
    """A tool call.

    Until its end is recorded, `success` is None and `outcome` empty; unrecorded `args` are None. `is_unknown`: the
    engine died during the call, which may or may not have happened. `kept`: data of capabilities about the call.
    """

    index: int
    tool: str
    args: Any = None
    success: bool | None = None
    output: str = ""
    files: list[str] = field(default_factory=list)
    is_unknown: bool = False
    outcome: Literal[Outcome, ""] = ""
    code: str = ""
    duration_ms: int = 0
    kept: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RecordedTurn:
    """A turn, number `turn` of its agent in the tick, at index `rank` among all turns of the tick.

    `report` is None for an unfinished turn; `started` is None for a turn without a model call.

    `attempts`: number of starts. `stops`: number of stops by a person. `questions`: the prompts, by call
    number. `writes`: the files actually written, by path, with content. `results_shown`: number of the turn's
    own tool results known to the reply that wrote a file, by path; under "" for the last reply.
    """

    tick: int
    rank: int
    agent: str
    turn: int = 0
    report: TurnReport | None = None
    started: TurnStarted | None = None
    attempts: int = 0
    stops: int = 0
    calls: list[ModelCall] = field(default_factory=list)
    questions: dict[int, ReplayedPrompt] = field(default_factory=dict)
    tools: list[ToolUse] = field(default_factory=list)
    entries: list[OutboxEntry] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, FileEffect] = field(default_factory=dict)
    results_shown: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of the turn, unique within the tick."""
        return turn_key(self.agent, self.turn)

    def find_known_tool_uses(self, path: str) -> list[ToolUse]:
        """Return the tool calls whose results were known when the turn wrote a file."""
        return self.tools[: self.results_shown.get(path, self.results_shown.get("", 0))]

    @property
    def status(self) -> str:
        """The outcome of the turn, or "unfinished" or "not begun"."""
        if self.report:
            return self.report.status
        return "unfinished" if self.attempts else "not begun"

    @property
    def last_answer_time(self) -> str:
        """The time of the model's last answer, or an empty string without an answer."""
        return next((call.at for call in reversed(self.calls) if call.at), "")

    @property
    def prompt(self) -> list[dict[str, str]]:
        """The messages of the first model call."""
        return first_prompt(self.started) if self.started else []

    @property
    def visible_entry_ids(self) -> list[str]:
        """The ids of the new entries in the prompt."""
        return list(self.started.entries) if self.started else []

    @property
    def visible_results(self) -> list[dict[str, Any]]:
        """Results of earlier tool calls in the prompt."""
        return list(self.started.state["results"]) if self.started else []


class RecordedTick(TickRecords):
    """The records of a tick and the turns built from the records."""

    def __init__(self, tick: int = -1, records: list[Record] | None = None, *, engine_starts: int = 1) -> None:
        super().__init__(tick, records, engine_starts=engine_starts)
        self._turns: dict[str, RecordedTurn] = {}

    @property
    def turns(self) -> list[RecordedTurn]:
        """The turns of the tick, in order."""
        return [self._cached_turn(key) for key in self.turn_keys]

    def find_turn(self, key: str) -> RecordedTurn | None:
        """Return the turn with a key, or None. An agent's name is the key of its first turn in the tick."""
        return self._cached_turn(key) if key in self.turn_keys else None

    def _cached_turn(self, key: str) -> RecordedTurn:
        if key not in self._turns:
            self._turns[key] = _build_turn(self, key)
        return self._turns[key]

    @property
    def totals(self) -> dict[str, Any]:
        """The sums over the turns, including answers of unfinished turns."""
        reports = [ended.report for ended in self.ended.values()]
        totals = TickReport(tick=self.tick, turns=(*reports, *self.plan.excluded_reports())).totals
        replies = [answer for answer in self.answers.values() if isinstance(answer, ModelReplied)]
        answers = [answer for answer in replies if answer.turn_key not in self.ended]
        for key in ("credits", "input_tokens", "output_tokens"):
            totals[key] += sum(getattr(answer, key) for answer in answers)
        if answers:
            costs = [totals["cost_usd"] if totals["calls"] else 0.0, *(answer.cost_usd for answer in answers)]
            totals["cost_usd"] = None if None in costs else sum(cost for cost in costs if cost is not None)
        totals["calls"] += len(answers)
        return totals


def make_quiet_tick(tick: int, skipped: Mapping[str, str], broken: Mapping[str, str]) -> RecordedTick:
    """Return a tick without turns, with its skipped and broken agents."""
    begin = TickStarted(at="", tick=tick, order=[], skipped={**skipped}, broken={**broken})
    return RecordedTick(tick, [begin, TickCommitted(tick=tick, advanced=True, totals={})], engine_starts=0)


def to_recorded_tick(tick: int, reading: JournalContents) -> RecordedTick:
    """Return the tick of a parsed journal."""
    return RecordedTick(tick, reading.records, engine_starts=len(reading.epochs))


def load_tick_record(base: OrgPath, tick: int, prompts: PromptReader | None = None) -> RecordedTick:
    """Load a tick from the journal. Raises `UsageError` without a journal, `CorruptState` for damage."""
    reading = load_contents(base, tick, prompts=prompts)
    if not reading.records:
        raise missing_journal_error(base, tick)
    return to_recorded_tick(tick, reading)


def _build_turn(recorded: RecordedTick, key: str) -> RecordedTurn:
    (agent, turn), records = split_key(key), recorded.turn_records(key)
    started, ended = recorded.started.get(key), recorded.ended.get(key)
    report = ended.report if ended else None
    calls = [record for record in records if isinstance(record, (ModelReplied, ModelFailed))]
    replayed = None
    if started:
        # Here, as all that takes turns comes with it, which whoever only asks for records does without.
        from lemming.journal_tools.turn_replay import ReplayedTurn
        from lemming.kernel.turn.turn_inputs import from_record

        replayed = ReplayedTurn(from_record(started, recorded.tick, recorded.start_record.at), recorded)
    writes = replayed.list_written_files(report) if replayed else {}
    prefix = f"agents/{agent}/memory/"
    memories = {path: effect.content for path, effect in writes.items() if path.startswith(prefix)}
    return RecordedTurn(
        tick=recorded.tick,
        rank=recorded.turn_keys.index(key),
        agent=agent,
        turn=turn,
        report=report,
        started=started,
        attempts=sum(isinstance(record, (TurnStarted, TurnResumed)) for record in records),
        stops=sum(isinstance(record, TurnStopped) for record in records),
        calls=[_build_model_call(record, replayed) for record in calls],
        questions=replayed.prompts if replayed else {},
        tools=_build_tool_uses(records, replayed),
        entries=[entry for entry in replayed.entries if entry.file in writes] if replayed else [],
        memory={path[len(prefix) :].removesuffix(".json"): decode_memory(memories[path], path) for path in memories},
        writes=writes,
        results_shown=replayed.results_shown if replayed else {},
    )


def _build_model_call(record: ModelReplied | ModelFailed, replayed: ReplayedTurn | None) -> ModelCall:
    values, is_failed = record.as_json(), isinstance(record, ModelFailed)
    names = ("call", "code", "earlier", "duration_ms") if is_failed else ModelCall.__dataclass_fields__
    fields = {key: values[key] for key in names if key in values}
    if isinstance(record, ModelFailed):
        return ModelCall(**{**fields, "error": f"{record.error}: {record.message}"})
    return ModelCall(**fields, problem=replayed.problems.get(record.call, "") if replayed else "")


def _build_tool_uses(records: list[Record], replayed: ReplayedTurn | None) -> list[ToolUse]:
    """Return the tool calls in order, including requested calls not begun."""
    from lemming.kernel.tick.recorded_answers import restore_result

    tool_uses: dict[int, ToolUse] = {}
    args = replayed.args if replayed else {}
    for record in records:
        match record:
            case ToolStarted(index=index):
                tool_uses[index] = ToolUse(index=index, tool=record.tool, args=record.args)
            case ToolFinished(index=index):
                tool_use, result = tool_uses.get(index), restore_result(record)
                tool_uses[index] = ToolUse(
                    index=index,
                    tool=record.tool,
                    args=tool_use.args if tool_use else args.get(index),
                    success=record.success,
                    output=record.output,
                    files=[effect.path_key for effect in result.effects],
                    is_unknown=result.outcome == "interrupted",
                    outcome=result.outcome,
                    code=OUTCOME_CODES[result.outcome],
                    duration_ms=record.duration_ms,
                    kept=record.kept,
                )
    first = max(tool_uses, default=replayed.first_call - 1 if replayed else -1) + 1
    pending_calls = enumerate(replayed.not_begun if replayed else [], first)
    return [
        *(tool_uses[index] for index in sorted(tool_uses)),
        *(ToolUse(index=index, tool=call.tool, args=call.args) for index, call in pending_calls),
    ]


def first_prompt(record: TurnStarted) -> list[Json]:
    """Return the messages of the first model call: the prompt, and the earlier dialogue."""
    return [*record.prompt, *record.dialogue]
