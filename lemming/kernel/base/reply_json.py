"""Tolerant parsing of JSON in a model's reply: in prose, in fences, with small faults; and its one object. Pure.

Strict JSON is tried first. On failure, a literal parser also accepts trailing commas, single quotes, Python's
`True`, `False` and `None`, line ends inside a string, and missing closing brackets at the end. Nothing is
guessed: unquoted keys, comments and bare words are refused, and so are duplicate keys, NaN and deeply nested
values, as in strict JSON.

Every function is linear in the length of its text: a failed attempt is never parsed again from within.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, KeysView
from functools import partial
from typing import Any, NamedTuple

from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import MAX_DEPTH, MAX_DIGITS, JsonProblem, parse

# A reply goes into entries, the ledger and the journal, where it stands some levels deeper.
MAX_REPLY_DEPTH = MAX_DEPTH - 16
REPLY_LIMIT_BYTES = 1 << 20
# Keys of a dictionary are a set that has an order.
CONTRACT_KEYS = dict.fromkeys(("outbox_entries", "tool_calls", "memory_updates", "notes")).keys()
"""The four keys of a reply by the contract."""

_OBJECT = re.compile(r"\{(?=[ \t\r\n]*+[\"'}])")
_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*+")
# A string that never ends is one token up to the end: to look for its end from each quote is quadratic.
_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}]', re.DOTALL)
_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"' r"|'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_SCALAR = re.compile(r"(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|[A-Za-z]++)(?![\w.])")
_LITERAL_NAMES = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {**dict(zip("bfnrt", "\b\f\n\r\t", strict=True)), **{character: character for character in "\"'\\/"}}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ENDS = ("</", "```", "<|")
_THINKING = re.compile(r"\s*+<think(?:ing)?>", re.IGNORECASE)
_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_OPENS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_CONTENT = ("{", "[", "`", "<")
_MAX_STRICT_FAILURES = 32
"""After so many, strict JSON is not tried first: to say where it fails, it counts the lines up to there."""
_MAX_FAILURES = 4096
"""A text with more beginnings of objects that are none is no reply."""
_raw_decode = json.JSONDecoder().raw_decode


class FoundObject(NamedTuple):
    """An object in a text, with its start and end."""

    start: int
    end: int
    value: dict[str, Any]


class _Stuck(Exception):
    """Raised where the text stops being a literal. `is_deep`: True if only the depth is at fault."""

    def __init__(self, position: int, *, is_deep: bool = False) -> None:
        super().__init__(position)
        self.position, self.is_deep = position, is_deep


def drop_thinking(text: str) -> str:
    """Return a reply without its leading reasoning in `<think>...</think>`.

    For unclosed reasoning the result is empty: a call inside a model's reasoning is not a real call. Tags in
    the middle of a reply may be content, and stay.

    >>> drop_thinking("<think>Oslo is cold.</think> Snow.")
    'Snow.'
    """
    position = 0
    while match := _THINKING.match(text, position):
        end = _THOUGHT.search(text, match.end())
        if end is None:
            return ""
        position = end.end()
    reply = text[position:].strip()
    # Some chat templates write the opening tag into the prompt.
    end = None if position or reply.startswith(_CONTENT) else _THOUGHT.search(reply)
    if end and not _OPENS.search(reply, 0, end.start()):
        return reply[end.end() :].strip()
    return reply


def parse_whole_object(text: str) -> dict[str, Any] | None:
    """Return the object formed by the whole text, or None."""
    stripped = text.strip()
    candidate = next(find_objects(stripped), None) if stripped.startswith("{") else None
    return candidate.value if candidate and (candidate.start, candidate.end) == (0, len(stripped)) else None


def find_objects(text: str, *, is_cut_off: bool = False, is_strict: bool = False) -> Iterator[FoundObject]:
    """Yield the outermost objects of a text in order, without unreadable objects.

    Parts of an unreadable object are not treated as objects. `is_cut_off`: the reply ended at a limit, so
    missing brackets mean missing content. `is_strict`: accept no faults.
    """
    position, can_skip, failures = 0, True, 0
    while failures < _MAX_FAILURES and (match := _OBJECT.search(text, position)):
        start = match.start()
        try:
            value, position, is_faulty = _parse_candidate(
                text, start, is_cut_off, is_strict_first=failures < _MAX_STRICT_FAILURES
            )
            value = None if is_strict and is_faulty else value
            if value is not None:
                yield FoundObject(start, position, value)
            failures += value is None
        except _Stuck as stuck:
            failures += 1
            end = _find_end(text, start) if can_skip or stuck.is_deep else -1
            if end < 0 and stuck.is_deep:
                return
            can_skip = can_skip and end >= 0
            position = end if end >= 0 else max(stuck.position, start + 1)


def extract_object(
    text: str, remarks: list[str], keys: KeysView[str] = CONTRACT_KEYS, *, is_strict: bool = False
) -> dict[str, Any]:
    """Return the one JSON object of a reply: bare, or with a known key in a fence or prose."""
    stripped = text.strip() if is_strict else drop_thinking(text)
    if not stripped:
        raise ContractError("the reply is empty")
    require_size(stripped)
    try:
        value = parse(stripped, max_depth=MAX_REPLY_DEPTH)
        if not isinstance(value, dict):
            raise ContractError("the reply must be a JSON object")
        return value
    except JsonProblem as error:
        objects = _find_matching_objects(stripped, keys, is_strict)
        if objects and (objects[0].start, objects[0].end) == (0, len(stripped)):
            remarks.append("the JSON was not strict")
            return objects[0].value
        # a fence first: it holds what was meant, and the prose around it may quote other objects
        fenced_blocks = _FENCE.findall(stripped)
        candidates = [
            item for block in fenced_blocks for item in _find_matching_objects(block, keys, is_strict)
        ] or objects
        if len(candidates) == 1:
            remarks.append("the JSON stood in a code fence" if fenced_blocks else "the JSON stood in prose")
            return candidates[0].value
        if len(candidates) > 1:
            raise ContractError(f"the reply holds {len(candidates)} JSON objects; send exactly one") from error
        position = f" at line {error.line}, column {error.column}" if error.line else ""
        raise ContractError(f"the reply is not one JSON object: {error.message}{position}") from error


def require_size(text: str) -> None:
    """Raise `ContractError` for an oversized reply."""
    may_be_too_large = 4 * len(text) > REPLY_LIMIT_BYTES  # no character takes more than four bytes
    if may_be_too_large and len(text.encode("utf-8", "replace")) > REPLY_LIMIT_BYTES:
        raise ContractError(f"the reply is larger than {REPLY_LIMIT_BYTES} bytes")


def has_contract(text: str) -> bool:
    """Return True if a text holds one object with keys of the contract, even an invalid one."""
    try:
        return not extract_object(text, []).keys().isdisjoint(CONTRACT_KEYS)
    except ContractError:
        return False


def _find_matching_objects(text: str, keys: KeysView[str], is_strict: bool) -> list[FoundObject]:
    """Return the outermost JSON objects in a text with at least one of the keys."""
    return [candidate for candidate in find_objects(text, is_strict=is_strict) if not keys.isdisjoint(candidate.value)]


def parse_literal(text: str, position: int) -> tuple[Any, int]:
    """Return the complete literal at a position, and the end. Raise `JsonProblem` if there is none.

    >>> parse_literal("{'a': True, 'b': [1, 2,],}", 0)
    ({'a': True, 'b': [1, 2]}, 26)
    """
    try:
        value, end = _LiteralParser(text, is_cut_off=True).parse_value(position, 0)
    except _Stuck as stuck:
        raise JsonProblem(f"no literal at character {stuck.position}") from stuck
    return _require_strict(value), end


def _require_strict(value: Any) -> Any:
    """Return a value as strict JSON. Raise `JsonProblem` for a lone surrogate or an infinite number."""
    try:
        return parse(json.dumps(value), limit_bytes=1 << 26, max_depth=MAX_REPLY_DEPTH)
    except (ValueError, RecursionError) as error:
        raise JsonProblem(str(error)) from error


def _parse_candidate(
    text: str, start: int, is_cut_off: bool, *, is_strict_first: bool
) -> tuple[dict[str, Any] | None, int, bool]:
    """Return the object at a position (None if refused), the end, and True if it has faults."""
    is_faulty = False
    try:
        if not is_strict_first:
            raise JsonProblem("not tried")
        _, end = _raw_decode(text, start)
        load_value = partial(parse, text[start:end], limit_bytes=1 << 26, max_depth=MAX_REPLY_DEPTH)
    except (ValueError, RecursionError):
        value, end = _LiteralParser(text, is_cut_off).parse_value(start, 0)
        load_value, is_faulty = partial(_require_strict, value), is_strict_first
    try:
        return load_value(), end, is_faulty
    except JsonProblem:
        return None, end, is_faulty


def _find_end(text: str, start: int) -> int:
    """Return the position after the bracket that closes the bracket at `start`, or -1."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        bracket = match.group()
        depth += 1 if bracket == "{" else -1 if bracket == "}" else 0
        if depth == 0:
            return match.end()
    return -1


class _LiteralParser:
    """Parses literals of a text; each method takes a position and returns the position after the literal."""

    def __init__(self, text: str, is_cut_off: bool) -> None:
        self.text, self.is_cut_off = text, is_cut_off

    def parse_value(self, position: int, depth: int) -> tuple[Any, int]:
        position = self._skip(position)
        mark = self.text[position : position + 1]
        if mark in "{[" and mark:
            if depth == MAX_REPLY_DEPTH:
                raise _Stuck(position, is_deep=True)
            parse_items = self._parse_object if mark == "{" else self._parse_list
            return parse_items(position + 1, depth + 1)
        if mark in "\"'" and mark:
            return self._parse_string(position)
        match = _SCALAR.match(self.text, position)
        if match is None:
            raise _Stuck(position)
        return _to_scalar(match), match.end()

    def _parse_object(self, position: int, depth: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        while not self._has_mark(position := self._skip(position), "}"):
            if self.text[position : position + 1] not in ('"', "'"):
                raise _Stuck(position)
            key, key_end = self._parse_string(position)
            key_end = self._skip(key_end)
            if key in items or not self._has_mark(key_end, ":"):
                raise _Stuck(key_end)
            items[key], position = self.parse_value(key_end + 1, depth)
            position, has_more = self._after_item(position, "}")
            if not has_more:
                return items, position
        return items, position + 1

    def _parse_list(self, position: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while not self._has_mark(position := self._skip(position), "]"):
            item, position = self.parse_value(position, depth)
            items.append(item)
            position, has_more = self._after_item(position, "]")
            if not has_more:
                return items, position
        return items, position + 1

    def _after_item(self, position: int, closing: str) -> tuple[int, bool]:
        """Return the position after an item's separator, and True if another item may follow."""
        position = self._skip(position)
        if self._has_mark(position, ","):
            return position + 1, True
        if self._has_mark(position, closing):
            return position + 1, False
        # Small models leave closing brackets out: after a whole value, nothing else can be missing.
        is_end = position == len(self.text) or self.text.startswith(_ENDS, position)
        if is_end and not self.is_cut_off:
            return position, False
        raise _Stuck(position)

    def _parse_string(self, position: int) -> tuple[str, int]:
        match = _STRING.match(self.text, position)
        if match is None:
            raise _Stuck(position + 1)
        inner = match[1] if match[1] is not None else match[2]
        if _CONTROL.search(inner):
            raise _Stuck(match.end())
        if "\\" in inner:
            try:
                inner = _ESCAPE.sub(_unescape, inner)
            except KeyError:
                raise _Stuck(match.end()) from None
        return inner, match.end()

    def _skip(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return match.end() if match else position

    def _has_mark(self, position: int, mark: str) -> bool:
        return self.text.startswith(mark, position)


def _to_scalar(match: re.Match[str]) -> Any:
    scalar_text = match.group()
    if scalar_text[0].isalpha():
        if scalar_text not in _LITERAL_NAMES:
            raise _Stuck(match.start())
        return _LITERAL_NAMES[scalar_text]
    if not scalar_text.removeprefix("-").isdigit():
        return float(scalar_text)
    if len(scalar_text) > MAX_DIGITS:
        raise _Stuck(match.end())
    return int(scalar_text)


def _unescape(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    return chr(int(digits, 16)) if digits else _ESCAPES[match[4]]
