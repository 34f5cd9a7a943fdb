"""Recorded form of a turn's replies, and the engine's own actions in it. Pure.

A form is recorded as the turn begins: a replay reads the recorded replies in the same way, regardless of
changes in later versions. Format: `form` of a `turn_started`, docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

from lemming.kernel.agents import Agent
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS, MessageKind
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.inboxes.answer_payload import ANSWER_KEY, needs_answer_key
from lemming.kernel.tools.toolset import FOR_EVERYBODY
from lemming.kernel.turn.reply_schemas import Action, Json, PayloadSchema, closed_object

Style = Literal["text", "fields", "actions", "native"]
"""Forms of a reply. `text`: plain text. `fields`: the fields of one action as a JSON object. `actions`: one
action as JSON. `native`: the backend's own calls, and plain text."""

ANSWER, SEND, REMEMBER, DONE = "answer", "send", "remember", "done"
ENGINE_ACTIONS = (ANSWER, SEND, REMEMBER, DONE)
"""The actions of the engine itself; all others are tools."""

NO_FIELDS: Mapping[str, Any] = {}


class ReplyForm(NamedTuple):
    """Form of the replies of a turn.

    `own`: engine actions on offer. `kind`: entry kind of a plain text and of `send`. `kinds`: kinds the model
    may choose. `to`: addressee if the model has no choice. `readers`: possible addressees, empty for any.
    `requests`: request ids for `answer`. `is_answer`: a plain text answers the turn's request. `fields`: JSON
    Schemas of the fields of an answer, or else of a message, unless a plain text. `renamed`: tools offered
    under another name. `is_small`: the model is a small one.
    """

    style: Style
    own: tuple[str, ...]
    kind: MessageKind
    kinds: tuple[MessageKind, ...] = ()
    to: str = ""
    readers: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    is_answer: bool = False
    fields: Mapping[str, Any] = NO_FIELDS
    renamed: Mapping[str, str] = NO_FIELDS
    takes_schema: bool = False
    is_small: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form as JSON without empty fields."""
        return {key: value for key, value in self._asdict().items() if value}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the form in a record."""
        values = {key: raw[key] for key in cls._fields if key in raw}
        lists = ("own", "kinds", "readers", "requests")
        return cls(**{"own": (), **values, **{key: tuple(values[key]) for key in lists if key in values}})

    def tool_name(self, name: str) -> str:
        """Return the real name of a tool offered as `name`."""
        return self.renamed.get(name, name)


def to_offered_name(tool: str) -> str:
    """Return the name under which a tool is offered, different from the names of engine actions."""
    return f"{tool}_tool" if tool in ENGINE_ACTIONS else tool


MEMORY_READ, MEMORY_WRITE = "memory_read", "memory_write"
TO_ALL = "all"
"""The name for all readers (`lemming.kernel.messages.EVERYBODY`)."""
MOST_READERS = 20
"""Maximum readers listed by name; with more, the model writes a name and unknown names are reported back."""
_KEY: Json = {"type": "string", "pattern": "^[A-Za-z0-9_]{1,40}$"}


class Inexpressible(Exception):
    """No small reply form can express the possible actions of the turn."""


class FormFacts(NamedTuple):
    """Facts of a turn that determine the reply form, besides resume, settings and tools.

    `asker`: agent or person that waits for the turn's answer. `requests`: ids of requests shown in the inbox.
    `readers`: agents that may read the turn's entries, or None if too many to list. `has_memories`: the agent
    has memories. `has_long_memories`: some memories are too long to show. `has_several`: more than one entry
    is new.
    """

    asker: str = ""
    requests: tuple[str, ...] = ()
    readers: tuple[str, ...] | None = ()
    has_memories: bool = False
    has_long_memories: bool = False
    has_several: bool = False


def text_schema(chars: int) -> Json:
    """Return the schema of a text with at most `chars` characters."""
    return {"type": "string", "minLength": 1, "maxLength": chars}


def is_granted(agent: Agent, tool: str) -> bool:
    """Return True if the resume grants a tool by name or by a pattern."""
    permissions = agent.permissions
    return tool in permissions.tools or any(is_match(tool, pattern) for pattern in permissions.tool_patterns)


def is_described(tool: str, agent: Agent, *, needs_memory_read: bool) -> bool:
    """Return True if a prompt describes an allowed tool: a tool for everybody needs a grant.

    `needs_memory_read`: some memories are too long to show, and are read with `memory_read`.
    """
    return tool not in FOR_EVERYBODY or (tool == MEMORY_READ and needs_memory_read) or is_granted(agent, tool)


def list_send_kinds(agent: Agent) -> tuple[MessageKind, ...]:
    """Return the possible kinds of a message: the kinds in the resume, or the first kind if all are allowed."""
    kinds = tuple(kind for kind in agent.turn.kinds if kind != "response")
    return kinds[:1] if set(agent.turn.kinds) == set(MESSAGE_KINDS) else kinds


def list_readers(facts: FormFacts) -> tuple[str, ...]:
    """Return the possible addressees of a message, or an empty tuple for any name."""
    readers = tuple(name for name in facts.readers or () if name != facts.asker)
    return (*readers, TO_ALL) if len(readers) > 1 else readers


def list_engine_actions(
    agent: Agent, facts: FormFacts, payload_schemas: Sequence[PayloadSchema], text: Json
) -> list[Action]:
    """Return the engine's actions for a turn. Raises `Inexpressible`. `text`: schema of a text."""
    actions = []
    if facts.asker:
        fields = _get_payload_fields("response", payload_schemas)
        actions.append(_action(ANSWER, "Answer the question.", fields or {"text": text}))
    elif facts.requests:
        request: Json = {"type": "string", "enum": [*facts.requests]}
        fields = _get_payload_fields("response", payload_schemas, ("request",))
        about = "Answer a request, by its id."
        actions.append(_action(ANSWER, about, {"request": request, **(fields or {"text": text})}))
    # The only entry of a turn is kept for the answer: after a message there would be none.
    if agent.turn.max_entries > bool(facts.asker) and (
        send_action := _send_action(agent, facts, payload_schemas, text)
    ):
        actions.append(send_action)
    if facts.has_memories or is_granted(agent, MEMORY_WRITE):
        actions.insert(0, _action(REMEMBER, "Keep a fact for later.", {"key": _KEY, "value": text}))
    return actions if facts.asker else [*actions, _action(DONE, "End the turn.", {})]


def _send_action(agent: Agent, facts: FormFacts, payload_schemas: Sequence[PayloadSchema], text: Json) -> Action | None:
    """Return the action that sends a message, or None without possible addressee or kind."""
    kinds, readers = list_send_kinds(agent), list_readers(facts)
    if not kinds or (facts.asker and facts.readers is not None and not readers):
        return None
    fields = _get_payload_fields(kinds[0], payload_schemas, ("to", "kind"))
    if any(_get_payload_fields(kind, payload_schemas) != fields for kind in kinds):
        raise Inexpressible
    arguments: Json = {}
    if facts.readers is None:
        arguments["to"] = {"type": "string", "description": "name of an agent"}
    elif len(readers) > 1:
        arguments["to"] = {"type": "string", "enum": [*readers]}
    if len(kinds) > 1:
        arguments["kind"] = {"type": "string", "enum": [*kinds]}
    about = f"Send a message to {readers[0]}." if len(readers) == 1 else "Send a message."
    return _action(SEND, about, {**arguments, **(fields or {"text": text})})


def _get_payload_fields(
    kind: str, payload_schemas: Iterable[PayloadSchema], argument_names: Iterable[str] = ()
) -> Json | None:
    """Return the required fields of an entry kind, or None for a plain text.

    Raises `Inexpressible` if no closed object expresses the fields, if only some entries have them, or if one has the name
    of an argument of the action.
    """
    for payload_schema in payload_schemas:
        if kind in payload_schema.kinds:
            if kind not in payload_schema.only or payload_schema.properties is None:
                raise Inexpressible
            properties = payload_schema.properties
            # Of an answer nested in the payload, the inner fields: the engine adds the nesting.
            inner: Json = properties.get(ANSWER_KEY, {}).get("properties", {}) if [*properties] == [ANSWER_KEY] else {}
            fields = inner if needs_answer_key({"properties": inner}) else properties
            if not fields.keys().isdisjoint(argument_names):
                raise Inexpressible
            return fields
    return None


def _action(name: str, about: str, arguments: Json) -> Action:
    return Action(name, about, closed_object(arguments))
