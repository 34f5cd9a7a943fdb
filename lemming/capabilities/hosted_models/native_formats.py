"""Conversion of tool calls and images between messages, replies and the wire formats of providers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from lemming.kernel.base.jsontext import JsonProblem, parse, to_line
from lemming.kernel.providers import Image, Message, Request

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
    """Return the id of the call in an item of an answer, or None."""
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
                "tool_calls": [_function_call(call) for call in calls],
                **(get_provider_state(message, CHAT) or {}),
            }
        else:
            yield plain


def _function_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call["tool"], "arguments": argument_text(call)}
    return {"id": call["id"], "type": "function", "function": function}


def chat_calls(plain: object) -> tuple[Call, ...]:
    """Return the calls of an answer in the form of chat completions. Other items are skipped.

    The input is a list of calls, one call, or the older `function_call`. Some servers omit the `function`
    around a call, or write `parameters` like Llama's models.

    >>> chat_calls(dict(name="see", parameters={"x": 1}))
    ({'id': 'call-1', 'tool': 'see', 'args': {'x': 1}},)
    """
    calls = plain if isinstance(plain, list) else [plain]
    return make_calls(_split_call(call) for call in calls if isinstance(call, dict))


def _split_call(call: Mapping[str, Any]) -> tuple[object, object, object]:
    """Return the id, the name and the arguments of a call."""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = next((function[key] for key in ("arguments", "parameters", "input") if key in function), None)
    return call.get("id"), function.get("name"), arguments


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
    try:
        value = parse(arguments) if arguments.strip() else {}
        inner = parse(value) if isinstance(value, str) and value.lstrip()[:1] == "{" else value
    except JsonProblem:
        return arguments
    return inner


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


# --- images --------------------------------------------------------------------------------------


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
