"""Shapes of calls and objects in the text of a model's reply. Pure.

`extract_calls` extracts the calls of a text and returns the remaining text; `extract_only_object` extracts
the fields of a form. Both accept prose, fences and tags around the JSON, reasoning before the JSON, and the
small faults that `lemming.kernel.base.reply_json` admits. Neither raises, and both are linear in the length
of the text.

An object is a call if the shape is clear: a known name, or a name with arguments. Any other object is content
and stays in the text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.call_shapes import LIST_KEYS, CallShapes, RawCall
from lemming.kernel.base.contract import REPLY_LIMIT_BYTES
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse, to_line
from lemming.kernel.base.reply_json import MAX_REPLY_DEPTH, FoundObject, drop_thinking, find_objects, parse_literal

__all__ = ["RawCall", "extract_calls", "extract_only_object"]


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
_OPENING = ("<tool_call>", "<|tool_call|>", "<|tool_call>", "[TOOL_CALLS]", "<function_call>", "<|python_tag|>")
_CLOSING = ("</tool_call>", "<|/tool_call|>", "<tool_call|>", "</function_call>", "</function>", "<|im_end|>")
_BEFORE = " \t\r\n,;[("
_AFTER = " \t\r\n,;])}"


def extract_calls(text: str, names: Collection[str], *, is_cut_off: bool = False) -> tuple[list[RawCall], str]:
    """Return the calls of a reply in order, each once, and the text around them.

    `names`: known tools and actions. `is_cut_off`: the reply ended at a limit, so that incomplete parts are
    ignored. Without a call, the text is the whole reply except the reasoning at the start.

    >>> extract_calls('I look. <tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}', ["weather"])
    ([RawCall(name='weather', args={'city': 'Oslo'})], 'I look.')
    >>> extract_calls('{"do": "answer", "text": "It snows."}', ["answer"])
    ([RawCall(name='answer', args={'text': 'It snows.'})], '')
    >>> extract_calls('{"name": "Mira", "city": "Oslo"}', ["weather"])
    ([], '{"name": "Mira", "city": "Oslo"}')
    """
    if _is_too_large(text):
        return [], text
    text = drop_thinking(text.removeprefix("\ufeff"))
    shapes = CallShapes(names)
    if signatures := _parse_signatures(text, shapes):
        return _without_repeats(signatures), ""
    calls: list[RawCall] = []
    around: list[str] = []
    position = 0
    for part in _find_calls(text, shapes, is_cut_off=is_cut_off):
        calls += part.calls
        around += [_strip_opening(text, position, part.begin), *part.other_texts]
        position = _skip_closing(text, part.end)
    if not calls:
        return [], text
    around.append(text[position:].strip())
    return _without_repeats(calls), "\n".join(filter(None, around))


def extract_only_object(text: str, *, is_cut_off: bool = False) -> dict[str, Any] | None:
    """Return the only JSON object of a reply, or None without an object or with several different ones.

    An object in a fence comes first, because the surrounding prose may quote others.

    >>> extract_only_object("Sure! {'is_urgent': True, 'summary': 'lamp is broken',}")
    {'is_urgent': True, 'summary': 'lamp is broken'}
    """
    if _is_too_large(text):
        return None
    text = drop_thinking(text.removeprefix("\ufeff"))
    objects = [*find_objects(text, is_cut_off=is_cut_off)]
    if not (objects and (objects[0].start, objects[0].end) == (0, len(text))):
        fences = (find_objects(match[2], is_cut_off=is_cut_off) for match in _FENCE.finditer(text))
        objects = next(filter(None, map(list, fences)), objects)
    different = {to_line(item.value): item.value for item in objects}
    return next(iter(different.values())) if len(different) == 1 else None


def _is_too_large(text: str) -> bool:
    return len(text) * 4 > REPLY_LIMIT_BYTES and len(text.encode("utf-8", "replace")) > REPLY_LIMIT_BYTES


def _without_repeats(calls: Iterable[RawCall]) -> list[RawCall]:
    """Return each call once: small models write a call twice, as text and in tags."""
    return [*{(call.name, dump_compact(call.args)): call for call in calls}.values()]


class _Part(NamedTuple):
    """A part of a text with calls. `other_texts`: texts inside the part besides the calls."""

    begin: int
    end: int
    calls: Sequence[RawCall]
    other_texts: Sequence[str] = ()


def _find_calls(text: str, shapes: CallShapes, *, is_cut_off: bool) -> Iterator[_Part]:
    """Yield the calls of a text in order, from objects and from special tags."""
    tagged = deque(_Part(begin, end, [call]) for begin, end, call in find_tagged_calls(text, shapes))
    end = 0
    for item in find_objects(text, is_cut_off=is_cut_off):
        while tagged and tagged[0].begin < item.start:
            yield tagged[0]
            end = tagged.popleft().end
        if item.start >= end and (part := _object_to_part(text, item, end, shapes)):
            yield part
            end = part.end
    yield from tagged


def _object_to_part(text: str, item: FoundObject, position: int, shapes: CallShapes) -> _Part | None:
    """Return the calls in an object, or the call with the object as arguments, or None for content."""
    if calls := shapes.parse_calls(item.value):
        content = item.value.get("content") if any(key in item.value for key in LIST_KEYS) else None
        return _Part(item.start, item.end, calls, [content] if isinstance(content, str) else [])
    begin = max(position, item.start - _CHARS_BEFORE)
    prefix = text[begin : item.start]
    match = _NAME_BEFORE.search(prefix) if any(mark in prefix for mark in _MARKS_BEFORE) else None
    if match and (name := shapes.resolve_name(match[1] or match[2] or match[3])):
        return _Part(begin + match.start(), item.end, [RawCall(name, item.value)])
    return None


def _strip_opening(text: str, start: int, end: int) -> str:
    """Return a part of a text without the fence, tag and brackets that open before a call."""
    while end > start:
        last_end = end
        while end > start and text[end - 1] in _BEFORE:
            end -= 1
        end = next((end - len(tag) for tag in _OPENING if text.endswith(tag, start, end)), end)
        fence = text.rfind("```", max(start, end - 20), end)
        if fence >= 0 and text[fence + 3 : end].strip(" \t").isidentifier() | (fence + 3 == end):
            end = fence
        if last_end == end:
            break
    return text[start:end].strip()


def _skip_closing(text: str, position: int) -> int:
    """Return the position after the brackets, tag and fence that close behind a call."""
    while position < len(text):
        last_position = position
        while position < len(text) and text[position] in _AFTER:
            position += 1
        position += next((len(tag) for tag in _CLOSING if text.startswith(tag, position)), 0)
        # A fence that opens another block has a language, or a line end and more.
        if text.startswith("```", position) and not text[position + 3 : position + 4].isalpha():
            position += 3
        if last_position == position:
            break
    return position


def _parse_signatures(text: str, shapes: CallShapes) -> list[RawCall]:
    """Return the calls of a text that consists only of `NAME(argument="x")` with known names."""
    fence = _FENCE.fullmatch(text)
    text = (fence[2] if fence else text).strip()
    calls: list[RawCall] = []
    position = 0
    try:
        while match := _SIGNATURE.match(text, position):
            name = shapes.resolve_name(match[1])
            if not name:
                return []
            args, position = _parse_parameters(text, match.end())
            calls.append(RawCall(name, args))
    except JsonProblem:
        return []
    return calls if not text[position:].strip(" \t\r\n,;]") else []


def _parse_parameters(text: str, position: int) -> tuple[dict[str, Any], int]:
    """Return the named parameters of a call in brackets. Raises `JsonProblem` for other parameters."""
    args: dict[str, Any] = {}
    while match := _PARAMETER.match(text, position):
        if match[1] in args:
            raise JsonProblem(f"{match[1]} is named twice")
        args[match[1]], position = parse_literal(text, match.end())
    if not args and text.startswith("{", position):
        value, position = parse_literal(text, position)
        args = value if isinstance(value, dict) else {}
    end = position + len(text[position : position + 80]) - len(text[position : position + 80].lstrip())
    if not text.startswith(")", end):
        raise JsonProblem("the bracket does not close")
    return args, end + 1


# Calls with arguments in special tags, as Qwen3-Coder and GLM write them. A value is text unless it reads as JSON:
#   <function=weather><parameter=city>Oslo</parameter></function>
#   <tool_call>weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>
_TAGGED_BEGINS = re.compile(
    r"<function=([\w.-]{1,200})>\s*+(?=<parameter=)|<tool_call>\s*+([\w.-]{1,200})\s*+(?=<arg_key>)"
)
_TAGGED_PARAMETER = re.compile(r"\s*+<parameter=([\w.-]{1,200})>\n?")
_TAGGED_ARGUMENT = re.compile(r"\s*+<arg_key>\s*+([\w.-]{1,200})\s*+</arg_key>\s*+<arg_value>\n?")
_JSON_VALUE = re.compile(r"-?[0-9]|[\[{]|(?:true|false|null)\Z")


def find_tagged_calls(text: str, shapes: CallShapes) -> Iterator[tuple[int, int, RawCall]]:
    """Yield the calls in special tags, each with start and end."""
    position = 0
    while match := _TAGGED_BEGINS.search(text, position):
        name, close = (match[1], "</function>") if match[1] else (match[2], "</tool_call>")
        end = text.find(close, match.end())
        if end < 0:
            return
        args = _parse_pairs(text[match.end() : end], is_parameter=bool(match[1]))
        position = end + len(close)
        if args is not None:
            yield match.start(), position, RawCall(shapes.resolve_name(name) or name, args)


def _parse_pairs(text: str, *, is_parameter: bool) -> dict[str, Any] | None:
    """Return the arguments of a call, or None for other text or a repeated argument."""
    pattern, close = (_TAGGED_PARAMETER, "</parameter>") if is_parameter else (_TAGGED_ARGUMENT, "</arg_value>")
    args: dict[str, Any] = {}
    position = 0
    while match := pattern.match(text, position):
        end = text.find(close, match.end())
        if end < 0 or match[1] in args:
            return None
        args[match[1]] = _to_value(text[match.end() : end].removesuffix("\n"))
        position = end + len(close)
    return None if text[position:].strip() else args


def _to_value(text: str) -> Any:
    if _JSON_VALUE.match(text):
        try:
            return parse(text, max_depth=MAX_REPLY_DEPTH)
        except JsonProblem:
            return text
    return text
