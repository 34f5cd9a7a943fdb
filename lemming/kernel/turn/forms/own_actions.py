"""The actions of the engine itself that one turn may take: answer, send, remember, done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.kinds import MESSAGE_KINDS, MessageKind
from lemming.kernel.base.patterns import is_named
from lemming.kernel.mail.answers import APART, is_apart
from lemming.kernel.turn.forms.reply_form import ANSWER, DONE, REMEMBER, SEND
from lemming.kernel.turn.forms.signatures import Action, Json
from lemming.kernel.turn.reply_schemas import Form, closed

MEMORY_READ, MEMORY_WRITE = "memory_read", "memory_write"
TO_ALL = "all"
"""The name that stands for all readers (`lemming.kernel.messages.EVERYBODY`)."""
MOST_READERS = 20
"""More readers are not listed: the model writes a name, and hears of one that there is not."""
_KEY: Json = {"type": "string", "pattern": "^[A-Za-z0-9_]{1,40}$"}


class Inexpressible(Exception):
    """The turn may do what no small form can express."""


class TurnFacts(NamedTuple):
    """The facts of one turn from which its reply form follows, beside resume, settings and tools.

    `asker`: who waits for the answer of the turn. `asked`: the ids of requests that are shown beside others.
    `readers`: the agents that may read what the turn writes; None: more than are listed. `has_memories`: the
    agent has some. `has_long_memories`: some are too long to be shown. `has_several`: more than one entry is
    new.
    """

    asker: str = ""
    asked: tuple[str, ...] = ()
    readers: tuple[str, ...] | None = ()
    has_memories: bool = False
    has_long_memories: bool = False
    has_several: bool = False


def text_schema(chars: int) -> Json:
    """Return the schema of a text of at most so many characters."""
    return {"type": "string", "minLength": 1, "maxLength": chars}


def is_granted(agent: Agent, tool: str) -> bool:
    """Return True if the resume grants a tool by its name or by a pattern."""
    permissions = agent.permissions
    return tool in permissions.tools or any(is_named(tool, it) for it in permissions.tool_patterns)


def list_send_kinds(agent: Agent) -> tuple[MessageKind, ...]:
    """Return the kinds of entries that a message may have: those that the resume names, else the first."""
    kinds = tuple(kind for kind in agent.turn.kinds if kind != "response")
    return kinds[:1] if set(agent.turn.kinds) == set(MESSAGE_KINDS) else kinds


def list_readers(facts: TurnFacts) -> tuple[str, ...]:
    """Return the names that a message may be addressed to; empty where any name is taken."""
    readers = tuple(name for name in facts.readers or () if name != facts.asker)
    return (*readers, TO_ALL) if len(readers) > 1 else readers


def list_own_actions(agent: Agent, facts: TurnFacts, forms: Sequence[Form], text: Json) -> list[Action]:
    """Return the engine's actions that a turn may take; raise `Inexpressible`.

    `text`: the schema of a text.
    """
    actions = []
    if facts.asker:
        fields = _fields_of("response", forms)
        actions.append(_action(ANSWER, "Answer the question.", fields or {"text": text}))
    elif facts.asked:
        request: Json = {"type": "string", "enum": [*facts.asked]}
        fields = _fields_beside("response", forms, ("request",))
        about = "Answer a request, by its id."
        actions.append(_action(ANSWER, about, {"request": request, **(fields or {"text": text})}))
    # The only entry of a turn is kept for the answer: after a message there would be none.
    if agent.turn.max_entries > bool(facts.asker) and (sends := _send(agent, facts, forms, text)):
        actions.append(sends)
    if facts.has_memories or is_granted(agent, MEMORY_WRITE):
        actions.insert(0, _action(REMEMBER, "Keep a fact for later.", {"key": _KEY, "value": text}))
    return actions if facts.asker else [*actions, _action(DONE, "End the turn.", {})]


def _send(agent: Agent, facts: TurnFacts, forms: Sequence[Form], text: Json) -> Action | None:
    """Return the action that sends a message; None where there is nobody to send one to, or no kind of it."""
    kinds, readers = list_send_kinds(agent), list_readers(facts)
    if not kinds or (facts.asker and facts.readers is not None and not readers):
        return None
    fields = _fields_beside(kinds[0], forms, ("to", "kind"))
    if any(_fields_of(kind, forms) != fields for kind in kinds):
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


def _fields_of(kind: str, forms: Iterable[Form]) -> Json | None:
    """Return the fields that an entry of a kind has to have; None where a text will do.

    Raises `Inexpressible` where no closed object stands for them, or where only some entries have them.
    """
    for form in forms:
        if kind in form.kinds:
            if kind not in form.only or form.properties is None:
                raise Inexpressible
            return _unwrap(form.properties)
    return None


def _fields_beside(kind: str, forms: Iterable[Form], own: Iterable[str]) -> Json | None:
    """Return the fields of a form; raise `Inexpressible` where one is called as an argument of its action."""
    fields = _fields_of(kind, forms)
    if fields and not fields.keys().isdisjoint(own):
        raise Inexpressible
    return fields


def _unwrap(properties: Json) -> Json:
    """Return the fields of a form that stands apart in its payload; the engine puts them there."""
    inner: Json = properties.get(APART, {}).get("properties", {}) if [*properties] == [APART] else {}
    return inner if is_apart({"properties": inner}) else properties


def _action(name: str, about: str, arguments: Json) -> Action:
    return Action(name, about, closed(arguments))
