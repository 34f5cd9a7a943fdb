"""First turns of a trial: prompts built and parsed as for a turn of an agent, and verdicts on the replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import TurnReply, parse_reply
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS, MessageKind
from lemming.kernel.base.errors import ContractError, ProviderError
from lemming.kernel.inboxes.inbox import NO_INBOX, Inbox
from lemming.kernel.inboxes.turn_agenda import Task
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Message, Reply, require_usable_finish
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.turn.forms.form_choice import FormChoice, ModelFeatures, choose_form, make_first_messages
from lemming.kernel.turn.forms.form_user_message import describe_user_message
from lemming.kernel.turn.forms.reply_form import TurnFacts
from lemming.kernel.turn.forms.reply_reader import parse_form_reply
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.prompt_prefix import describe_native_tools
from lemming.kernel.turn.reply_schemas import PayloadSchema
from lemming.kernel.turn.turn_values import Answer

Verdict = Literal["yes", "other", "no"]
"""`other`: a valid reply that does something else than the question is for."""
VERDICT_LABELS: Mapping[Verdict, str] = {"yes": "yes", "other": "did not", "no": "invalid"}

PERSON, TESTER = "human", "tester"
READERS = ("billing", "sales", "tech")
CATEGORIES = ("billing", "fault", "sales")
TICKET: dict[str, Any] = {
    "category": {"type": "string", "enum": [*CATEGORIES]},
    "is_urgent": {"type": "boolean"},
    "summary": {"type": "string", "minLength": 1, "maxLength": 200},
}


class WordCount(Tool):
    """The tool offered in a trial; the tool is never run."""

    name, description = "word_count", "Count the words of a text."
    parameters = {  # noqa: RUF012 - as tools are written
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Count the words."""
        return ToolResult(True, str(len(str(kwargs.get("text", "")).split())))


class TrialPrompt(NamedTuple):
    """A first turn: instructions, user text, check of the reply. `is_request`: the text needs an answer."""

    kind: str
    instructions: str
    text: str
    is_fulfilled: Callable[[TurnReply], bool]
    is_request: bool = True
    forms: Sequence[PayloadSchema] = ()
    tools: Sequence[Tool] = ()


class TrialRequest(NamedTuple):
    """A prompt as sent to the model, with the form of the reply."""

    messages: list[Message]
    choice: FormChoice

    def interpret(self, reply: Reply) -> TurnReply:
        """Parse a model reply. Raises: ContractError, or the provider's error."""
        require_usable_finish(reply.finish, reply.text)
        own_names = self.choice.form.own
        tools = [action.name for action in self.choice.actions if action.name not in own_names]
        native = {tool["name"]: tool.get("tool", tool["name"]) for tool in self.messages[0].get("tools", ())}
        parse = partial(parse_reply, kinds=MESSAGE_KINDS, max_calls=None)
        return parse_form_reply(self.choice.form, Answer(reply.text, "", calls=reply.calls), tools, native, parse)


def _has_answer(reply: TurnReply) -> bool:
    return any(entry.kind == "response" and entry.payload.get("text") for entry in reply.outbox_entries)


def _has_filled_ticket(reply: TurnReply) -> bool:
    payloads = [payload.payload for payload in reply.outbox_entries if payload.kind == "response"]
    return any(
        payload.get("category") in CATEGORIES
        and isinstance(payload.get("is_urgent"), bool)
        and isinstance(payload.get("summary"), str)
        for payload in payloads
    )


def _has_word_count_call(reply: TurnReply) -> bool:
    return any(
        call.tool == WordCount.name and isinstance(call.args, dict) and isinstance(call.args.get("text"), str)
        for call in reply.tool_calls
    )


def _has_forwarded_message(reply: TurnReply) -> bool:
    return any(entry.payload.get("target") in READERS for entry in reply.outbox_entries)


TRIAL_PROMPTS = (
    TrialPrompt(
        "answer",
        "You are the clerk of a lamp shop. Answer in one short sentence.",
        "What is the capital of France?",
        _has_answer,
    ),
    TrialPrompt(
        "form",
        "Fill in the ticket.",
        "I was charged twice for invoice 88. Pay me back today, this is urgent!",
        _has_filled_ticket,
        forms=(PayloadSchema(("response",), ("response",), TICKET),),
    ),
    TrialPrompt(
        "tool",
        "You are a clerk. Use a tool to find out what you do not know. Answer in one short sentence.",
        "How many words are in: the quick brown fox jumps",
        _has_word_count_call,
        tools=(WordCount(),),
    ),
    TrialPrompt(
        "send",
        "You are the front desk. Pass each message on: billing takes invoices and refunds, tech takes "
        "faults, sales takes offers and prices.",
        "The amount on my invoice is wrong.",
        _has_forwarded_message,
        is_request=False,
    ),
)


def build_prompt(prompt: TrialPrompt, abilities: ModelFeatures, max_output_tokens: int) -> TrialRequest:
    """Build a prompt as a turn of an agent would, for a model with the given abilities."""
    agent = Agent(name=TESTER, instructions=prompt.instructions)
    facts = TurnFacts(asker=PERSON) if prompt.is_request else TurnFacts(readers=READERS)
    choice = choose_form(agent, abilities, max_output_tokens, facts, prompt.forms, prompt.tools)
    assert choice is not None, "each of these turns has a small form"
    messages = make_first_messages(agent, choice)
    if choice.form.style == "native" and choice.actions:
        messages[0]["tools"] = describe_native_tools(choice.actions, choice.form)
    user_message = describe_user_message(_make_prompt_input(agent, prompt))
    return TrialRequest([*messages, {"role": "user", "content": "\n".join(user_message)}], choice)


def _make_prompt_input(agent: Agent, prompt: TrialPrompt) -> PromptInput:
    """Return the prompt input of the turn: a request as the task, or a new message in the inbox."""
    kind: MessageKind = "request" if prompt.is_request else "message"
    entry = OutboxEntry(
        id="0" * 12, tick=0, agent=PERSON, kind=kind, payload={"text": prompt.text}
    )  # as in `OutboxEntry.id`: 12 hex digits
    if prompt.is_request:
        task = Task(entry, OpenRequest(request=entry.identity), (), (), ReadMark())
        return PromptInput(agent=agent, tick=1, inbox=NO_INBOX, task=task)
    return PromptInput(agent=agent, tick=1, inbox=Inbox((entry,), (), (), 0, ReadMark()))


def rate_reply(prompt: TrialPrompt, trial_request: TrialRequest, reply: Reply) -> tuple[Verdict, str]:
    """Return the verdict on a reply, with a remark for any verdict other than "yes"."""
    excerpt = " ".join(reply.text.split())[:160]
    try:
        turn_reply = trial_request.interpret(reply)
    except (ContractError, ProviderError) as error:
        return "no", f"{error.message}: {excerpt}"
    if not prompt.is_fulfilled(turn_reply):
        return ("other", f"valid, and does something else: {excerpt}" if excerpt else "valid, and does something else")
    if trial_request.choice.form.style == "native" and not reply.calls:
        return "other", f"the call is written as text: {excerpt}"
    return "yes", ""
