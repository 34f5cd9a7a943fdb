"""Runtime of a rehearsal: a recorded answer for every unchanged prompt.

Models are called only for new prompts. Calls of tools with outside effects are not made: an unchanged call
gets the recorded result. No message is received or delivered, and the clock shows the recorded time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from lemming.evals.rehearsal.spending_budget import SpendingBudget
from lemming.journal_tools.recorded_tick import RecordedTick
from lemming.journal_tools.replay.replay_runtime import redirect_inside
from lemming.journal_tools.tick_records import to_reply
from lemming.journal_tools.turn_replay import RecordedAnswers
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import LemmingError, OverBudget, RequestRejected, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, first_number, turn_key
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.providers import Message, Reply, Request, get_provider_class
from lemming.kernel.tick.error_boundary import EngineStopped, isolate
from lemming.kernel.tick.model_requests import build_request, resolve_entry
from lemming.kernel.tick.recorded_answers import restore_result
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools import EngineTool, ToolResult, get_toolset
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.turn_inputs import from_record
from lemming.kernel.turn.turn_loop import finish_turn
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Answer, TurnInputs
from lemming.queries.prompt_parts import complete_request


class RecordedPrompts:
    """Prompts and answers of a recorded tick. Thread-safe.

    Journals do not contain prompts: a turn is replayed at the first request for a prompt of the turn. `base`:
    folder of attached files. `config`: settings with the additional models of the turns.
    """

    def __init__(self, recorded: RecordedTick, base: OrgPath, config: Config) -> None:
        self.recorded, self._base, self._config = recorded, base, config
        self._prompt_hashes: dict[str, dict[int, str]] = {}
        self._lock = threading.Lock()

    def find_answer(self, agent: str, step: int) -> ModelReplied | ModelFailed | None:
        """Return the recorded answer to prompt number `step` of a turn, for any prompt, or None."""
        return self.recorded.answers.get((agent, step))

    def find_exact_answer(self, entry: ModelEntry, request: Request) -> ModelReplied | ModelFailed | None:
        """Return the recorded answer if the prompt at this position is unchanged, else None."""
        key = turn_key(request.agent, request.step // NUMBERS_PER_TURN)
        with self._lock:
            if key not in self._prompt_hashes:
                self._prompt_hashes[key] = self._hash_turn_prompts(key)
            recorded_hash = self._prompt_hashes[key].get(request.step)
        is_same = recorded_hash is not None and recorded_hash == hash_prompt(entry, request)
        return self.find_answer(request.agent, request.step) if is_same else None

    def _hash_turn_prompts(self, key: str) -> dict[int, str]:
        """Return the hash of each prompt of a recorded turn, by number."""
        started = self.recorded.started.get(key)
        if started is None:
            return {}
        inputs = from_record(started, self.recorded.tick, self.recorded.start_record.at)
        recorder = _PromptRecorder(self.recorded, inputs, self._base, self._config)
        plugins = tuple(self._config.org.plugins)
        # The turn may be interrupted, broken, or refer to missing files.
        isolate(lambda: finish_turn(TurnState(inputs, recorder), plugins=plugins))
        return recorder.prompt_hashes


class _PromptRecorder(RecordedAnswers):
    """The recorded answers of a turn, with a hash of each prompt."""

    def __init__(self, recorded: RecordedTick, inputs: TurnInputs, base: OrgPath, config: Config) -> None:
        super().__init__(recorded, inputs.agent.name, inputs.turn)
        self._inputs, self._base, self._config = inputs, Path(base), config
        self.prompt_hashes: dict[int, str] = {}

    def ask(self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None) -> Answer:
        """Return the recorded answer and store the hash of the prompt."""
        inputs = self._inputs
        entry = resolve_entry(inputs, self._config, model)
        number = first_number(inputs.turn) + call
        request = build_request(inputs, entry, number, messages, schema)
        request = complete_request(request, entry, inputs, self._base)
        self.prompt_hashes[number] = hash_prompt(entry, request)
        return super().ask(call, messages, model, schema)


def hash_prompt(entry: ModelEntry, request: Request) -> str:
    """Return the SHA-256 (hex) of everything in a prompt that can influence the answer.

    Included are the model (provider, options, name), messages, images, schema, temperature, seed, output limit and
    extra fields, except those that tell a harness its folders. Not included are deadline, price, tick and agent; the
    seed already depends on tick and agent.
    """
    is_harness = get_provider_class(entry.provider).makes_many_calls
    content = {
        "provider": entry.provider,
        "options": entry.options,
        "model": request.model_name,
        "messages": request.messages,
        "images": [[image.media_type, image.base64] for image in request.images],
        "images_with": request.images_with if request.images else "",
        "schema": request.schema,
        "temperature": request.temperature,
        "seed": request.seed,
        "max_output_tokens": request.max_output_tokens,
        "extra": None if is_harness else request.extra,
    }
    return sha256(dump_compact(content)).hexdigest()


NOT_MADE = "not made: this is a rehearsal, and no such call is in the record (`--allow-side-effects` makes it)"
RECORDINGS = frozenset({"scripted", "replay"})
_INSIDE = frozenset({"read", "write", "administer"})


class UnaskedQuestion(NamedTuple):
    """A prompt skipped by a dry run: tick, agent and number of the call."""

    tick: int
    agent: str
    call: int


class SkippedCall(NamedTuple):
    """A tool call skipped by a rehearsal."""

    tick: int
    agent: str
    tool: str


@dataclass
class RehearsalRuntime(Runtime):
    """A runtime with recorded answers as far as the record goes.

    `unrecorded_prompts`: prompts missing in the record.

    `is_dry`: no model is called, the recorded answer at the same position stands in, and `full_estimate`
    counts the cost of calling every model. `makes_calls`: tools with outside effects run if the record lacks
    the call. `scripted`: agents with changed prompts and a recording as model, so the answer says nothing.
    `stopped_by`: the error at which the rehearsal stopped.
    """

    uses_gateways: bool = False
    spending: SpendingBudget = field(default_factory=SpendingBudget)
    full_estimate: SpendingBudget = field(default_factory=SpendingBudget)
    is_dry: bool = False
    makes_calls: bool = False
    reused: int = 0
    unrecorded_prompts: list[UnaskedQuestion] = field(default_factory=list)
    skipped_calls: list[SkippedCall] = field(default_factory=list)
    scripted: set[str] = field(default_factory=set)
    stopped_by: LemmingError | None = None
    questions: RecordedPrompts = field(init=False)
    _recorded_failures: dict[tuple[str, int], ModelFailed] = field(default_factory=dict)
    _clock_reading: str = ""

    def begin_tick(self, prompts: RecordedPrompts, clock_reading: str) -> None:
        """Start the next tick of the record; `clock_reading` is the recorded time."""
        self.questions, self._clock_reading, self._recorded_failures = prompts, clock_reading, {}

    @property
    def recorded_tick(self) -> RecordedTick:
        """The recorded tick to run again."""
        return self.questions.recorded

    def now(self) -> str:
        """Return the recorded reading of the clock."""
        return self._clock_reading

    def previous_reading(self, tick: int, ticks: list[int]) -> str:
        """Return the reading from which the recorded tick started, or else the stored reading."""
        since = self.recorded_tick.start_record.since if self.recorded_tick.records else ""
        return since or super().previous_reading(tick, ticks)

    def scan_servers(self, tick_context: TickContext) -> dict[str, Json]:
        """Return the recorded scan of the servers, without contacting a server."""
        return self.recorded_tick.start_record.server_tools if self.recorded_tick.records else {}

    def complete(self, entry: ModelEntry, request: Request, *, live: bool = False) -> Reply:
        """Return the recorded answer to the same prompt, or call the model."""
        position = request.agent, request.step
        if position in self._recorded_failures:  # in the record the fallback models failed, too
            return to_reply(self._recorded_failures[position])
        if self.is_dry and entry.provider not in NO_MODELS:
            self.full_estimate.estimate(entry, request)
        record = self.questions.find_exact_answer(entry, request)
        if record is not None:
            with self._lock:
                self.reused += 1
                if isinstance(record, ModelFailed):
                    self._recorded_failures[position] = record
            return to_reply(record)
        if entry.provider in NO_MODELS:  # computed without a model
            return self._with_recorded_time(request, self.complete_live(entry, request))
        with self._lock:
            self.unrecorded_prompts.append(UnaskedQuestion(request.tick, request.agent, request.step))
            if entry.provider in RECORDINGS:
                self.scripted.add(request.agent)
        if self.is_dry:
            return self._substitute_reply(entry, request)
        return self._with_recorded_time(request, self._ask(entry, request))

    def _substitute_reply(self, entry: ModelEntry, request: Request) -> Reply:
        """Return the recorded answer at the same position, although the prompt has changed."""
        self.spending.estimate(entry, request)
        record = self.questions.find_answer(request.agent, request.step)
        if record is None:
            raise RequestRejected("the record has no answer to the prompt, and a dry run calls no model")
        return to_reply(record)

    def _ask(self, entry: ModelEntry, request: Request) -> Reply:
        if self.stop.is_set():
            raise EngineStopped
        if entry.provider == "replay":
            message = f"the model of {request.agent} is a recording, which cannot answer another prompt"
            option = f"--set agents/{request.agent}/resume.json:/model/key=KEY"
            hint = f"choose another model: {option}; or --dry-run, which calls none"
            self._stop(UsageError(f"{message} (tick {request.tick})", hint=hint))
        try:
            return self.spending.run_within_budget(entry, request, partial(self.complete_live, entry))
        except OverBudget as error:
            self._stop(UsageError(error.message, hint="raise --budget to continue, with --keep from here"))

    def _stop(self, error: LemmingError) -> NoReturn:
        """Stop the rehearsal in a state from which a later run can continue."""
        with self._lock:
            # Keep the first error: later threads stop because of it.
            self.stopped_by = self.stopped_by or error
        self.stop.set()
        raise EngineStopped

    def _with_recorded_time(self, request: Request, reply: Reply) -> Reply:
        """Return an answer with the time of the recorded answer at the same position, or of the tick's start."""
        record = self.questions.find_answer(request.agent, request.step)
        return reply._replace(at=record.at if isinstance(record, ModelReplied) else self._clock_reading)

    def find_urgent(self, agent: str, call: int, look: Callable[[], dict[str, str]]) -> Mapping[str, str]:
        """Return the recorded urgent entries; no outbox is looked at."""
        record = self.recorded_tick.urgent.get((agent, call))
        return record.entries if record else {}

    def call_tool(self, index: int, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call inside the fork. For other calls return the recorded result, or skip the call."""
        if self._is_inside_fork(call, context):
            return self._confine_effects(super().call_tool(index, call, context))
        if (earlier_result := self._find_recorded_result(index, call, context.agent.name)) is not None:
            return self._confine_effects(earlier_result)
        if self.makes_calls and not self.is_dry:
            return super().call_tool(index, call, context)
        with self._lock:
            self.skipped_calls.append(SkippedCall(context.tick, context.agent.name, call.tool))
        return ToolResult(False, NOT_MADE, outcome="skipped")

    def _is_inside_fork(self, call: ToolCall, context: ToolContext) -> bool:
        """Return True if the call only reads, lets the engine write, or is refused."""
        try:
            tools = get_toolset(context.settings, context.org)
            tool = tools.require_allowed(call.tool, context.agent, context.settings)
        except LemmingError:
            return True
        # A tool that writes by itself, such as a merge into a repository of the user, reaches outside.
        is_planned = isinstance(tool, EngineTool) and (tool.stages_files or tool.tool_class == "read")
        return is_planned and tool.tool_class in _INSIDE

    def _confine_effects(self, result: ToolResult) -> ToolResult:
        return replace(result, effects=tuple(redirect_inside(self.base, effect) for effect in result.effects))

    def _find_recorded_result(self, index: int, call: ToolCall, agent: str) -> ToolResult | None:
        """Return the recorded result of the same call in the same turn, preferably at the same position."""
        key = turn_key(agent, index // NUMBERS_PER_TURN)
        turn = self.recorded_tick.find_turn(key) if self.recorded_tick.records else None
        equal_calls = (use for use in turn.tools if (use.tool, use.args) == (call.tool, call.args)) if turn else ()
        for earlier_use in sorted(equal_calls, key=lambda use: use.index != index):
            if (result := self.recorded_tick.tools.get((agent, earlier_use.index))) is not None:
                return restore_result(result)
        return None


def describe_skipped_calls(skipped_calls: list[SkippedCall]) -> Iterator[str]:
    """Yield a description of each distinct skipped call."""
    for call in dict.fromkeys(skipped_calls):
        count = skipped_calls.count(call)
        yield f"tick {call.tick}: {call.agent}: {call.tool}" + (f" ({count} times)" if count > 1 else "")
