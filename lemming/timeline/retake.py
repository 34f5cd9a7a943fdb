"""A turn taken again from its records, as far as they go: what its answers led to, what each reply had seen.

It is the turn's own code, over answers that are only read, with a draft that takes notes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base.contract import Keep, ToolCall, TurnReply
from lemming.kernel.base.errors import ContractError, ProviderError
from lemming.kernel.base.turn_numbers import first_number
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.messages import entry_effect
from lemming.kernel.providers import Message
from lemming.kernel.tick.edge import tried
from lemming.kernel.tick.recorded_answers import recorded_answer, recorded_finding, recorded_result
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.loop import finish
from lemming.kernel.turn.values import Answer, TurnInputs
from lemming.timeline.tick_records import TickRecords

if TYPE_CHECKING:
    from lemming.kernel.turn.places import Found, Functions


class RecordEnds(Exception):
    """The recorded answers end here; the message names the one that is missing."""


class RecordedAnswers:
    """The answers of one turn, from its records and nowhere else."""

    def __init__(self, recorded: TickRecords, agent: str, turn: int = 0) -> None:
        self._recorded, self._agent, self._first = recorded, agent, first_number(turn)

    def ask(
        self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None
    ) -> Answer:
        """Return the model's answer number `call`; raise `RecordEnds` when there is none."""
        record = self._recorded.answers.get((self._agent, self._first + call))
        if record is None:
            raise RecordEnds(f"call {call} of its model")
        return recorded_answer(record)

    @property
    def everyone(self) -> Collection[str]:
        """The names of the agents that there were as the tick began."""
        return self._recorded.plan.everyone

    def knows(self, call: int) -> bool:
        """Return whether the model's answer number `call` is recorded."""
        return (self._agent, self._first + call) in self._recorded.answers

    def begin(self, *_: Any) -> None:
        """Begin nothing: what calls gave is recorded."""

    def use(self, index: int, call: ToolCall, at: str, staged: dict[str, FileEffect]) -> ToolResult:
        """Return the result of tool call number `index`; raise `RecordEnds` when there is none."""
        record = self._recorded.tools.get((self._agent, self._first + index))
        if record is None:
            raise RecordEnds(f"tool call {index}")
        return recorded_result(record)

    def refuse(self, *_: Any) -> None:
        """Record nothing: why a call was refused follows from the turn."""

    def has_call(self, index: int) -> bool:
        """Return True if tool call number `index` is recorded, or its announcement is."""
        return (self._agent, self._first + index) in self._recorded.tools or self.reached_outside(index)

    def check(self, number: int, name: str, seen: dict[str, Any], functions: Functions) -> Found | None:
        """Return what a function said that was asked; raise `RecordEnds` when nothing is recorded."""
        record = self._recorded.checked.get((self._agent, self._first + number))
        if record is None:
            raise RecordEnds(f"what {name} said to a gate")
        return recorded_finding(record)

    def reached_outside(self, index: int) -> bool:
        """Return whether that call was announced."""
        return (self._agent, self._first + index) in self._recorded.announced


class RetakenQuestion(NamedTuple):
    """What a model was asked: `model` is a key of `config/models.json`, empty for the agent's own.

    `schema`: that of the answer, None for the contract's.
    """

    messages: list[Message]
    model: str = ""
    schema: dict[str, Any] | None = None


class Retaken(Draft):
    """A turn, taken again as far as its records go; `questions_asked` by the number of the call.

    Calls are numbered as in the journal: the turn's own begin with `first`.

    `problems`: why answers were no replies, by the number of the call. `args`: those of the tool calls, by
    index; `not_begun`: the calls that the last reply asked for beyond those. `results_shown`: as in
    `TurnRecord`.
    """

    def __init__(self, inputs: TurnInputs, recorded: TickRecords) -> None:
        super().__init__(inputs, RecordedAnswers(recorded, inputs.agent.name, inputs.turn))
        self.first = first_number(inputs.turn)
        self.questions_asked: dict[int, RetakenQuestion] = {}
        self.problems: dict[int, str] = {}
        self.args: dict[int, object] = {}
        self.not_begun: list[ToolCall] = []
        self.results_shown: dict[str, int] = {}
        tried(lambda: finish(self))  # the record ends, no plugin brings its strategy, or it broke, as then

    def writes(self, report: TurnReport | None) -> dict[str, FileEffect]:
        """Return the files the turn wrote, by place; of one under way, those it is about to write."""
        staged = {place: effect for place, effect in self.staged.items() if not effect.removes}
        staged |= {entry.file: entry_effect(entry) for entry in self.entries}
        if report is not None:
            kept = {file["path"] for file in report.files}
            staged = {place: effect for place, effect in staged.items() if place in kept}
        settled = {place: effect for place, effect in self.settled.items() if not effect.removes}
        return {**settled, **staged}

    def ask(
        self, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None, by: str = ""
    ) -> Answer:
        """Ask, and note what was asked."""
        self.questions_asked[self.first + self.questions] = RetakenQuestion([*messages], model, schema)
        return super().ask(messages, model, schema, by)

    def read(self, answer: Answer, *, keep: Keep = "all") -> TurnReply:
        """Read an answer, and note why it is no reply."""
        try:
            return super().read(answer, keep=keep)
        except (ContractError, ProviderError) as error:
            self.problems.setdefault(self.first + len(self.answers) - 1, str(error))
            raise

    def act(self, reply: TurnReply, *, has_seen: bool = True) -> None:
        """Stage what a reply asks for, and note what it had been shown."""
        before, first = {**self.settled, **self.staged}, len(self.entries)
        shown = self.results_shown[""] = len(self.args) if has_seen else self.results_shown.get("", 0)
        super().act(reply, has_seen=has_seen)
        staged = {**self.settled, **self.staged}.items()
        written = [place for place, effect in staged if before.get(place) is not effect]
        self.results_shown |= dict.fromkeys(
            [*written, *(entry.file for entry in self.entries[first:])], shown
        )

    def use(self, call: ToolCall, at: str, number: int | None = None) -> None:
        """Take a call's recorded result; one without is left out, and what follows from the reply goes on."""
        staged, before = dict(self.staged), self.numbers.last
        try:
            super().use(call, at, number)
            if self.numbers.last != before:
                self.args[self.first + self.numbers.last] = call.args
        except RecordEnds:
            number = self.numbers.last
            if not self.source.reached_outside(number) or self.first + number in self.args:
                self.not_begun.append(call)
                return
            self.args[self.first + number] = call.args
            self.settled.update(staged)  # the engine had written them before the call began
            self.staged.clear()
