"""Tool calls and images in the forms of the providers, and back: what messages and replies hold of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from lemming.kernel.base.jsontext import JsonProblem, parse, to_line
from lemming.kernel.providers import Image, Message, Request

CHAT, RESPONSES, ANTHROPIC = "chat", "responses", "anthropic"
"""Whose form it is that something was kept in, as its key: after a fallback it may be another one's."""

Call = dict[str, Any]
"""`{"id", "tool", "args"}`; arguments that are not JSON stay text."""


def tools_of(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the tools that a model is told of: name, description and the parameters' JSON Schema."""
    told = [tool for message in messages for tool in message.get("tools", ())]
    return [{key: tool[key] for key in ("name", "description", "parameters")} for tool in told]


def function_tools(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the tools in the form of OpenAI's chat completions, which others have too."""
    return [{"type": "function", "function": tool} for tool in tools_of(messages)]


def made(calls: Iterable[tuple[object, object, object]]) -> tuple[Call, ...]:
    """Return calls that a model made, given as id, name and arguments; each gets an id of its own.

    >>> made([("a", "see", '{"x": 1}'), ("a", "see", '{"x":'), (None, "see", "")])
    ({'id': 'a', 'tool': 'see', 'args': {'x': 1}}, {'id': 'a-2', 'tool': 'see', 'args': '{"x":'}, \
{'id': 'call-3', 'tool': 'see', 'args': {}})
    """
    found: list[Call] = []
    for identity, name, arguments in calls:
        if isinstance(name, str):
            found.append({"id": _own_id(identity, found), "tool": name, "args": _read(arguments)})
    return tuple(found)


def arguments_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments as an object, for providers that take back nothing else."""
    return call["args"] if isinstance(call["args"], dict) else {"arguments": call["args"]}


def argument_text(call: Mapping[str, Any]) -> str:
    """Return a call's arguments as text: always an object, for some servers refuse a conversation else."""
    return to_line(arguments_of(call))


def kept_of(message: Message, kind: str) -> Any:
    """Return the values that such a backend asked to be kept with an answer; None for another one.

    Without the calls that were not made: each that is sent back wants a result.
    """
    kept = message.get("kept")
    content = kept.get(kind) if isinstance(kept, dict) else None
    if not isinstance(content, list):
        return content
    made_calls = {call["id"] for call in message.get("calls", ())}
    return [item for item in content if _parse_call_id(item) in (None, *made_calls)]


def _parse_call_id(item: object) -> object:
    """Return the id of the call that an item of an answer makes; None if it makes none."""
    if not isinstance(item, dict) or item.get("type") not in ("tool_use", "function_call"):
        return None
    return item.get("call_id") if item["type"] == "function_call" else item.get("id")


def chat_messages(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Yield messages as OpenAI's chat completions have them."""
    for message in messages:
        plain = {"role": message["role"], "content": message["content"]}
        if message["role"] == "tool":
            yield {"role": "tool", "tool_call_id": message["call"], "content": message["content"]}
        elif calls := message.get("calls"):
            yield {
                **plain,
                "content": message["content"] or None,
                "tool_calls": [_function_call(call) for call in calls],
                **(kept_of(message, CHAT) or {}),
            }
        else:
            yield plain


def _function_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call["tool"], "arguments": argument_text(call)}
    return {"id": call["id"], "type": "function", "function": function}


def chat_calls(plain: object) -> tuple[Call, ...]:
    """Return the calls of an answer in the form of chat completions; what is no call is passed over.

    That is a list of calls, one call, or the `function_call` of before there were lists. Some servers leave
    out the `function` around a call, or say `parameters` as Llama's models were taught.

    >>> chat_calls({"name": "see", "parameters": {"x": 1}})
    ({'id': 'call-1', 'tool': 'see', 'args': {'x': 1}},)
    """
    calls = plain if isinstance(plain, list) else [plain]
    return made(_parts_of_call(call) for call in calls if isinstance(call, dict))


def _parts_of_call(call: Mapping[str, Any]) -> tuple[object, object, object]:
    """Return the id, the name and the arguments of a call."""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = next((function[key] for key in ("arguments", "parameters", "input") if key in function), None)
    return call.get("id"), function.get("name"), arguments


def in_runs(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield messages one by one, but results of tools that follow each other together."""
    for is_of_tools, run in groupby(messages, lambda message: message["role"] == "tool"):
        together = [*run]
        yield from [together] if is_of_tools else ([message] for message in together)


def _own_id(identity: object, before: Sequence[Call]) -> str:
    number = len(before) + 1
    if not isinstance(identity, str) or not identity:
        return f"call-{number}"
    return f"{identity}-{number}" if any(call["id"] == identity for call in before) else identity


def _read(arguments: object) -> object:
    """Return arguments as a value; text that is no JSON stays text, and no arguments are an empty object.

    Some models write them as JSON in a JSON text, and then the object in it is meant.
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
    """Return an answer's text and the thoughts before it: its content is text, or a list of parts.

    >>> split_content([{"type": "thinking", "thinking": [{"text": "Hm."}]}, {"text": "Yes."}])
    ('Yes.', 'Hm.')
    """
    if not isinstance(content, list):
        return content if isinstance(content, str) else "", ""
    parts = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in content]
    texts = [text for part in parts if isinstance(text := part.get("text"), str) and not _is_thought(part)]
    thoughts = [text for part in parts if _is_thought(part) for text in _texts_in(part)]
    return "".join(texts), "".join(thoughts)


def _is_thought(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("thinking", "reasoning")


def _texts_in(part: Mapping[str, Any]) -> Iterator[str]:
    for content in (part.get("thinking"), part.get("text")):
        for inner in content if isinstance(content, list) else [content]:
            text = inner.get("text") if isinstance(inner, dict) else inner
            if isinstance(text, str):
                yield text


# --- images --------------------------------------------------------------------------------------


Form = Literal["chat", "responses", "anthropic", "ollama"]


def _address(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.base64}"


_PARTS: dict[Form, tuple[str, Callable[[Image], dict[str, Any]]]] = {
    "chat": ("text", lambda image: {"type": "image_url", "image_url": {"url": _address(image)}}),
    "responses": ("input_text", lambda image: {"type": "input_image", "image_url": _address(image)}),
    "anthropic": (
        "text",
        lambda image: {
            "type": "image",
            "source": {"type": "base64", "media_type": image.media_type, "data": image.base64},
        },
    ),
}


def with_images(messages: list[Any], request: Request, form: Form) -> list[Any]:
    """Return the messages of a request, its images in the first whose text begins with `request.images_with`.

    The very same list where there are none.
    """
    if not request.images:
        return messages
    place = next(
        (n for n, it in enumerate(messages) if str(it.get("content", "")).startswith(request.images_with)),
        None,
    )
    if place is None:
        return messages
    message = messages[place]
    if form == "ollama":
        seen = {**message, "images": [image.base64 for image in request.images]}
    else:
        kind, part = _PARTS[form]
        text = {"type": kind, "text": message["content"]}
        seen = {**message, "content": [text, *map(part, request.images)]}
    return [*messages[:place], seen, *messages[place + 1 :]]
