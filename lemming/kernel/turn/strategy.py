"""Strategies of a turn: generators that yield the next model call or reply to carry out.

`turn.turn_loop` runs a strategy: each step is carried out, or read from the journal, and the result is sent
back. So an interrupted turn runs again to the same end, provided that the strategy depends only on these
results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base.aliases import accept_old_names, old_names_of
from lemming.kernel.base.contract import MemoryUpdate, ToolCall, TurnReply
from lemming.kernel.base.errors import ContractError, Outcome, OutOfCredits
from lemming.kernel.base.reply_json import extract_object
from lemming.kernel.providers import Message
from lemming.kernel.tools.toolset import turn_tool_names
from lemming.kernel.turn.dialogue import HIDDEN_RESULT, render_results
from lemming.kernel.turn.forms.form_question import (
    ReplyPrompt,
    attach_found_tools,
    correct_prompt,
    list_earlier_found_tools,
    narrow_prompt,
    offer_found_tools,
)
from lemming.kernel.turn.forms.reply_form import REMEMBER
from lemming.kernel.turn.tool_results import without_notices
from lemming.kernel.turn.turn_prompt import correction_message, urgent_message
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Act, Answer, Ask, Step, Steps

REPLY_CHARS_QUOTED = 4000
MAX_EQUAL_MEMORIES = 2
"""A model that remembers the same so often in a turn is no longer offered to remember."""


class CallResult(NamedTuple):
    """Result of a strategy's tool call. `outcome` is a `lemming.kernel.base.errors.Outcome`."""

    success: bool
    output: str
    outcome: Outcome


class NoMoreReplies(Exception):
    """The turn has reached the maximum number of replies; a strategy lets this exception through."""


@accept_old_names
class Turn:
    """A turn from the strategy's point of view: inputs and current results. Read-only.

    `options`: the strategy's options from the resume. `snapshot`: the inputs that the strategy declared
    beforehand.
    """

    def __init__(self, state: TurnState, plugins: tuple[str, ...] | None = None) -> None:
        self._state, self.plugins = state, plugins
        self.conversation: list[Message] = []
        """Messages at the latest model call for a reply; empty before the first call."""
        self.note = ""
        """Description of the work left for the agent's next turn."""
        self.told_entries: list[str] = []
        """Identities of urgent entries that a model has seen."""
        self.options: Any = None
        self.snapshot: Mapping[str, Any] = {}
        self.replies_left = state.inputs.max_steps
        self._has_continuation = False
        self._found_count = 0
        self._stored_memories: list[MemoryUpdate] = []
        self._last_text = ""

    @property
    def prompt(self) -> list[Message]:
        """First messages of the turn, including messages of earlier turns for the same request."""
        return [*self._state.inputs.first_messages]

    @property
    def max_steps(self) -> int:
        """Maximum number of replies, without corrections."""
        return self._state.inputs.max_steps

    @property
    def request(self) -> str:
        """Id of the turn's request, or an empty string for an inbox turn."""
        current_request = self._state.inputs.current_request
        return current_request.reference if current_request and current_request.request else ""

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """Tool results that no model has seen: tool, args, success, output."""
        return self._state.results.actionable

    @property
    def is_finished(self) -> bool:
        """True if nothing is left to do: the request is answered or handed off."""
        return self._state.is_answered or self._state.is_handed_off

    @property
    def has_asked(self) -> bool:
        """True if the turn sent requests with answers in a later turn."""
        return bool(self._state.pending_indexes)

    def ask(
        self, messages: Sequence[Message], model: str = "", schema: dict[str, Any] | None = None
    ) -> Generator[Step, Any, Answer]:
        """Call a model and return the raw answer."""
        answer: Answer = yield Ask(messages, model, schema)
        return answer

    def ask_json(
        self, messages: list[Message], schema: dict[str, Any], model: str = ""
    ) -> Generator[Step, Any, dict[str, Any]]:
        """Ask for a JSON object that satisfies a schema, with corrections within the limits.

        `messages`: the messages up to now; answers are appended. Raises `ContractError` if no answer
        satisfies the schema.
        """
        from lemming.kernel.base.json_schema.schema_violations import describe_violations  # most turns ask for none

        for corrections_left in range(self._state.inputs.repairs, -1, -1):
            answer = yield from self.ask(messages, model, schema)
            messages.append({"role": "assistant", "content": answer.text[:REPLY_CHARS_QUOTED]})
            try:
                value = extract_object(answer.text, [], schema["properties"].keys())
                if violations := describe_violations(schema, value):
                    raise ContractError("; ".join(violations))
            except ContractError as error:
                if not corrections_left or answer.acted:
                    raise
                self._state.remark(f"asked again: {error}"[:500])
                messages.append(correction_message(str(error)[:2000]))
            else:
                return value
        raise AssertionError("unreachable: the last correction returns or raises")

    def act(self, reply: TurnReply) -> Generator[Step, Any, None]:
        """Carry out a reply."""
        yield Act(reply)

    def call(self, tool: str, args: dict[str, Any]) -> Generator[Step, Any, CallResult]:
        """Call a tool with the agent's permissions. Only the strategy gets the result, not the model."""
        state = self._state
        if tool in turn_tool_names(state.inputs.agent):
            raise ValueError(f"{tool} asks another agent and must be called from a reply")
        index, used_index = len(state.results.items), len(state.results.uses)
        state.results.hide(index)
        yield Act(TurnReply(tool_calls=(ToolCall(tool, args),)), has_seen=False)
        tool_use = state.results.uses[used_index]  # further results are of calls by other parts of the turn
        return CallResult(tool_use["success"], state.results.items[index]["output"], tool_use.get("outcome", "failed"))

    def remember(self, key: str, value: Any) -> Generator[Step, Any, None]:
        """Store a memory, as a reply does."""
        yield Act(TurnReply(memory_updates=(MemoryUpdate(key, value),)), has_seen=False)

    def remark(self, text: str) -> None:
        """Put a remark into the report of the turn."""
        self._state.remark(text[:500])

    def leave_note(self, text: str) -> None:
        """Describe the work left for the agent's next turn, which then happens in any case."""
        self.note = text

    def ask_reply(self, messages: list[Message]) -> Generator[Step, Any, TurnReply]:
        """Ask for a reply in the contract's format, with corrections within the limits.

        `messages`: the messages up to now; answers are appended. Raises `ContractError` if no reply is valid.
        """
        if not self.replies_left:
            raise NoMoreReplies
        self.replies_left -= 1
        self.conversation = messages
        # Not only for unshown results: a provider requires a result for each of its calls.
        if self._state.results.has_unshown or self._has_continuation:
            found_tools = self._state.results.found_tools
            messages += attach_found_tools(self.append_results(messages), found_tools[self._found_count :])
            self._found_count = len(found_tools)
        urgent = self._append_urgent(messages) if self._state.answers else ()
        problem: ContractError | None = None
        form, schema = self._state.inputs.form, self._state.inputs.schema
        prompt = self._narrow_prompt(messages)
        for corrections_left in range(self._state.inputs.repairs, -1, -1):
            try:
                answer: Answer = yield Ask(prompt.messages, schema=prompt.schema)
            except OutOfCredits as error:
                if problem is None:
                    # Nothing was paid for that could be used instead.
                    raise
                # An answer with mistakes is paid for: its correct part is better than nothing.
                return self._salvage_reply(messages, f"; no correction: {error.message}")
            if urgent:  # no earlier: without an answer they are unread
                self.told_entries += urgent
                urgent = ()
            try:
                reply = self._read_reply(answer)
            except ContractError as error:
                if not corrections_left or answer.acted:
                    return self._salvage_reply(messages)
                problem = error
                self._state.remark(f"asked again: {error}"[:500])
                if form:
                    base_prompt = self._narrow_prompt(messages)
                    prompt = correct_prompt(form, base_prompt, schema, answer.text, error.message[:2000])
                    continue
                answer_message = {"role": "assistant", "content": answer.text[:REPLY_CHARS_QUOTED]}
                messages += [answer_message, correction_message(str(error)[:2000])]
            else:
                messages.append(to_assistant_message(answer, self._state.inputs.agent.turn.max_tool_calls))
                self._has_continuation = reply.goes_on and not self._repeats_memories(reply)
                self._last_text = answer.text
                return reply
        raise AssertionError("unreachable: the last correction returns or raises")

    def _append_urgent(self, messages: list[Message]) -> Collection[str]:
        """Append what persons tell the agent while it works, and return the identities of the entries."""
        state = self._state
        if state.inputs.model.prompt == "values":  # a program reads the values of its turn, and no messages
            return ()
        lines = state.source.take_urgent(state.call_count, state.trust_label)
        if lines:
            messages.append(urgent_message(lines.values(), messages, is_contract=state.inputs.form is None))
            state.remark(f"told while it worked: {', '.join(lines)}"[:500])
        return lines.keys()

    def ask_harness(self, messages: list[Message]) -> Generator[Step, Any, Answer]:
        """Ask for an answer that is not read as a reply. After a wait, the conversation goes on.

        `messages`: the messages up to now; new results and the answer are appended.
        """
        self.conversation = messages
        messages += self.append_new_results(messages)
        if self._state.answers:
            self._append_urgent(messages)
        answer: Answer = yield Ask(messages)
        messages.append(to_assistant_message(answer, self._state.inputs.agent.turn.max_tool_calls))
        return answer

    def _read_reply(self, answer: Answer) -> TurnReply:
        """Return the reply in an answer. Raises `ContractError` for an invalid reply."""
        form = self._state.inputs.form
        is_native_stop = form is not None and form.style == "native" and answer.finish == "stop"
        if is_native_stop and not (answer.calls or answer.text.strip()):  # the backend says nothing more
            if not self._state.inputs.current_request and self._state.accepted_count:  # nobody waits for an answer
                return TurnReply()
            if self._has_continuation:  # the text came with the memory calls before
                answer = replace(answer, text=self._last_text)
        return self._state.read_reply(answer)

    def _repeats_memories(self, reply: TurnReply) -> bool:
        """Record the memories of a reply; return True if the model stored the same memories too often.

        A model that stores a memory twice would continue up to the turn's limit.
        """
        updates = reply.memory_updates
        is_repeated = bool(updates) and all(
            self._stored_memories.count(update) >= MAX_EQUAL_MEMORIES for update in updates
        )
        self._stored_memories += updates
        return is_repeated

    @property
    def has_more_to_do(self) -> bool:
        """True if another model call follows: for results, or because the reply was only a first part."""
        form = self._state.inputs.form
        is_awaited = form is not None and form.is_answer
        return bool(self.results) or (self._has_continuation and (is_awaited or self.replies_left > 0))

    def _narrow_prompt(self, messages: list[Message]) -> ReplyPrompt:
        """Return the prompt with found tools added and repeating tools removed."""
        inputs = self._state.inputs
        is_small = inputs.form is not None and inputs.form.is_small
        used_tools = {item["tool"] for item in self._state.results.items} if is_small else ()
        offered = offer_found_tools(messages, inputs.schema, list_earlier_found_tools(inputs), used_tools)
        if inputs.form is None:
            return offered
        stored_results = inputs.current_request.begun.results if inputs.current_request and inputs.dialogue else ()
        results, memories = without_notices([*stored_results, *self._state.results.items]), self._stored_memories
        if not (results or memories):
            return offered
        max_equal = 1 if is_small else MAX_EQUAL_MEMORIES
        dropped = [REMEMBER] if any(memories.count(item) >= max_equal for item in memories) else []
        return narrow_prompt(inputs.form, offered, inputs.schema, results, dropped)

    def append_new_results(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with results that the model has not seen, or an empty list without any."""
        return self.append_results(messages) if self._state.results.has_unshown else []

    def append_results(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with new tool results, after the messages up to now."""
        state = self._state
        own_ids = {call["id"] for call in messages[-1].get("calls", ())}
        rendered = []
        for index in range(state.results.shown_count, len(state.results.items)):
            is_hidden, call_id = index in state.results.hidden, state.results.call_ids[index]
            if is_hidden and call_id not in own_ids:
                continue
            result = state.render_result(state.results.items[index])
            # A provider refuses a conversation in which one of its calls has no result.
            rendered.append(({**result, **HIDDEN_RESULT} if is_hidden else result, call_id))
        return render_results(state.inputs.model, state.inputs.form, messages, rendered)

    def _salvage_reply(self, messages: list[Message], suffix: str = "") -> TurnReply:
        """Return the valid parts of the last answer as a reply. Raises `ContractError` if nothing is valid."""
        answer = self._state.answers[-1]
        try:
            reply = self._state.read_reply(
                answer, keep="any" if self._state.accepted_count or self._state.answer_violation else "some"
            )
        except ContractError as error:
            form = self._state.inputs.form
            if self._has_continuation and form and not form.is_answer:
                # The memories were complete, and the model may have nothing else to say.
                self._has_continuation = False
                return TurnReply(remarks=(f"left out: {error.message}"[:500],))
            raise ContractError(f"{error.message}{suffix}", hint=error.hint) from error
        self._has_continuation = reply.goes_on and not self._repeats_memories(reply)
        messages.append(to_assistant_message(answer, self._state.inputs.agent.turn.max_tool_calls))
        return reply


Strategy = Callable[[Turn], Steps]


def to_assistant_message(answer: Answer, max_calls: int) -> Message:
    """Return an answer as an assistant message, with only the calls that were made."""
    calls = {"calls": answer.calls[:max_calls]} if answer.calls else {}
    backend_values = {"kept": answer.kept} if answer.kept is not None else {}
    return {"role": "assistant", "content": answer.text, **calls, **backend_values}


if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)


def react(turn: Turn) -> Steps:
    """Ask, carry out the reply, and ask again with the results, up to the turn's limit."""
    messages = turn.prompt
    while True:
        reply = yield from turn.ask_reply(messages)
        yield Act(reply)
        if not turn.has_more_to_do or turn.is_finished:
            return "done"
        if turn.has_asked:
            return "waits"
