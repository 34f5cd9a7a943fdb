"""The questions of a trial: the first turn of four kinds, put together and read as a turn of an agent is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import TurnReply, parse_reply
from lemming.kernel.base.kinds import MESSAGE_KINDS, MessageKind
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.mail.inbox import NO_INBOX, Inbox
from lemming.kernel.mail.task import Task
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Message, Reply, require_reply
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.turn.forms.choosing import Abilities, FormChoice, choose_form
from lemming.kernel.turn.forms.first_messages import make_first_messages
from lemming.kernel.turn.forms.own_actions import TurnFacts
from lemming.kernel.turn.forms.reading import read_form
from lemming.kernel.turn.forms.situation import describe_situation
from lemming.kernel.turn.opening import describe_native_tools
from lemming.kernel.turn.reply_schemas import Form
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.values import Answer

PERSON, TESTER = "human", "tester"
READERS = ("billing", "sales", "tech")
CATEGORIES = ("billing", "fault", "sales")
TICKET: dict[str, Any] = {
    "category": {"type": "string", "enum": [*CATEGORIES]},
    "is_urgent": {"type": "boolean"},
    "summary": {"type": "string", "minLength": 1, "maxLength": 200},
}


class WordCount(Tool):
    """The tool that a trial offers; nobody runs it."""

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


class TrialQuestion(NamedTuple):
    """One turn: what an agent is told and asked, and whether a reply does what it is for.

    `asks`: the text is a request, which wants an answer; else it is a message.
    """

    kind: str
    instructions: str
    text: str
    does: Callable[[TurnReply], bool]
    asks: bool = True
    forms: Sequence[Form] = ()
    tools: Sequence[Tool] = ()


class SentQuestion(NamedTuple):
    """A question as it is sent, and the form of its reply."""

    messages: list[Message]
    choice: FormChoice

    def read(self, reply: Reply) -> TurnReply:
        """Return the reply that an answer is; raise `ContractError`, or the provider's own error."""
        require_reply(reply.finish, reply.text)
        own = self.choice.form.own
        tools = [action.name for action in self.choice.actions if action.name not in own]
        native = {it["name"]: it.get("tool", it["name"]) for it in self.messages[0].get("tools", ())}
        parse = partial(parse_reply, kinds=MESSAGE_KINDS, max_calls=None)
        return read_form(self.choice.form, Answer(reply.text, "", calls=reply.calls), tools, native, parse)


def _answers(reply: TurnReply) -> bool:
    return any(it.kind == "response" and it.payload.get("text") for it in reply.outbox_entries)


def _fills_ticket(reply: TurnReply) -> bool:
    payloads = [it.payload for it in reply.outbox_entries if it.kind == "response"]
    return any(
        it.get("category") in CATEGORIES
        and isinstance(it.get("is_urgent"), bool)
        and isinstance(it.get("summary"), str)
        for it in payloads
    )


def _counts_words(reply: TurnReply) -> bool:
    return any(
        call.tool == WordCount.name and isinstance(call.args, dict) and isinstance(call.args.get("text"), str)
        for call in reply.tool_calls
    )


def _sends(reply: TurnReply) -> bool:
    return any(it.payload.get("target") in READERS for it in reply.outbox_entries)


QUESTIONS = (
    TrialQuestion(
        "answer",
        "You are the clerk of a lamp shop. Answer in one short sentence.",
        "What is the capital of France?",
        _answers,
    ),
    TrialQuestion(
        "form",
        "Fill in the ticket.",
        "I was charged twice for invoice 88. Pay me back today, this is urgent!",
        _fills_ticket,
        forms=(Form(("response",), ("response",), TICKET),),
    ),
    TrialQuestion(
        "tool",
        "You are a clerk. Use a tool to find out what you do not know. Answer in one short sentence.",
        "How many words are in: the quick brown fox jumps",
        _counts_words,
        tools=(WordCount(),),
    ),
    TrialQuestion(
        "send",
        "You are the front desk. Pass each message on: billing takes invoices and refunds, tech takes "
        "faults, sales takes offers and prices.",
        "The amount on my invoice is wrong.",
        _sends,
        asks=False,
    ),
)


def ask_question(question: TrialQuestion, can: Abilities, max_output_tokens: int) -> SentQuestion:
    """Return a question as a turn of an agent with these abilities of its model asks it."""
    agent = Agent(name=TESTER, instructions=question.instructions)
    facts = TurnFacts(asker=PERSON) if question.asks else TurnFacts(readers=READERS)
    choice = choose_form(agent, can, max_output_tokens, facts, question.forms, question.tools)
    assert choice is not None, "each of these turns has a small form"
    messages = make_first_messages(agent, choice)
    if choice.form.style == "native" and choice.actions:
        messages[0]["tools"] = describe_native_tools(choice.actions, choice.form)
    situation = describe_situation(_seen(agent, question))
    return SentQuestion([*messages, {"role": "user", "content": "\n".join(situation)}], choice)


def _seen(agent: Agent, question: TrialQuestion) -> Seen:
    """Return what the turn sees: a request that it is for, or a message that is new."""
    kind: MessageKind = "request" if question.asks else "message"
    entry = OutboxEntry(
        id="0" * 12, tick=0, agent=PERSON, kind=kind, payload={"text": question.text}
    )  # as in `OutboxEntry.id`: 12 hex digits
    if question.asks:
        task = Task(entry, Begun(request=entry.identity), (), (), ReadMark())
        return Seen(agent=agent, tick=1, inbox=NO_INBOX, task=task)
    return Seen(agent=agent, tick=1, inbox=Inbox((entry,), (), (), 0, ReadMark()))
