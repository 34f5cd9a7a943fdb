"""The prompt form "tools": one action a step, in the format in which small models were taught to call tools.

An action is `{"name": ..., "arguments": {...}}`. Sending a message, keeping a memory and being done are
actions beside the tools, so that such a model has one thing to write, and a grammar can hold it to that.
Format: the chat template of Qwen 2.5, whose tags `<tool_call>` small models leave out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import JsonProblem, compact, parse, to_line
from lemming.kernel.base.quoting import quoted
from lemming.kernel.providers import Message
from lemming.kernel.tools import Tool

SEND, REMEMBER, DONE = "send_message", "memory_write", "done"
STEPS = 8
"""Model calls a turn may make where the resume does not say: an action is one call."""

_TEXT = {"type": "string"}
_END = re.compile(r"<(?=\s*/?\s*tool_(?:response|call))", re.IGNORECASE)
_FENCED = re.compile(r"(?:<tool_call>|```(?:json)?)(.*?)(?:</tool_call>|```|\Z)", re.DOTALL)
_OWN: Sequence[Mapping[str, Any]] = (
    {
        "name": SEND,
        "description": "Send a message to the others. It ends your turn: send it when you know what to say.",
        "parameters": {
            "type": "object",
            "properties": {"text": {**_TEXT, "minLength": 1, "maxLength": 2000}},
            "required": ["text"],
            "additionalProperties": False,
        },
    },
    {
        "name": REMEMBER,
        "description": "Remember a value under a key, for later turns.",
        "parameters": {
            "type": "object",
            "properties": {"key": {**_TEXT, "maxLength": 64}, "value": {**_TEXT, "maxLength": 2000}},
            "required": ["key", "value"],
            "additionalProperties": False,
        },
    },
    {
        "name": DONE,
        "description": "There is nothing more to do.",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
)


def tools_opening(agent: Agent, tools: Iterable[Tool] | None) -> list[Message]:
    """Return what a small model that calls tools is told first: instructions, the actions, examples."""
    listed = "\n".join(
        to_line({"type": "function", "function": one}) for one in actions_of(agent, tools or ())
    )
    system = (
        f"{agent.instructions}\n\n"
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        "Call one function at a time. For each call, return a json object with function name and arguments "
        'and nothing else:\n{"name": <function-name>, "arguments": <args-json-object>}'
    )
    return [{"role": "system", "content": system}, *_examples(agent)]


def actions_of(agent: Agent, tools: Iterable[Tool]) -> list[Mapping[str, Any]]:
    """Return the actions: those of the form itself, and the tools that the resume grants by name.

    Tools that every agent may call are left out: what a small model is told of, it calls.
    """
    granted = [tool for tool in tools if not tool.always_allowed or tool.name in agent.permissions.tools]
    told = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in granted
        if tool.name not in (SEND, REMEMBER, DONE)
    ]
    return [*told, *_OWN]


def action_schema(actions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON Schema of one action."""
    return {"anyOf": [_schema_of(action) for action in actions]}


def _schema_of(action: Mapping[str, Any]) -> dict[str, Any]:
    parameters = action["parameters"]
    if "$defs" in parameters:  # what it refers to would be looked for in the whole schema
        parameters = {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": action["name"]}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def responses(results: Iterable[Mapping[str, Any]]) -> Message:
    """Return the message that shows what the last action came to, within the same turn."""
    # A result must neither end its block nor begin a call of its own.
    lines = [_END.sub("\\\\u003c", quoted(to_line(_response(one)))) for one in results]
    text = "\n".join(f"<tool_response>\n{line}\n</tool_response>" for line in lines)
    return {"role": "user", "content": text}


def _response(result: Mapping[str, Any]) -> dict[str, Any]:
    trust = {"trust": result["trust"]} if "trust" in result else {}
    return {"name": result["tool"], **trust, "content": result["output"]}


def as_reply(text: str, kinds: Sequence[str]) -> str:
    """Return an action as a reply of four keys; any other text as it is.

    >>> as_reply('{"name": "file_read", "arguments": {"path": "x"}}', ["message"])
    '{"tool_calls":[{"tool":"file_read","args":{"path":"x"}}]}'
    >>> as_reply('<tool_call> {"name": "send_message", "arguments": {"text": "hi"}}', ["report"])
    '{"outbox_entries":[{"kind":"report","payload":{"text":"hi"}}]}'
    """
    action = _action_in(text)
    if action is None:
        return text
    name, arguments = action
    if name == DONE:
        return compact({"outbox_entries": []}).decode()
    if name == SEND:
        kind = "message" if "message" in kinds else kinds[0]
        return compact({"outbox_entries": [{"kind": kind, "payload": arguments}]}).decode()
    return compact({"tool_calls": [{"tool": name, "args": arguments}]}).decode()


def _action_in(text: str) -> tuple[str, Any] | None:
    """Return the first action in a text: bare, fenced or in tags; None when there is none."""
    found = _FENCED.search(text)
    for part in (text, found[1] if found else ""):
        try:
            plain = parse(part)
        except JsonProblem:
            continue
        if isinstance(plain, dict) and isinstance(plain.get("name"), str):
            arguments = plain.get("arguments", plain.get("parameters", {}))
            return plain["name"], {} if arguments is None else arguments
    return None


def _examples(agent: Agent) -> list[Message]:
    pairs = (
        (
            {"role": "user", "content": example.input},
            {"role": "assistant", "content": _call_line(SEND, {"text": example.output})},
        )
        for example in agent.examples
    )
    return [message for pair in pairs for message in pair]


def _call_line(name: str, arguments: Mapping[str, Any]) -> str:
    return to_line({"name": name, "arguments": arguments})
