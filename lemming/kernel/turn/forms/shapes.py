"""The shapes in which models write calls and objects into the text of a reply. Pure.

`read_calls` reads the calls of a text and returns the text around them; `first_object` reads the fields of a
form. Both take prose, fences and tags around the JSON, reasoning before it, and the small faults that
`lemming.kernel.base.reply_json` admits. Neither raises, and both are linear in the length of the text.

An object is a call if its shape says so: a name that the turn knows, or a name with its arguments. Any other
object is content, and stays in the text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.call_shapes import LISTS, CallShapes, RawCall
from lemming.kernel.base.contract import REPLY_LIMIT_BYTES
from lemming.kernel.base.jsontext import JsonProblem, compact, to_line
from lemming.kernel.base.reply_json import (
    FoundObject,
    drop_thinking,
    find_objects,
    read_literal,
)
from lemming.kernel.turn.forms.tagged_calls import find_tagged_calls

__all__ = ["RawCall", "first_object", "read_calls"]


_SIGNATURE = re.compile(r"[\s,;\[]*+([A-Za-z_][\w.-]*+)\(")
_PARAMETER = re.compile(r"[\s,]*+([A-Za-z_]\w*+)\s*+=")
_FENCE = re.compile(r"```[ \t]*+(\w*+)[ \t]*+\r?\n(.*?)(?:```|\Z)", re.DOTALL)
# The name stands before its arguments: Llama, Mistral, gpt-oss, and agents that write "Action Input".
_NAME_BEFORE = re.compile(
    r"(?:<function=|\[TOOL_CALLS\]\s?)([\w.-]{1,200})(?:>|\[ARGS\])?\s?\Z"
    r"|\bAction:[ \t]?([\w.-]{1,200})(?:\([^()\n]{0,100}\))?\s{0,2}Action Input:[ \t]?\Z"
    r"|\bto=functions\.([\w.-]{1,200})[^\n{}]{0,80}\Z"
)
_MARKS_BEFORE = ("<function=", "[TOOL_CALLS]", "Action:", "to=functions.")
_CHARS_BEFORE = 360
_OPENING = (
    "<tool_call>",
    "<|tool_call|>",
    "<|tool_call>",
    "[TOOL_CALLS]",
    "<function_call>",
    "<|python_tag|>",
)
_CLOSING = ("</tool_call>", "<|/tool_call|>", "<tool_call|>", "</function_call>", "</function>", "<|im_end|>")
_BEFORE = " \t\r\n,;[("
_AFTER = " \t\r\n,;])}"


def read_calls(text: str, names: Collection[str], *, is_cut_off: bool = False) -> tuple[list[RawCall], str]:
    """Return the calls of a reply in order, each once, and the text around them.

    `names`: the tools and actions that the turn knows. `is_cut_off`: the reply ended at a limit, so that
    nothing is read whose end is missing. Without a call, the text is all but the reasoning before it.

    >>> read_calls('I look. <tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}', ["weather"])
    ([RawCall(name='weather', args={'city': 'Oslo'})], 'I look.')
    >>> read_calls('{"do": "answer", "text": "It snows."}', ["answer"])
    ([RawCall(name='answer', args={'text': 'It snows.'})], '')
    >>> read_calls('{"name": "Mira", "city": "Oslo"}', ["weather"])
    ([], '{"name": "Mira", "city": "Oslo"}')
    """
    if _is_too_large(text):
        return [], text
    text = drop_thinking(text.removeprefix("\ufeff"))
    shapes = CallShapes(names)
    if signatures := _read_signatures(text, shapes):
        return _without_repeats(signatures), ""
    calls: list[RawCall] = []
    around: list[str] = []
    position = 0
    for part in _find_calls(text, shapes, is_cut_off=is_cut_off):
        calls += part.calls
        around += [_strip_before(text, position, part.begin), *part.beside]
        position = _skip_after(text, part.end)
    if not calls:
        return [], text
    around.append(text[position:].strip())
    return _without_repeats(calls), "\n".join(filter(None, around))


def first_object(text: str, *, is_cut_off: bool = False) -> dict[str, Any] | None:
    """Return the one JSON object of a reply, or None for a text with no object or with different ones.

    An object in a fence comes first: the prose around it may quote others.

    >>> first_object("Sure! {'is_urgent': True, 'summary': 'lamp is broken',}")
    {'is_urgent': True, 'summary': 'lamp is broken'}
    """
    if _is_too_large(text):
        return None
    text = drop_thinking(text.removeprefix("\ufeff"))
    objects = [*find_objects(text, is_cut_off=is_cut_off)]
    if not (objects and (objects[0].start, objects[0].end) == (0, len(text))):
        fences = (find_objects(match[2], is_cut_off=is_cut_off) for match in _FENCE.finditer(text))
        objects = next(filter(None, map(list, fences)), objects)
    different = {to_line(found.value): found.value for found in objects}
    return next(iter(different.values())) if len(different) == 1 else None


def _is_too_large(text: str) -> bool:
    return len(text) * 4 > REPLY_LIMIT_BYTES and len(text.encode("utf-8", "replace")) > REPLY_LIMIT_BYTES


def _without_repeats(calls: Iterable[RawCall]) -> list[RawCall]:
    """Return each call once: small models write one call two times, as text and in tags."""
    return [*{(call.name, compact(call.args)): call for call in calls}.values()]


class _Part(NamedTuple):
    """A part of a text that is calls; `beside`: the words that it has beside them."""

    begin: int
    end: int
    calls: Sequence[RawCall]
    beside: Sequence[str] = ()


def _find_calls(text: str, shapes: CallShapes, *, is_cut_off: bool) -> Iterator[_Part]:
    """Yield the calls of a text in order: objects, and what stands in tags of their own."""
    tagged = deque(_Part(begin, end, [call]) for begin, end, call in find_tagged_calls(text, shapes))
    end = 0
    for found in find_objects(text, is_cut_off=is_cut_off):
        while tagged and tagged[0].begin < found.start:
            yield tagged[0]
            end = tagged.popleft().end
        if found.start >= end and (part := _read_found(text, found, end, shapes)):
            yield part
            end = part.end
    yield from tagged


def _read_found(text: str, found: FoundObject, position: int, shapes: CallShapes) -> _Part | None:
    """Return the calls that an object is, or that it has the arguments of; None for content."""
    if calls := shapes.read(found.value):
        content = found.value.get("content") if any(key in found.value for key in LISTS) else None
        return _Part(found.start, found.end, calls, [content] if isinstance(content, str) else [])
    begin = max(position, found.start - _CHARS_BEFORE)
    before = text[begin : found.start]
    match = _NAME_BEFORE.search(before) if any(mark in before for mark in _MARKS_BEFORE) else None
    if match and (name := shapes.known(match[1] or match[2] or match[3])):
        return _Part(begin + match.start(), found.end, [RawCall(name, found.value)])
    return None


def _strip_before(text: str, start: int, end: int) -> str:
    """Return a part of a text without the fence, the tag and the brackets that open before a call."""
    while end > start:
        at = end
        while end > start and text[end - 1] in _BEFORE:
            end -= 1
        end = next((end - len(tag) for tag in _OPENING if text.endswith(tag, start, end)), end)
        fence = text.rfind("```", max(start, end - 20), end)
        if fence >= 0 and text[fence + 3 : end].strip(" \t").isidentifier() | (fence + 3 == end):
            end = fence
        if at == end:
            break
    return text[start:end].strip()


def _skip_after(text: str, position: int) -> int:
    """Return the place after the brackets, the tag and the fence that close behind a call."""
    while position < len(text):
        at = position
        while position < len(text) and text[position] in _AFTER:
            position += 1
        position += next((len(tag) for tag in _CLOSING if text.startswith(tag, position)), 0)
        # A fence that opens another block has a language, or a line end and more.
        if text.startswith("```", position) and not text[position + 3 : position + 4].isalpha():
            position += 3
        if at == position:
            break
    return position


def _read_signatures(text: str, shapes: CallShapes) -> list[RawCall]:
    """Return the calls of a text that is nothing but `NAME(argument="x")`, with known names."""
    fence = _FENCE.fullmatch(text)
    text = (fence[2] if fence else text).strip()
    calls: list[RawCall] = []
    position = 0
    try:
        while match := _SIGNATURE.match(text, position):
            name = shapes.known(match[1])
            if not name:
                return []
            args, position = _read_parameters(text, match.end())
            calls.append(RawCall(name, args))
    except JsonProblem:
        return []
    return calls if not text[position:].strip(" \t\r\n,;]") else []


def _read_parameters(text: str, position: int) -> tuple[dict[str, Any], int]:
    """Return the parameters of a call in brackets, all with their names; raise `JsonProblem` for others."""
    args: dict[str, Any] = {}
    while match := _PARAMETER.match(text, position):
        if match[1] in args:
            raise JsonProblem(f"{match[1]} is named twice")
        args[match[1]], position = read_literal(text, match.end(), is_cut_off=True)
    if not args and text.startswith("{", position):
        value, position = read_literal(text, position, is_cut_off=True)
        args = value if isinstance(value, dict) else {}
    end = position + len(text[position : position + 80]) - len(text[position : position + 80].lstrip())
    if not text.startswith(")", end):
        raise JsonProblem("the bracket does not close")
    return args, end + 1
