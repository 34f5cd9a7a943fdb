"""Tools found by a search, and their offer in later prompts. Pure.

The found tools stay with the message that shows the search result, under the key `found`, in every turn of
the conversation. Backends never see the key: the tools are declared like others, and a grammar accepts them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from lemming.kernel.providers import Message
from lemming.kernel.tools.listing import filter_tool_descriptions
from lemming.kernel.tools.toolset import TOOL_SEARCH
from lemming.kernel.turn.forms.form_question import ReplyPrompt
from lemming.kernel.turn.forms.native_names import make_native_names
from lemming.kernel.turn.forms.signatures import (
    Action,
    action_schema,
    drop_actions,
    join_actions,
    list_actions,
    max_actions,
)
from lemming.kernel.turn.reply_schemas import wire_call
from lemming.kernel.turn.tool_results import FOUND_KEY
from lemming.kernel.turn.turn_values import TurnInputs

Json = dict[str, Any]


def attach_found_tools(messages: list[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages with results, with the found tools attached to the last message."""
    if not (messages and tools):
        return messages
    return [*messages[:-1], {**messages[-1], FOUND_KEY: [*tools]}]


def list_found_tools(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tools found in messages or results, each once, in order."""
    by_name = {tool["name"]: tool for message in messages for tool in filter_tool_descriptions(message.get(FOUND_KEY))}
    return [*by_name.values()]


def list_earlier_found_tools(inputs: TurnInputs) -> list[Mapping[str, Any]]:
    """Return tools found in earlier turns whose results or conversation this turn continues."""
    stored_results = inputs.task.begun.results if inputs.task else ()
    if not (stored_results or inputs.state.results or inputs.dialogue):  # as mostly
        return []
    return list_found_tools([*inputs.state.results, *stored_results, *inputs.dialogue])


def map_found_names(declared: Sequence[Mapping[str, Any]], found_tools: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the real names of found tools by their backend names.

    `declared`: tools declared to the backend at the start of the turn; empty for a backend without native
    calls.
    """
    names = dict.fromkeys(tool["name"] for tool in found_tools)
    if not declared:
        return {name: name for name in names}
    return {offered: name for name, offered in _name_found_tools(declared, names).items()}


def offer_found_tools(
    messages: list[Message], schema: Json | None, earlier: Sequence[Mapping[str, Any]] = (), used: Collection[str] = ()
) -> ReplyPrompt:
    """Return the prompt of a conversation with the found tools offered; unchanged without found tools.

    `earlier`: tools found in earlier turns. `used`: tools that a small model has called. A small model would
    call all found tools, so after the first call none is offered. The schema of the result is None if the
    turn's own schema applies.
    """
    found_tools = list_found_tools([{FOUND_KEY: [*earlier]}, *messages] if earlier else messages)
    if not found_tools:
        return ReplyPrompt(messages)
    clean = [
        {key: message[key] for key in message if key != FOUND_KEY} if FOUND_KEY in message else message
        for message in messages
    ]
    if any(tool["name"] in used for tool in found_tools):
        return ReplyPrompt(clean)
    declared = clean[0].get("tools", ())
    if not declared:
        widened = _widen_schema(schema, found_tools) if schema else None
        # A small model would search on and on: right after a search it may only call a found tool, or answer.
        return ReplyPrompt(
            clean, drop_actions(widened, [TOOL_SEARCH]) if widened and FOUND_KEY in messages[-1] else widened
        )
    names = _name_found_tools(declared, [tool["name"] for tool in found_tools])
    new = [_to_declared_tool(tool, names[tool["name"]]) for tool in found_tools if tool["name"] in names]
    return ReplyPrompt([{**clean[0], "tools": [*declared, *new]}, *clean[1:]])


def _name_found_tools(declared: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Return backend names for tools, without collisions with declared tools. Declared tools are omitted."""
    declared_names, used_names = (
        {tool.get("tool", tool["name"]) for tool in declared},
        {tool["name"] for tool in declared},
    )
    backend_names: dict[str, str] = {}
    for name in names:  # one by one: later tools change no earlier name
        if name not in declared_names:
            backend_names |= make_native_names([name], used_names)
            used_names.add(backend_names[name])
    return backend_names


def _to_declared_tool(tool: Mapping[str, Any], name: str) -> Json:
    real_name = tool["name"]
    return {**({} if name == real_name else {"tool": real_name}), **tool, "name": name}


def _widen_schema(schema: Json, found_tools: Sequence[Mapping[str, Any]]) -> Json:
    """Return the schema of a reply that may also call these tools; unchanged if no calls are possible."""
    if actions := list_actions(schema):
        extra = [action_schema(Action(tool["name"], tool["description"], tool["parameters"])) for tool in found_tools]
        return join_actions([*actions, *extra], max_actions(schema))
    if "tool_calls" not in schema.get("properties", ()):
        return schema
    calls = schema["properties"]["tool_calls"]
    extra = [wire_call(tool["name"], tool["parameters"]) for tool in found_tools]
    widened = {**calls, "items": {"anyOf": [*calls["items"].get("anyOf", ()), *extra]}}
    return {**schema, "properties": {**schema["properties"], "tool_calls": widened}}
