"""Prompts in a turn's reply form: removal of actions, corrections, and tools that a search has found. Pure.

The found tools stay with the message that shows the search result, under the key `found`, in every turn of
the conversation. Backends never see the key: the tools are declared like others, and a grammar accepts them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import dump_compact, to_line
from lemming.kernel.providers import Message
from lemming.kernel.tools.listing import filter_tool_descriptions
from lemming.kernel.tools.toolset import TOOL_SEARCH
from lemming.kernel.turn.forms.reply_form import ANSWER, SEND, ReplyForm, to_offered_name
from lemming.kernel.turn.reply_schemas import (
    Action,
    action_schema,
    drop_actions,
    join_actions,
    list_actions,
    make_native_names,
    max_actions,
    sample_value,
    wire_call,
)
from lemming.kernel.turn.tool_results import FOUND_KEY
from lemming.kernel.turn.turn_values import TurnInputs

Json = dict[str, Any]
PLAIN_REPLY = "Reply with your own text."
ANSWER_NOW = "Answer now, or call another tool."
ACT_NOW = "Take the next action, or end the turn."
"""Said after results: without these words a small model makes the same call again."""
JSON_REPLY = "Reply with one JSON object like this, with your own values:"


_PAYLOAD_PROBLEM = re.compile(r"/payload(?:/|: )(.*)", re.DOTALL)


class ReplyPrompt(NamedTuple):
    """A prompt for a model: the messages, and the schema of the reply, or None for the turn's own schema."""

    messages: list[Message]
    schema: Json | None = None


def narrow_prompt(
    form: ReplyForm,
    prompt: ReplyPrompt,
    schema: Json | None,
    results: Sequence[Mapping[str, Any]],
    dropped: Sequence[str] = (),
) -> ReplyPrompt:
    """Return a prompt without tools that would repeat their result, and without the `dropped` engine actions.

    A small model calls any offered tool for ever, so a small model loses each called tool. Other models lose
    a tool after two equal results for equal arguments, or after an echo.
    """
    keys = [dump_compact([item["tool"], item["args"], item["output"]]) for item in results]
    counts, min_count = Counter(keys), 1 if form.is_small else 2
    repeated = [item["tool"] for item, key in zip(results, keys, strict=True) if counts[key] >= min_count]
    tools = {to_offered_name(tool) for tool in (*repeated, *_find_echoes(results))}
    if not (tools or dropped):
        return prompt
    if form.style == "native":
        return ReplyPrompt(_without_tools(prompt.messages, tools, dropped), prompt.schema)
    grammar = prompt.schema or schema
    return ReplyPrompt(prompt.messages, drop_actions(grammar, [*tools, *dropped]) if grammar else None)


def _find_echoes(results: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield tools that were given their own last result and returned the same: models repeat such calls."""
    last_outputs: dict[str, str] = {}
    for result in results:
        tool, args, output = result["tool"], result["args"], result["output"]
        texts = [value for value in args.values() if isinstance(value, str) and value] if isinstance(args, dict) else []
        if any(text == last_outputs.get(tool) and text in output for text in texts):
            yield tool
        last_outputs[tool] = output


def _without_tools(messages: list[Message], names: Iterable[str], engine_actions: Sequence[str]) -> list[Message]:
    """Return messages without some tools and `engine_actions` of the backend; unchanged if no tool would be left."""
    tools = [
        tool
        for tool in messages[0].get("tools", ())
        if tool["name"] not in engine_actions and to_offered_name(tool.get("tool", tool["name"])) not in names
    ]
    return [{**messages[0], "tools": tools}, *messages[1:]] if tools else messages


def correct_prompt(form: ReplyForm, prompt: ReplyPrompt, schema: Json | None, reply: str, problem: str) -> ReplyPrompt:
    """Return the corrected prompt after an unreadable reply.

    The broken `reply` is not shown, because the model would copy the broken form. The smallest valid reply is
    shown, and the schema leaves only the intended action.
    """
    # Only told with a value if more helpful than a sample; a small model would copy the text.
    match = _PAYLOAD_PROBLEM.search(problem)
    is_helpful = (match or problem.partition(":")[0] in form.own) and not form.is_small
    reason = f"{(match[1] if match else problem).rstrip('.')}. " if is_helpful else ""
    if form.style == "text":
        return ReplyPrompt(_append_text(prompt.messages, f"{reason}{PLAIN_REPLY}"))
    tool_name = problem.partition(":")[0]  # by a backend's own call, which stands in no text
    if form.style == "native" and not (form.fields or tool_name in form.own):
        return ReplyPrompt(_append_text(prompt.messages, f"{problem}. {PLAIN_REPLY}"), prompt.schema)
    grammar = prompt.schema or schema
    actions = {action["properties"]["do"]["const"]: action for action in list_actions(grammar or {})}
    # The action named in the broken reply, else the action that sends text.
    text_action = ANSWER if form.is_answer or not form.own else SEND if SEND in form.own else form.own[0]
    named = (name for name in (*form.own, *actions) if f'"{name}"' in reply)
    intended = tool_name if tool_name in form.own else next(named, text_action)
    is_tool = intended in actions and intended not in form.own
    sample = sample_value(intended, actions[intended]) if is_tool else _smallest_reply(form, intended)
    if form.style == "actions":
        grammar = actions.get(intended, grammar)
    instruction = f"{reason}{JSON_REPLY}\n{to_line(sample)}"
    if form.style == "native":
        instruction = f"{problem}. Call {intended} with values like these: {to_line(sample)}"
    return ReplyPrompt(_append_text(prompt.messages, instruction), grammar)


def _smallest_reply(form: ReplyForm, name: str) -> Json:
    """Return the smallest valid reply with an action."""
    if name not in (ANSWER, SEND):
        values: Json = {"key": "name", "value": "your value"} if name == "remember" else {}
    elif form.fields:
        values = {key: sample_value(key, schema) for key, schema in form.fields.items()}
    else:
        values = {"text": "your text"}
    if name == ANSWER and form.requests:
        values = {"request": form.requests[0], **values}
    if name == SEND and form.readers:
        values = {"to": form.readers[0], **values}
    if name == SEND and form.kinds:
        values = {"kind": form.kinds[0], **values}
    return values if form.style in ("fields", "native") else {"do": name, **values}


def _append_text(messages: Sequence[Message], text: str) -> list[Message]:
    """Return messages with `text` appended to the last message, which is the user's."""
    *earlier, last = messages
    if last["role"] != "user":
        return [*messages, {"role": "user", "content": text}]
    return [*earlier, {**last, "content": f"{last['content']}\n{text}"}]


def render_action_results(
    form: ReplyForm, results: Sequence[str], notices: Sequence[str], *, has_own: bool = True
) -> list[Message]:
    """Return the messages with the results of the last actions and a request for the next action.

    `has_own`: the calls were the backend's own and have results of their own; otherwise the prompt must end
    with a request. Notices stand in separate messages, because small models copy the content of results.
    """
    instruction = ANSWER_NOW if form.is_answer else ACT_NOW
    lines = [*results, instruction] if form.style != "native" or not has_own else [*results]
    rendered: list[Message] = [{"role": "user", "content": "\n".join(lines)}] if lines else []
    return [*rendered, *({"role": "user", "content": notice} for notice in notices)]


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
    stored_results = inputs.current_request.begun.results if inputs.current_request else ()
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
    new = [
        {**({} if names[real_name] == real_name else {"tool": real_name}), **tool, "name": names[real_name]}
        for tool in found_tools
        if (real_name := tool["name"]) in names
    ]
    return ReplyPrompt([{**clean[0], "tools": [*declared, *new]}, *clean[1:]])


def _name_found_tools(declared: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Return backend names for tools, without collisions with declared tools. Declared tools are omitted."""
    declared_names = {tool.get("tool", tool["name"]) for tool in declared}
    used_names = {tool["name"] for tool in declared}
    backend_names: dict[str, str] = {}
    for name in names:  # one by one: later tools change no earlier name
        if name not in declared_names:
            backend_names |= make_native_names([name], used_names)
            used_names.add(backend_names[name])
    return backend_names


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
