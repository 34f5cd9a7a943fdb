"""Calls with arguments in special tags, as Qwen3-Coder and GLM write them. Pure.

    <function=weather><parameter=city>Oslo</parameter></function>
    <tool_call>weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>

A value is text, except for a JSON number, list, object, `true`, `false` or `null`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lemming.kernel.base.call_shapes import CallShapes, RawCall
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.reply_json import MAX_REPLY_DEPTH

_BEGINS = re.compile(r"<function=([\w.-]{1,200})>\s*+(?=<parameter=)|<tool_call>\s*+([\w.-]{1,200})\s*+(?=<arg_key>)")
_PARAMETER = re.compile(r"\s*+<parameter=([\w.-]{1,200})>\n?")
_ARGUMENT = re.compile(r"\s*+<arg_key>\s*+([\w.-]{1,200})\s*+</arg_key>\s*+<arg_value>\n?")
_PLAIN = re.compile(r"-?[0-9]|[\[{]|(?:true|false|null)\Z")


def find_tagged_calls(text: str, shapes: CallShapes) -> Iterator[tuple[int, int, RawCall]]:
    """Yield the calls in special tags, each with start and end."""
    position = 0
    while match := _BEGINS.search(text, position):
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
    pattern, close = (_PARAMETER, "</parameter>") if is_parameter else (_ARGUMENT, "</arg_value>")
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
    if _PLAIN.match(text):
        try:
            return parse(text, max_depth=MAX_REPLY_DEPTH)
        except JsonProblem:
            return text
    return text
