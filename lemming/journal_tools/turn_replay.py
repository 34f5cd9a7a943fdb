"""Replays a single turn from its records: the effects of its answers, and the tool results known to each reply.

Runs the turn's own code with recorded answers only, and a `TurnState` that takes notes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lemming.journal_tools.tick_records import TickRecords
from lemming.kernel.base.contract import Keep, ToolCall, TurnReply
from lemming.kernel.base.errors import ContractError, ProviderError
from lemming.kernel.base.turn_numbers import first_number
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.messages import to_file_effect
from lemming.kernel.providers import Message
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.recorded_answers import restore_answer, restore_finding, restore_result, was_approved
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.turn_loop import finish_turn
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Answer, TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_effects import AskPerson
    from lemming.kernel.turn.turn_values import CheckFinding


R = TypeVar("R")


class RecordingExhausted(Exception):
    """The recorded answers are exhausted; the message names the missing answer."""


class RecordedAnswers:
    """The answers of a turn, from records only."""

    def __init__(self, recorded: TickRecords, agent: str, turn: int = 0) -> None:
        self._recorded, self._agent, self._first, self._check_count = recorded, agent, first_number(turn), 0

    def ask(self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None) -> Answer:
        """Return the model's answer number `call`; raise `RecordingExhausted` if there is none."""
        return restore_answer(self._require(self._recorded.answers, call, f"call {call} of its model"))

    def _require(self, records: Mapping[tuple[str, int], R], number: int, description: str) -> R:
        record = records.get((self._agent, self._first + number))
        if record is None:
            raise RecordingExhausted(description)
        return record

    @property
    def everyone(self) -> Collection[str]:
        """The names of all agents at the start of the tick."""
        return self._recorded.plan.all_agents

    def has_answer(self, call: int) -> bool:
        """Return True if the model's answer number `call` is recorded."""
        return (self._agent, self._first + call) in self._recorded.answers

    def take_urgent(self, call: int, trust_label: str) -> Mapping[str, str]:
        """Return the urgent entries recorded before model call number `call`."""
        record = self._recorded.urgent.get((self._agent, self._first + call))
        return record.entries if record else {}

    def start_calls(self, *_: Any) -> None:
        """Do nothing: the results of the calls are recorded."""

    def is_approved(
        self, index: int, call: ToolCall, at: str, staged: dict[str, FileEffect], questions: Sequence[AskPerson]
    ) -> bool:
        """Return True if the recorded result shows that a person had approved the call."""
        finished = self._require(self._recorded.tools, index, f"tool call {index}")
        return was_approved(finished, len(questions))

    def call_tool(
        self,
        index: int,
        call: ToolCall,
        at: str,
        staged: dict[str, FileEffect],
        questions: Sequence[AskPerson] = (),
        approved: int = 0,
    ) -> ToolResult:
        """Return the result of tool call number `index`; raise `RecordingExhausted` if there is none."""
        return restore_result(self._require(self._recorded.tools, index, f"tool call {index}"))

    def refuse(self, *_: Any) -> None:
        """Do nothing: the reason of a refusal follows from the turn."""

    def has_call(self, index: int) -> bool:
        """Return True if tool call number `index` is recorded, or its announcement is."""
        return (self._agent, self._first + index) in self._recorded.tools or self.had_side_effects(index)

    def run_check(self, name: str, *_: Any) -> CheckFinding | None:
        """Return the recorded result of the turn's next check; raise `RecordingExhausted` if there is none."""
        number, self._check_count = self._check_count, self._check_count + 1
        return restore_finding(self._require(self._recorded.checked, number, f"the result of {name}"))

    def had_side_effects(self, index: int) -> bool:
        """Return True if the call was announced."""
        return (self._agent, self._first + index) in self._recorded.announced


class ReplayedPrompt(NamedTuple):
    """A prompt of a model call: `model` is a key of `config/models.json`, or empty for the agent's own model.

    `schema`: the schema of the answer, or None for the reply contract.
    """

    messages: list[Message]
    model: str = ""
    schema: dict[str, Any] | None = None


class ReplayedTurn(TurnState):
    """A turn replayed as far as the records reach; `prompts` contains the prompts by call number.

    Calls are numbered as in the journal: the turn's own calls begin with `first_call`.

    `problems`: the errors of invalid answers, by call number. `args`: the arguments of the tool calls, by index.
    `not_begun`: requested calls of the last reply without a record. `results_shown`: as in `RecordedTurn`.
    """

    def __init__(self, inputs: TurnInputs, recorded: TickRecords) -> None:
        super().__init__(inputs, RecordedAnswers(recorded, inputs.agent.name, inputs.turn))
        self.first_call = first_number(inputs.turn)
        self.prompts: dict[int, ReplayedPrompt] = {}
        self.problems: dict[int, str] = {}
        self.args: dict[int, object] = {}
        self.not_begun: list[ToolCall] = []
        self.results_shown: dict[str, int] = {}
        isolate(lambda: finish_turn(self))  # the record ends, no plugin brings its strategy, or it broke, as then

    def list_written_files(self, report: TurnReport | None) -> dict[str, FileEffect]:
        """Return the files the turn wrote, by path; for an unfinished turn, the files about to be written."""
        staged = {path: effect for path, effect in self.staged.items() if not effect.removes}
        staged |= {entry.file: to_file_effect(entry) for entry in self.entries}
        if report is not None:
            reported_paths = {file["path"] for file in report.files}
            staged = {path: effect for path, effect in staged.items() if path in reported_paths}
        settled = {path: effect for path, effect in self.written_ahead.items() if not effect.removes}
        return {**settled, **staged}

    def ask(
        self, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None, by: str = ""
    ) -> Answer:
        """Call the model, and record the prompt."""
        self.prompts[self.first_call + self.call_count] = ReplayedPrompt([*messages], model, schema)
        return super().ask(messages, model, schema, by)

    def read_reply(self, answer: Answer, *, keep: Keep = "all") -> TurnReply:
        """Parse an answer, and record the error of an invalid answer."""
        try:
            return super().read_reply(answer, keep=keep)
        except (ContractError, ProviderError) as error:
            self.problems.setdefault(self.first_call + len(self.answers) - 1, str(error))
            raise

    def stage_reply(self, reply: TurnReply, *, has_seen: bool = True) -> None:
        """Stage the effects of a reply, and record the number of tool results known to the reply."""
        old_effects, first_new_entry = {**self.written_ahead, **self.staged}, len(self.entries)
        known_results = self.results_shown[""] = len(self.args) if has_seen else self.results_shown.get("", 0)
        super().stage_reply(reply, has_seen=has_seen)
        staged = {**self.written_ahead, **self.staged}.items()
        new_paths = [path for path, effect in staged if old_effects.get(path) is not effect]
        self.results_shown |= dict.fromkeys(
            [*new_paths, *(entry.file for entry in self.entries[first_new_entry:])], known_results
        )

    def call_tool(self, call: ToolCall, at: str, number: int | None = None) -> None:
        """Apply the recorded result of a call; a call without a result is skipped, and the reply continues."""
        staged, last_number = dict(self.staged), self.results.numbers.last
        try:
            super().call_tool(call, at, number)
            if self.results.numbers.last != last_number:
                self.args[self.first_call + self.results.numbers.last] = call.args
        except RecordingExhausted:
            number = self.results.numbers.last
            if not self.source.had_side_effects(number) or self.first_call + number in self.args:
                self.not_begun.append(call)
                return
            self.args[self.first_call + number] = call.args
            self.written_ahead.update(staged)  # the engine had written them before the call began
            self.staged.clear()
