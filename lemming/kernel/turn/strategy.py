"""What a strategy of a turn is: a generator that says what to ask and what to do, and knows nothing else.

It is driven by `turn.loop`: what it yields is done, or was done before and stands in the journal, and
what came of it is sent back. So a turn that was interrupted is taken again and comes to the same end,
whatever its strategy, as long as that depends on nothing but what it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lemming.kernel.base.contract import MemoryUpdate, ToolCall, TurnReply, object_in
from lemming.kernel.base.errors import ContractError, Outcome, OutOfCredits
from lemming.kernel.providers import Message
from lemming.kernel.tools.toolset import turn_tools
from lemming.kernel.turn.dialogue import HIDDEN, tell_results
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.forms.asking import Question, correct_question, narrow_question
from lemming.kernel.turn.forms.found import attach_found, list_found_earlier, offer_found
from lemming.kernel.turn.forms.reply_form import REMEMBER
from lemming.kernel.turn.notices import without_notices
from lemming.kernel.turn.prompt import correction
from lemming.kernel.turn.values import Act, Answer, Ask, Step, Steps

REPLY_CHARS_QUOTED = 4000
MOST_KEPT_ALIKE = 2
"""A model that remembers the same so often in a turn is no longer offered to remember."""


class Called(NamedTuple):
    """What a call that a strategy made came to; `outcome` is one of `lemming.kernel.base.errors.Outcome`."""

    success: bool
    output: str
    outcome: Outcome


class NoMoreReplies(Exception):
    """The turn has asked for as many replies as it may; a strategy lets it through."""


class Turn:
    """A turn as its strategy sees it: what it starts from, and what it has come to.

    `options`: those that the resume gives the strategy; `given`: what it said beforehand that it needs beside
    the prompt. Not to be changed.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.options: Any = None
        self.given: Mapping[str, Any] = {}
        self.replies_left = draft.inputs.max_steps
        self._goes_on = False
        self._found_before = 0
        self._kept: list[MemoryUpdate] = []
        self._said = ""

    @property
    def prompt(self) -> list[Message]:
        """The messages that the turn begins with, those of earlier turns for the same request included."""
        return [*self._draft.inputs.question]

    @property
    def conversation(self) -> list[Message]:
        """The messages up to now, as the latest reply was asked for; empty before the first."""
        return self._draft.conversation or []

    @property
    def max_steps(self) -> int:
        """How many replies may be asked for, corrections not counted."""
        return self._draft.inputs.max_steps

    @property
    def request(self) -> str:
        """The id of the request that the turn is for; empty when it is for its inbox."""
        return self._draft.task.id if self._draft.task and self._draft.task.request else ""

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """What tools gave that no model has been shown: tool, args, success, output."""
        return self._draft.actionable_results

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to do: the request is answered or handed on."""
        return self._draft.is_answered or self._draft.is_handed_on

    @property
    def has_asked(self) -> bool:
        """Whether others were asked, whose answers come in a later turn."""
        return bool(self._draft.asked)

    def ask(
        self, messages: Sequence[Message], model: str = "", schema: dict[str, Any] | None = None
    ) -> Generator[Step, Any, Answer]:
        """Ask a model, and return its answer as it is."""
        answer: Answer = yield Ask(messages, model, schema)
        return answer

    def value(
        self, messages: list[Message], schema: dict[str, Any], model: str = ""
    ) -> Generator[Step, Any, dict[str, Any]]:
        """Ask for a JSON object that satisfies a schema, with corrections where the limits allow.

        The messages are those up to now, to which the answers are added. Raises
        `ContractError` when none does.
        """
        from lemming.kernel.base.json_schema.violations import misfits  # most turns ask for none

        for corrections_left in range(self._draft.inputs.repairs, -1, -1):
            answer = yield from self.ask(messages, model, schema)
            messages.append({"role": "assistant", "content": answer.text[:REPLY_CHARS_QUOTED]})
            try:
                found = object_in(answer.text, [], schema["properties"].keys())
                if wrong := misfits(schema, found):
                    raise ContractError("; ".join(wrong))
            except ContractError as error:
                if not corrections_left:
                    raise
                self._draft.remarks.append(f"asked again: {error}"[:500])
                messages.append(correction(str(error)[:2000]))
            else:
                return found
        raise AssertionError("unreachable: the last correction returns or raises")

    def act(self, reply: TurnReply) -> Generator[Step, Any, None]:
        """Do what a reply says."""
        yield Act(reply)

    def call(self, tool: str, args: dict[str, Any]) -> Generator[Step, Any, Called]:
        """Call a tool by the agent's permissions; what it gave is for the strategy, the model is not told."""
        draft = self._draft
        if tool in turn_tools(draft.inputs.agent):
            raise ValueError(f"{tool} asks another agent: that is for a reply")
        before, used_before = len(draft.results), len(draft.used)
        draft.untold.add(before)
        yield Act(TurnReply(tool_calls=(ToolCall(tool, args),)), has_seen=False)
        used = draft.used[used_before]  # what comes after is what parts of the turn called
        return Called(used["success"], draft.results[before]["output"], used.get("outcome", "failed"))

    def remember(self, key: str, value: Any) -> Generator[Step, Any, None]:
        """Keep a memory, as a reply does."""
        yield Act(TurnReply(memory_updates=(MemoryUpdate(key, value),)), has_seen=False)

    def remark(self, text: str) -> None:
        """Put a remark into the report of the turn."""
        self._draft.remarks.append(text[:500])

    def leave(self, text: str) -> None:
        """Say what is left for the agent's next turn, which it takes whatever else is new."""
        self._draft.left = text

    def reply(self, messages: list[Message]) -> Generator[Step, Any, TurnReply]:
        """Ask for a reply that is the contract, with corrections where the limits allow.

        The messages are those up to now, to which the answers are added. Raises `ContractError` when none is.
        """
        if not self.replies_left:
            raise NoMoreReplies
        self.replies_left -= 1
        self._draft.conversation = messages
        # Not for unshown results alone: a backend's own call wants its result, told or not.
        if self._draft.has_results_to_tell or self._goes_on:
            messages += self._with_found(self.shown(messages))
        problem: ContractError | None = None
        form, schema = self._draft.inputs.form, self._draft.inputs.schema
        question = self._narrow(messages)
        for corrections_left in range(self._draft.inputs.repairs, -1, -1):
            try:
                answer: Answer = yield Ask(question.messages, schema=question.schema)
            except OutOfCredits as error:
                if problem is None:
                    # Nothing was paid for that could be used instead.
                    raise
                # An answer with mistakes is there and paid for: what of it is right is better than nothing.
                return self._salvage(messages, f"; no correction: {error.message}")
            try:
                read = TurnReply() if self._is_silence(answer) else self._draft.read(self._with_text(answer))
            except ContractError as error:
                if not corrections_left:
                    return self._salvage(messages)
                problem = error
                self._draft.remarks.append(f"asked again: {error}"[:500])
                if form:
                    asked = self._narrow(messages)
                    question = correct_question(form, asked, schema, answer.text, error.message[:2000])
                    continue
                said = {"role": "assistant", "content": answer.text[:REPLY_CHARS_QUOTED]}
                messages += [said, correction(str(error)[:2000])]
            else:
                messages.append(said_in(answer, self._draft.inputs.agent.turn.max_tool_calls))
                self._goes_on = read.goes_on and not self._is_kept_again(read)
                self._said = answer.text
                return read
        raise AssertionError("unreachable: the last correction returns or raises")

    def _is_silence(self, answer: Answer) -> bool:
        """Return True if a backend that calls tools says no more, where nobody waits for an answer."""
        form = self._draft.inputs.form
        is_over = (
            form is not None and form.style == "native" and not self._draft.task and self._draft.accepted
        )
        return bool(is_over) and answer.finish == "stop" and not (answer.calls or answer.text.strip())

    def _with_text(self, answer: Answer) -> Answer:
        """Return an answer; an empty one with the text that the model wrote beside what it remembered."""
        form = self._draft.inputs.form
        is_said = self._goes_on and form is not None and form.style == "native" and answer.finish == "stop"
        is_empty = not (answer.calls or answer.text.strip())
        return replace(answer, text=self._said) if is_said and is_empty else answer

    def _is_kept_again(self, reply: TurnReply) -> bool:
        """Note what a reply remembers; return True if it was told not to remember that again.

        A model that remembers the same twice would do so up to the limit of the turn.
        """
        kept = reply.memory_updates
        is_again = bool(kept) and all(self._kept.count(it) >= MOST_KEPT_ALIKE for it in kept)
        self._kept += kept
        return is_again

    @property
    def has_more_to_do(self) -> bool:
        """Whether the model is asked again: for results, or since its reply was not all there is to do."""
        form = self._draft.inputs.form
        is_awaited = form is not None and form.is_answer
        return bool(self.results) or (self._goes_on and (is_awaited or self.replies_left > 0))

    def _with_found(self, messages: list[Message]) -> list[Message]:
        """Return the messages that show results, with the tools that a search among them has found."""
        found, self._found_before = self._draft.found[self._found_before :], len(self._draft.found)
        return attach_found(messages, found) if found else messages

    def _narrow(self, messages: list[Message]) -> Question:
        """Return the question to the model: with tools that were found, without those that give the same."""
        inputs = self._draft.inputs
        is_small = inputs.form is not None and inputs.form.is_small
        used = {it["tool"] for it in self._draft.results} if is_small else ()
        offered = offer_found(messages, inputs.schema, list_found_earlier(inputs), used)
        if inputs.form is None:
            return offered
        waited = inputs.task.begun.results if inputs.task and inputs.dialogue else ()
        results = without_notices([*waited, *self._draft.results])
        schema, most_alike = offered.schema or inputs.schema, 1 if is_small else MOST_KEPT_ALIKE
        dropped = [REMEMBER] if any(self._kept.count(it) >= most_alike for it in self._kept) else []
        narrowed = narrow_question(inputs.form, offered.messages, schema, results, dropped)
        return narrowed if narrowed.schema else Question(narrowed.messages, offered.schema)

    def shown(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that show the model what its tools gave, after those up to now."""
        draft = self._draft
        own = {call["id"] for call in messages[-1].get("calls", ())}
        told = [
            (self._told(place), draft.calls[place])
            for place in range(draft.shown, len(draft.results))
            if place not in draft.untold or draft.calls[place] in own
        ]
        return tell_results(draft.inputs.model, draft.inputs.form, messages, told)

    def _told(self, place: int) -> dict[str, Any]:
        """Return a result as the model is told of it within the turn."""
        result = self._draft.tell(self._draft.results[place])
        if place in self._draft.untold:
            # A backend refuses a conversation in which one of its calls has no result.
            return {**result, **HIDDEN}
        return result

    def _salvage(self, messages: list[Message], why: str = "") -> TurnReply:
        """Read the last answer, which stays as it is, without its wrong parts; raise if nothing remains."""
        answer = self._draft.answers[-1]
        try:
            read = self._draft.read(
                answer, keep="any" if self._draft.accepted or self._draft.misfit else "some"
            )
        except ContractError as error:
            form = self._draft.inputs.form
            if self._goes_on and form and not form.is_answer:
                # What it remembered was whole, and a model may have no more to say.
                self._goes_on = False
                return TurnReply(remarks=(f"left out: {error.message}"[:500],))
            raise ContractError(f"{error.message}{why}", hint=error.hint) from error
        self._goes_on = read.goes_on and not self._is_kept_again(read)
        messages.append(said_in(answer, self._draft.inputs.agent.turn.max_tool_calls))
        return read


Strategy = Callable[[Turn], Steps]


def said_in(answer: Answer, most_calls: int) -> Message:
    """Return the message that tells a model what it has answered: of its calls, those that were made."""
    calls = {"calls": answer.calls[:most_calls]} if answer.calls else {}
    kept = {"kept": answer.kept} if answer.kept is not None else {}
    return {"role": "assistant", "content": answer.text, **calls, **kept}
