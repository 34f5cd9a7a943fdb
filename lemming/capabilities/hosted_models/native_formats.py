"""Conversion of tool calls, images and JSON Schemas between messages, replies and the wire formats of providers.

Hosted servers take a subset of JSON Schema. Source: "Supported schemas" in OpenAI's guide to structured outputs. The root
is an object and no `anyOf`, each object is closed and requires all its properties, and texts may have only `pattern` and
`format`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.providers import Image, Message, Request
from lemming.libraries.lenient_json import parse_object_or_empty, parse_or_default

CHAT, RESPONSES, ANTHROPIC = "chat", "responses", "anthropic"
"""Formats of a stored message; after a fallback the format may be another provider's."""

Call = dict[str, Any]
"""`{"id", "tool", "args"}`; arguments that are not JSON stay text."""


def collect_tools(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the tools in the messages: name, description and the parameters' JSON Schema."""
    tools = [tool for message in messages for tool in message.get("tools", ())]
    return [{key: tool[key] for key in ("name", "description", "parameters")} for tool in tools]


def function_tools(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the tools in the form of OpenAI's chat completions, shared by other providers."""
    return [{"type": "function", "function": tool} for tool in collect_tools(messages)]


def make_calls(calls: Iterable[tuple[object, object, object]]) -> tuple[Call, ...]:
    """Return calls of a model from ids, names and arguments, each with a unique id.

    >>> calls = make_calls([("a", "see", '{"x": 1}'), ("a", "see", '{"x":'), (None, "see", "")])
    >>> [(call["id"], call["args"]) for call in calls]
    [('a', {'x': 1}), ('a-2', '{"x":'), ('call-3', {})]
    """
    new_calls: list[Call] = []
    for identity, name, arguments in calls:
        if isinstance(name, str):
            new_calls.append(
                {"id": _new_call_id(identity, new_calls), "tool": name, "args": _parse_arguments(arguments)}
            )
    return tuple(new_calls)


def arguments_object(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments as an object, for providers without text arguments."""
    return call["args"] if isinstance(call["args"], dict) else {"arguments": call["args"]}


def argument_text(call: Mapping[str, Any]) -> str:
    """Return a call's arguments as text, always of an object: some servers reject a conversation otherwise."""
    return to_line(arguments_object(call))


def get_provider_state(message: Message, kind: str) -> Any:
    """Return the provider state kept with an answer for this kind of backend, or None for another kind.

    Items of calls not made are omitted, because each call in a request needs a result.
    """
    states = message.get("kept")
    content = states.get(kind) if isinstance(states, dict) else None
    if not isinstance(content, list):
        return content
    made_calls = {call["id"] for call in message.get("calls", ())}
    return [item for item in content if _parse_call_id(item) in (None, *made_calls)]


def _parse_call_id(item: object) -> object:
    if not isinstance(item, dict) or item.get("type") not in ("tool_use", "function_call"):
        return None
    return item.get("call_id") if item["type"] == "function_call" else item.get("id")


def chat_messages(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Yield messages in the form of OpenAI's chat completions."""
    for message in messages:
        plain = {"role": message["role"], "content": message["content"]}
        if message["role"] == "tool":
            yield {"role": "tool", "tool_call_id": message["call"], "content": message["content"]}
        elif calls := message.get("calls"):
            yield {
                **plain,
                "content": message["content"] or None,
                "tool_calls": [
                    {
                        "id": call["id"],
                        "type": "function",
                        "function": {"name": call["tool"], "arguments": argument_text(call)},
                    }
                    for call in calls
                ],
                **(get_provider_state(message, CHAT) or {}),
            }
        else:
            yield plain


def chat_calls(plain: object) -> tuple[Call, ...]:
    """Return the calls of an answer in the form of chat completions. Other items are skipped.

    The input is a list of calls, one call, or the older `function_call`. Some servers omit the `function`
    around a call, or write `parameters` like Llama's models.

    >>> chat_calls(dict(name="see", parameters={"x": 1}))
    ({'id': 'call-1', 'tool': 'see', 'args': {'x': 1}},)
    """
    triples = []
    for call in plain if isinstance(plain, list) else [plain]:
        if isinstance(call, dict):
            function = call["function"] if isinstance(call.get("function"), dict) else call
            arguments = next((function[key] for key in ("arguments", "parameters", "input") if key in function), None)
            triples.append((call.get("id"), function.get("name"), arguments))
    return make_calls(triples)


def group_tool_results(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield messages one by one, with consecutive tool results grouped."""
    for is_of_tools, run in groupby(messages, lambda message: message["role"] == "tool"):
        group = [*run]
        yield from [group] if is_of_tools else ([message] for message in group)


def _new_call_id(identity: object, earlier_calls: Sequence[Call]) -> str:
    number = len(earlier_calls) + 1
    if not isinstance(identity, str) or not identity:
        return f"call-{number}"
    return f"{identity}-{number}" if any(call["id"] == identity for call in earlier_calls) else identity


def _parse_arguments(arguments: object) -> object:
    """Return arguments as a value. Malformed JSON stays text, and missing arguments become an empty object.

    Some models write a JSON object inside a JSON text; the inner object is returned.
    """
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    value = parse_or_default(arguments, arguments) if arguments.strip() else {}
    return parse_or_default(value, arguments) if isinstance(value, str) and value.lstrip()[:1] == "{" else value


def split_content(content: object) -> tuple[str, str]:
    """Return an answer's text and its thoughts. The content is a text or a list of parts.

    >>> split_content([dict(type="thinking", thinking=[{"text": "Hm."}]), {"text": "Yes."}])
    ('Yes.', 'Hm.')
    """
    if not isinstance(content, list):
        return content if isinstance(content, str) else "", ""
    parts = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in content]
    texts = [text for part in parts if isinstance(text := part.get("text"), str) and not _is_thought(part)]
    thoughts = [text for part in parts if _is_thought(part) for text in _iter_texts(part)]
    return "".join(texts), "".join(thoughts)


def _is_thought(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("thinking", "reasoning")


def _iter_texts(part: Mapping[str, Any]) -> Iterator[str]:
    for content in (part.get("thinking"), part.get("text")):
        for inner in content if isinstance(content, list) else [content]:
            text = inner.get("text") if isinstance(inner, dict) else inner
            if isinstance(text, str):
                yield text


ApiForm = Literal["chat", "responses", "anthropic", "ollama"]


def _data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.base64}"


_PARTS: dict[ApiForm, tuple[str, Callable[[Image], dict[str, Any]]]] = {
    "chat": ("text", lambda image: {"type": "image_url", "image_url": {"url": _data_url(image)}}),
    "responses": ("input_text", lambda image: {"type": "input_image", "image_url": _data_url(image)}),
    "anthropic": (
        "text",
        lambda image: {
            "type": "image",
            "source": {"type": "base64", "media_type": image.media_type, "data": image.base64},
        },
    ),
}


def with_images(messages: list[Any], request: Request, api_form: ApiForm) -> list[Any]:
    """Return the messages with the request's images in the first message that starts with `request.images_with`.

    Without images, the same list object is returned.
    """
    if not request.images:
        return messages
    index = next(
        (
            n
            for n, candidate in enumerate(messages)
            if str(candidate.get("content", "")).startswith(request.images_with)
        ),
        None,
    )
    if index is None:
        return messages
    message = messages[index]
    if api_form == "ollama":
        new_message = {**message, "images": [image.base64 for image in request.images]}
    else:
        kind, part = _PARTS[api_form]
        text = {"type": kind, "text": message["content"]}
        new_message = {**message, "content": [text, *map(part, request.images)]}
    return [*messages[:index], new_message, *messages[index + 1 :]]


WRAPPER = "action"
"""The one property of the object around a schema without an object root: one of several actions, or a list."""

_WRAPPED = re.compile(r'\s*\{\s*"action"\s*:\s*[{\[]')
_UNSUPPORTED = ("minLength", "maxLength")
_VALUE_KEYWORDS = ("enum", "const", "default", "required")
"""Keywords that hold values and no schemas."""
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def to_object_root(schema: Mapping[str, Any], *, has_const: bool = True) -> dict[str, Any]:
    """Return a schema in the subset with an object at its root. Another root is wrapped in an object.

    Without `has_const`, a constant becomes an enumeration of one value: Gemini's documented subset has no
    `const` and ignores unsupported keywords.

    >>> to_object_root({"anyOf": [{"type": "null"}]})["properties"]
    {'action': {'anyOf': [{'type': 'null'}]}}
    """
    subset: dict[str, Any] = _to_subset(schema, has_const)
    if subset.get("type") == "object" and "anyOf" not in subset:
        return subset
    return {"type": "object", "properties": {WRAPPER: subset}, "required": [WRAPPER], "additionalProperties": False}


def unwrap_reply(text: str) -> str:
    """Return a reply without the wrapper object of `to_object_root` around an action or a list of actions.

    The text alone decides, so a batch and a stream are read alike. A reply in another form stays unchanged,
    and the turn reports the error.

    >>> unwrap_reply('{"action": {"do": "done"}}'), unwrap_reply('{"action": "buy"}')
    ('{"do": "done"}', '{"action": "buy"}')
    """
    if not _WRAPPED.match(text):
        return text
    plain = parse_object_or_empty(text)
    inner = plain.get(WRAPPER) if len(plain) == 1 else None
    actions = inner if isinstance(inner, list) else [inner]
    are_actions = all(isinstance(action, dict) and ("do" in action or "name" in action) for action in actions)
    return to_line(inner) if are_actions else text


def is_strict(schema: object) -> bool:
    """Return True if each object of a schema is closed and requires all of its properties.

    >>> is_strict({"anyOf": [dict(type="object", properties={"a": {}}, additionalProperties=False)]})
    False
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties", {})
    if schema.get("type") == "object":
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or {*properties} != {*schema.get("required", ())}:
            return False
    nested = [value for key, value in schema.items() if key not in ("properties", *_VALUE_KEYWORDS)]
    return all(map(is_strict, (*properties.values(), *nested)))


def _to_subset(schema: Any, has_const: bool) -> Any:
    """Return a schema without unsupported keywords, and with a type beside each constant."""
    if isinstance(schema, list):
        return [_to_subset(item, has_const) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    subset = {
        key: {name: _to_subset(inner, has_const) for name, inner in value.items()}
        if key == "properties"
        else value
        if key in _VALUE_KEYWORDS
        else _to_subset(value, has_const)
        for key, value in schema.items()
        if key not in _UNSUPPORTED
    }
    if "const" in subset and "type" not in subset and (kind := _TYPES.get(type(subset["const"]))):
        subset = {"type": kind, **subset}
    if "const" in subset and not has_const:
        subset["enum"] = [subset.pop("const")]
    if limits := [f"{key} {schema[key]}" for key in _UNSUPPORTED if key in schema]:
        subset["description"] = f"{subset.get('description') or ''} ({', '.join(limits)})".strip()
    return subset
