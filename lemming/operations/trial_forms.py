"""Ways to request actions from a model in a trial, each with its result: works, failed, or impossible.

A way never can work if the server refuses a required part, or if the entry's own `extra` sends a schema with
the tools: no reply could then contain a call. If the server accepts everything and the model replies
otherwise, the way did not work, and a larger model may succeed. The prompts are four kinds of first turns, built
and parsed as for an agent's turn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import TurnReply, parse_reply
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS, MessageKind
from lemming.kernel.base.errors import ContractError, ProviderError, RequestRejected
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.inboxes.inbox import NO_INBOX, Inbox
from lemming.kernel.inboxes.turn_agenda import Task
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, require_usable_finish
from lemming.kernel.tick.model_backends import Backends
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.turn.forms.form_choice import FormChoice, ModelFeatures, choose_form, make_first_messages
from lemming.kernel.turn.forms.form_user_message import describe_user_message
from lemming.kernel.turn.forms.reply_form import FormFacts
from lemming.kernel.turn.forms.reply_reader import parse_form_reply
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.prompt_prefix import describe_native_tools
from lemming.kernel.turn.reply_schemas import PayloadSchema
from lemming.kernel.turn.turn_values import Answer

Verdict = Literal["yes", "other", "no", "never", "-"]
"""`other`: a valid reply that does something else than the question is for. `-`: not asked, as the way never can."""

VERDICT_LABELS: Mapping[Verdict, str] = {"yes": "yes", "other": "did not", "no": "invalid", "never": "never", "-": "-"}
_SCHEMA_FIELDS = ("response_format", "text", "output_config", "format", "grammar", "json_schema",
                  "guided_json", "structured_outputs")  # fmt: skip
"""Fields of requests by which servers hold a whole reply to a schema."""


class Way(NamedTuple):
    """A way to request actions. `needs`: the required part of a request."""

    name: str
    takes_schema: bool
    calls_tools: bool
    needs: str = ""


ACTIONS = Way("actions under a schema", True, False, "json_schema")
NATIVE = Way("native tools, no schema", True, True, "tools")
PLAIN = Way("neither of the two", False, False)


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

    def parse(self, reply: Reply) -> TurnReply:
        """Parse a model reply. Raises: ContractError, or the provider's error."""
        require_usable_finish(reply.finish, reply.text)
        own_names = self.choice.form.own
        tools = [action.name for action in self.choice.actions if action.name not in own_names]
        native = {tool["name"]: tool.get("tool", tool["name"]) for tool in self.messages[0].get("tools", ())}
        parse = partial(parse_reply, kinds=MESSAGE_KINDS, max_calls=None)
        return parse_form_reply(self.choice.form, Answer(reply.text, "", calls=reply.calls), tools, native, parse)


def _responses(reply: TurnReply) -> list[dict[str, Any]]:
    return [entry.payload for entry in reply.outbox_entries if entry.kind == "response"]


def _has_answer(reply: TurnReply) -> bool:
    return any(payload.get("text") for payload in _responses(reply))


def _has_filled_ticket(reply: TurnReply) -> bool:
    return any(
        payload.get("category") in CATEGORIES
        and isinstance(payload.get("is_urgent"), bool)
        and isinstance(payload.get("summary"), str)
        for payload in _responses(reply)
    )


def _has_word_count_call(reply: TurnReply) -> bool:
    args = [call.args for call in reply.tool_calls if call.tool == WordCount.name]
    return any(isinstance(values, dict) and isinstance(values.get("text"), str) for values in args)


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
    facts = FormFacts(asker=PERSON) if prompt.is_request else FormFacts(readers=READERS)
    choice = choose_form(agent, abilities, max_output_tokens, facts, prompt.forms, prompt.tools)
    assert choice is not None, "every trial prompt fits a small form"
    messages = make_first_messages(agent, choice)
    if choice.form.style == "native" and choice.actions:
        messages[0]["tools"] = describe_native_tools(choice.actions, choice.form)
    kind: MessageKind = "request" if prompt.is_request else "message"
    entry = OutboxEntry(id="0" * 12, tick=0, agent=PERSON, kind=kind, payload={"text": prompt.text})  # 12 hex digits
    task = Task(entry, OpenRequest(request=entry.identity), (), (), ReadMark()) if prompt.is_request else None
    inbox = NO_INBOX if prompt.is_request else Inbox((entry,), (), (), 0, ReadMark())
    user_message = describe_user_message(PromptInput(agent=agent, tick=1, inbox=inbox, task=task))
    return TrialRequest([*messages, {"role": "user", "content": "\n".join(user_message)}], choice)


@dataclass(frozen=True)
class WayResult:
    """Result of a way: a verdict for each prompt, with a remark for each verdict other than "yes"."""

    way: str
    verdicts: dict[str, Verdict]
    remarks: dict[str, str] = field(default_factory=dict)
    line: dict[str, Any] = field(default_factory=dict)

    @property
    def is_valid(self) -> bool:
        """True if every reply was valid. A native call lost in the text does not count."""
        return all(
            verdict == "yes" or (verdict == "other" and self.way != NATIVE.name) for verdict in self.verdicts.values()
        )

    @property
    def is_complete(self) -> bool:
        """True if every reply fulfilled the prompt."""
        return all(verdict == "yes" for verdict in self.verdicts.values())


@dataclass
class WayTrial:
    """Trial of the ways with an entry's model; equal prompts are sent once. `prompt`: the entry's prompt setting."""

    backends: Backends
    entry: ModelEntry
    prompt: str
    replies: dict[bytes, tuple[Request, Reply]] = field(default_factory=dict)

    @cached_property
    def _has_json(self) -> bool:
        """True if the provider supports the option `json`."""
        return "json" in inspect.signature(type(self.backends.make_provider(self.entry))).parameters

    @property
    def _refused_parts(self) -> Collection[str]:
        return {*self.backends.server_profile(self.entry).rejected_parts(self.entry.model)}

    def try_way(self, way: Way) -> WayResult:
        """Try a way and return the result. Raises: the error of a server without any usable answer."""
        entry_keys = self._build_entry_keys(way)
        entry = replace(self.entry, **entry_keys)
        provider = self.backends.make_provider(entry)
        if reason := self._find_obstacle(way, entry, provider):
            return _make_never_result(way, reason, entry_keys)
        verdicts: dict[str, Verdict] = {}
        remarks: dict[str, str] = {}
        for prompt in TRIAL_PROMPTS:
            abilities = ModelFeatures(way.takes_schema and provider.takes_schema, way.calls_tools, self.prompt)
            trial_request = build_prompt(prompt, abilities, entry.max_output_tokens)
            try:
                reply = self._get_reply(entry, trial_request)
            except RequestRejected as error:
                if prompt is TRIAL_PROMPTS[0]:  # the first prompt needs only a text
                    raise
                return _make_never_result(way, f"the server refuses it: {error.message}", entry_keys, verdicts)
            if reason := self._find_refusal(way, reply):
                return _make_never_result(way, reason, entry_keys, verdicts)
            verdicts[prompt.kind], remark = _rate_reply(prompt, trial_request, reply, natively=way.calls_tools)
            if remark:
                remarks[prompt.kind] = remark
        return WayResult(way.name, verdicts, remarks, entry_keys)

    def _build_entry_keys(self, way: Way) -> dict[str, Any]:
        entry_keys: dict[str, Any] = {"tools": "native" if way.calls_tools else "contract"}
        options = {key: value for key, value in self.entry.options.items() if key != "json"}
        if way.calls_tools or not self._has_json:
            return entry_keys
        if not way.takes_schema:
            options["json"] = "text"
        elif not self.backends.make_provider(replace(self.entry, options=options)).takes_schema:
            options["json"] = "schema"
        return entry_keys if options == self.entry.options else {**entry_keys, "options": options}

    def _find_obstacle(self, way: Way, entry: ModelEntry, provider: LLMProvider) -> str:
        """Return the reason this entry cannot use a way, or an empty string."""
        if way.calls_tools and not provider.takes_tools:
            return f"{entry.provider} does not accept tools"
        if way is ACTIONS and not provider.takes_schema:
            return f"{entry.provider} does not accept a schema"
        is_left_out = "json_schema" in self._refused_parts
        if not way.takes_schema and provider.takes_schema and not self._has_json and not is_left_out:
            return f"no option of {entry.provider} leaves the schema out"
        extra = entry.options.get("extra") or {}
        if way.calls_tools and (conflicting := [name for name in _SCHEMA_FIELDS if extra.get(name) is not None]):
            return f"options.extra sends {conflicting[0]} with the tools; under a schema the model cannot call tools"
        return ""

    def _find_refusal(self, way: Way, reply: Reply) -> str:
        """Return the server's refusal of a required part, or an empty string."""
        refusals = {error.refused: error.message for error in reply.earlier if isinstance(error, RequestRejected)}
        if way.needs and (way.needs in refusals or way.needs in self._refused_parts):
            part = "tools" if way is NATIVE else "schema"
            return f"the server does not accept {part}: {refusals.get(way.needs, 'it rejected it before')}"
        return ""

    def _get_reply(self, entry: ModelEntry, trial_request: TrialRequest) -> Reply:
        key = dump_compact([trial_request.messages, trial_request.choice.schema])
        if key not in self.replies:
            request = Request(
                model_name=entry.model,
                messages=trial_request.messages,
                temperature=entry.temperature,
                schema=trial_request.choice.schema,
                max_output_tokens=entry.max_output_tokens,
                deadline_s=entry.deadline_s,
                agent=TESTER,
            )
            self.replies[key] = request, self.backends.complete_once(entry, request)
        return self.replies[key][1]


def _rate_reply(
    prompt: TrialPrompt, trial_request: TrialRequest, reply: Reply, *, natively: bool
) -> tuple[Verdict, str]:
    """Return the verdict on a reply, with a remark for any verdict other than "yes"."""
    excerpt = " ".join(reply.text.split())[:160]
    try:
        turn_reply = trial_request.parse(reply)
    except (ContractError, ProviderError) as error:
        return "no", f"{error.message}: {excerpt}"
    if not prompt.is_fulfilled(turn_reply):
        return "other", "valid, and does something else" + (f": {excerpt}" if excerpt else "")
    if natively and trial_request.choice.form.style == "native" and not reply.calls:
        return "other", f"the call is written as text: {excerpt}"
    return "yes", ""


def _make_never_result(
    way: Way, reason: str, entry_keys: dict[str, Any], verdicts: dict[str, Verdict] | None = None
) -> WayResult:
    """Return the result of a way without a chance. Earlier verdicts stay; further prompts were not sent."""
    earlier_verdicts = verdicts or {}
    open_kinds = [question.kind for question in TRIAL_PROMPTS if question.kind not in earlier_verdicts]
    all_verdicts: dict[str, Verdict] = {**earlier_verdicts, **dict.fromkeys(open_kinds, "-"), open_kinds[0]: "never"}
    return WayResult(way.name, all_verdicts, {open_kinds[0]: reason}, entry_keys)


def choose_way(results: list[WayResult], current: str) -> WayResult | None:
    """Choose the best way for an entry: complete, then valid results, else None. The current way wins a draw."""
    valid_results = [result for result in results if result.is_valid]
    return min(valid_results, key=lambda result: (not result.is_complete, result.way != current), default=None)
