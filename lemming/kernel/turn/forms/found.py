"""Tools that a search found: how the questions after it offer them. Pure.

What a search found stays with the message that shows its result, under the key `found`, in whichever turn the
conversation goes on. No backend sees the key: its tools are told as the others are, and a grammar takes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from lemming.kernel.providers import Message
from lemming.kernel.tools.listing import sound_tools
from lemming.kernel.tools.toolset import TOOL_SEARCH
from lemming.kernel.turn.forms.asking import Question
from lemming.kernel.turn.forms.native_names import name_natively
from lemming.kernel.turn.forms.signatures import (
    Action,
    drop_actions,
    join_actions,
    list_actions,
    most_actions,
    schema_of_action,
)
from lemming.kernel.turn.reply_schemas import wire_call
from lemming.kernel.turn.results import FOUND
from lemming.kernel.turn.values import TurnInputs

Json = dict[str, Any]


def attach_found(messages: list[Message], found: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages that show results, with the tools that these have found."""
    if not (messages and found):
        return messages
    return [*messages[:-1], {**messages[-1], FOUND: [*found]}]


def list_found(told: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tools that messages, or results, have found: each once, in the order in which they were."""
    by_name = {tool["name"]: tool for it in told for tool in sound_tools(it.get(FOUND))}
    return [*by_name.values()]


def list_found_earlier(inputs: TurnInputs) -> list[Mapping[str, Any]]:
    """Return the tools that earlier turns have found whose results or conversation this one goes on with."""
    waited = inputs.task.begun.results if inputs.task else ()
    if not (waited or inputs.state.results or inputs.dialogue):  # as mostly
        return []
    return list_found([*inputs.state.results, *waited, *inputs.dialogue])


def map_found_names(told: Sequence[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the real names of tools that were found, by those that a backend knows.

    `told`: the tools that the backend was told of as the turn began; empty where it calls none itself.
    """
    names = dict.fromkeys(tool["name"] for tool in found)
    if not told:
        return {name: name for name in names}
    return {offered: name for name, offered in _names_beside(told, names).items()}


def offer_found(
    messages: list[Message],
    schema: Json | None,
    earlier: Sequence[Mapping[str, Any]] = (),
    used: Collection[str] = (),
) -> Question:
    """Return the question of a conversation in which tools were found, offering them; the same without any.

    `earlier`: those that earlier turns have found. `used`: the tools that a small model has called. It would
    call all others too, so once it has called one that was found, none is offered. The question's schema is
    None where the turn's own holds.
    """
    found = list_found([{FOUND: [*earlier]}, *messages] if earlier else messages)
    if not found:
        return Question(messages)
    plain = [{key: it[key] for key in it if key != FOUND} if FOUND in it else it for it in messages]
    if any(tool["name"] in used for tool in found):
        return Question(plain)
    told = plain[0].get("tools", ())
    if not told:
        wide = _widen(schema, found) if schema else None
        # A small model would search on and on: right after a search it calls what was found, or answers.
        return Question(plain, drop_actions(wide, [TOOL_SEARCH]) if wide and FOUND in messages[-1] else wide)
    names = _names_beside(told, [tool["name"] for tool in found])
    new = [_as_told(tool, names[tool["name"]]) for tool in found if tool["name"] in names]
    return Question([{**plain[0], "tools": [*told, *new]}, *plain[1:]])


def _names_beside(told: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Return what a backend is told tools are called, beside those that it knows; these are left out."""
    known, taken = {it.get("tool", it["name"]) for it in told}, {it["name"] for it in told}
    found: dict[str, str] = {}
    for name in names:  # one by one: what is found later changes no name
        if name not in known:
            found |= name_natively([name], taken)
            taken.add(found[name])
    return found


def _as_told(tool: Mapping[str, Any], name: str) -> Json:
    real = tool["name"]
    return {**({} if name == real else {"tool": real}), **tool, "name": name}


def _widen(schema: Json, found: Sequence[Mapping[str, Any]]) -> Json:
    """Return the schema of a reply that may also call these tools; the same if it has no place for calls."""
    if actions := list_actions(schema):
        more = [schema_of_action(Action(it["name"], it["description"], it["parameters"])) for it in found]
        return join_actions([*actions, *more], most_actions(schema))
    if "tool_calls" not in schema.get("properties", ()):
        return schema
    calls = schema["properties"]["tool_calls"]
    more = [wire_call(it["name"], it["parameters"]) for it in found]
    widened = {**calls, "items": {"anyOf": [*calls["items"].get("anyOf", ()), *more]}}
    return {**schema, "properties": {**schema["properties"], "tool_calls": widened}}
