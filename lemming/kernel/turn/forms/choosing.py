"""The choice of a turn's reply form: the simplest that can express what the turn may do. Pure.

Where no form can, such as for an answer by a schema that no closed object stands for, the model is asked for
the whole contract (`lemming.kernel.turn.prompt`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.tools import Tool
from lemming.kernel.tools.listing import describe_tool
from lemming.kernel.tools.toolset import FOR_EVERYBODY
from lemming.kernel.turn.forms.own_actions import (
    MEMORY_READ,
    MEMORY_WRITE,
    Inexpressible,
    TurnFacts,
    is_granted,
    list_own_actions,
    list_readers,
    list_send_kinds,
    text_schema,
)
from lemming.kernel.turn.forms.reply_form import (
    ANSWER,
    DONE,
    NOTHING,
    OWN,
    SEND,
    ReplyForm,
    Style,
    offered_name,
)
from lemming.kernel.turn.forms.signatures import Action, Json, schema_of_actions
from lemming.kernel.turn.reply_schemas import BRIEF_CHARS, BRIEF_ITEMS, Form, bounded, closed

MOST_CHARS = 2000
"""A text under a grammar is no longer: without a bound a small model writes to the token limit."""
MOST_ACTIONS = 8
MOST_ITEMS = 64
CONTRACT_KEYS = re.compile(r"\b(?:outbox_entries|memory_updates|tool_calls|payload)\b")


SMALL_FORMS = ("fit", "brief", "tools")
"""The values of `ModelEntry.prompt` with which a turn is asked for the simplest form of a reply."""


class Abilities(NamedTuple):
    """What a backend can do with what it is asked, and the prompt that it is given.

    `takes_schema`: constrain its reply to a schema. `calls_tools`: call tools by itself.
    `context_tokens`: the longest prompt and answer together.
    """

    takes_schema: bool
    calls_tools: bool
    prompt: str
    context_tokens: int = 128_000


class FormChoice(NamedTuple):
    """A reply form with the actions that the model is told of, and the schema of a reply, if one is sent."""

    form: ReplyForm
    actions: Sequence[Action]
    schema: Json | None


def choose_form(
    agent: Agent,
    can: Abilities,
    max_output_tokens: int,
    facts: TurnFacts,
    forms: Sequence[Form],
    tools: Sequence[Tool],
) -> FormChoice | None:
    """Return the reply form of a turn; None where the model is to be asked for the whole contract.

    Instructions that name keys of the contract were written for it.
    """
    if CONTRACT_KEYS.search(agent.instructions):
        return None
    is_small, takes_schema = can.prompt == "brief", can.takes_schema
    chars = BRIEF_CHARS if is_small else min(MOST_CHARS, 2 * max_output_tokens)
    text = text_schema(chars)
    try:
        own = list_own_actions(agent, facts, forms, text)
    except Inexpressible:
        return None
    listed = [_action_of(tool, is_small=is_small) for tool in tools if _is_listed(tool, agent, facts)]
    style: Style = "native" if can.calls_tools else "actions"
    schema: Json | None = None
    if not listed and _is_one_text(own, facts, is_small=is_small):
        own = own[:1]
        style = "text" if _is_text(own[0]) and not (is_small and takes_schema) else "fields"
        if takes_schema and style == "fields":
            schema = closed(bounded(own[0].properties, chars, BRIEF_ITEMS if is_small else MOST_ITEMS))
    elif can.calls_tools:  # plain text is the answer, and the end
        own = [action for action in own if action.name != DONE and not (facts.asker and _is_text(action))]
    elif takes_schema:
        most = min(MOST_ACTIONS, agent.turn.max_entries) if facts.has_several and not is_small else 1
        schema = schema_of_actions([*listed, *own], most)
    readers, kinds = list_readers(facts), list_send_kinds(agent)
    form = ReplyForm(
        style=style,
        own=tuple(action.name for action in own),
        kind=kinds[0] if kinds else "response",
        kinds=kinds if len(kinds) > 1 else (),
        to=readers[0] if len(readers) == 1 else "",
        readers=readers if len(readers) > 1 else (),
        requests=() if facts.asker else facts.asked,
        is_answer=bool(facts.asker),
        fields=_fields_in(own, facts),
        renamed={offered_name(tool.name): tool.name for tool in tools if tool.name in OWN},
        takes_schema=takes_schema,
        is_small=is_small,
    )
    return FormChoice(form, [*listed, *own], schema)


def _is_one_text(own: Sequence[Action], facts: TurnFacts, *, is_small: bool) -> bool:
    """Return True if a single text, or the fields of a single form, is all that a turn may give.

    Where nobody reads what it writes, and where the model is small, it is not offered to write nothing.
    """
    names = [action.name for action in own]
    if names == [SEND, DONE]:
        return (facts.readers == () or is_small) and own[0].properties.keys().isdisjoint(("to", "kind"))
    return names == [ANSWER] and bool(facts.asker)


def _fields_in(own: Sequence[Action], facts: TurnFacts) -> Mapping[str, Json]:
    """Return the fields of an answer, or else of a message; empty where it is a text."""
    says = next((action for action in own if action.name in (ANSWER, SEND)), None)
    if says is None:
        return NOTHING
    places = ("to", "kind") if says.name == SEND else () if facts.asker else ("request",)
    fields = {name: schema for name, schema in says.properties.items() if name not in places}
    return NOTHING if [*fields] == ["text"] else fields


def _is_text(action: Action) -> bool:
    return action.name in (ANSWER, SEND) and [*action.properties] == ["text"]


def _is_listed(tool: Tool, agent: Agent, facts: TurnFacts) -> bool:
    """Return True if a model is told of a tool: one for everybody only where it is granted."""
    if tool.name == MEMORY_WRITE:
        return False  # `remember` is offered instead
    if tool.name == MEMORY_READ and facts.has_long_memories:
        return True
    return tool.name not in FOR_EVERYBODY or is_granted(agent, tool.name)


def _action_of(tool: Tool, *, is_small: bool) -> Action:
    """Return a tool as an action; a small model copies descriptions of arguments, and gets none."""
    arguments = describe_tool(tool)["parameters"]
    if is_small:
        properties = {name: _undescribed(schema) for name, schema in arguments.get("properties", {}).items()}
        arguments = {**arguments, "properties": properties}
    return Action(offered_name(tool.name), tool.description, arguments)


def _undescribed(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    return {key: value for key, value in schema.items() if key != "description"}
