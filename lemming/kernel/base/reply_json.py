"""JSON as models write it into the text of a reply: in prose, in fences, with small faults. Pure.

Strict JSON is tried first. What fails is read once more by a reader of literals that also takes a comma too
many, single quotes, Python's `True`, `False` and `None`, line ends inside a string, and closing brackets that
are missing at the end. Nothing is guessed: a key without quotes, a comment or a bare word is refused, and so
are duplicate keys, NaN and values that are too deep, as in strict JSON.

Every function is linear in the length of its text: a failed attempt is never read again from within.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from lemming.kernel.base.jsontext import MAX_DEPTH, MAX_DIGITS, JsonProblem, parse

# A reply goes into entries, the ledger and the journal, where it stands some levels deeper.
MAX_REPLY_DEPTH = MAX_DEPTH - 16

_OBJECT = re.compile(r"\{(?=[ \t\r\n]*+[\"'}])")
_SPACE = re.compile(r"[ \t\r\n]*+")
# A string that never ends is one token up to the end: to look for its end from each quote is quadratic.
_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}]', re.DOTALL)
_STRING = re.compile(
    r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"' r"|'([^'\\]*+(?:\\.[^'\\]*+)*+)'",
    re.DOTALL,
)
_SCALAR = re.compile(r"(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|[A-Za-z]++)(?![\w.])")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(.))", re.DOTALL
)
_ESCAPES = {**dict(zip("bfnrt", "\b\f\n\r\t", strict=True)), **{it: it for it in "\"'\\/"}}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ENDS = ("</", "```", "<|")
_THINKING = re.compile(r"\s*+<think(?:ing)?>", re.IGNORECASE)
_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_OPENS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_CONTENT = ("{", "[", "`", "<")
_STRICT_FAILURES = 32
"""After so many, strict JSON is not tried first: to say where it fails, it counts the lines up to there."""
_MOST_FAILURES = 4096
"""A text with more beginnings of objects that are none is no reply."""
_raw_decode = json.JSONDecoder().raw_decode


class FoundObject(NamedTuple):
    """An object in a text, and the place where it stands."""

    start: int
    end: int
    value: dict[str, Any]


class _Stuck(Exception):
    """The text is no literal from here on. `is_deep`: only for its depth."""

    def __init__(self, position: int, *, is_deep: bool = False) -> None:
        super().__init__(position)
        self.position, self.is_deep = position, is_deep


def drop_thinking(text: str) -> str:
    """Return a reply without the reasoning that it begins with, as `<think>...</think>`.

    Reasoning that never ends leaves nothing: a call that a model thinks of is not a call that it makes. Tags
    in the middle of a reply may be its content, and stay.

    >>> drop_thinking("<think>Oslo is cold.</think> Snow.")
    'Snow.'
    """
    position = 0
    while match := _THINKING.match(text, position):
        end = _THOUGHT.search(text, match.end())
        if end is None:
            return ""
        position = end.end()
    rest = text[position:].strip()
    # Some chat templates write the opening tag into the prompt.
    end = None if position or rest.startswith(_CONTENT) else _THOUGHT.search(rest)
    if end and not _OPENS.search(rest, 0, end.start()):
        return rest[end.end() :].strip()
    return rest


def read_object(text: str, *, is_cut_off: bool = False) -> dict[str, Any] | None:
    """Return the object that the whole text is, or None."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return None
    try:
        value = parse(stripped, max_depth=MAX_REPLY_DEPTH)
    except JsonProblem:
        try:
            value, end = read_literal(stripped, 0, is_cut_off=is_cut_off)
        except JsonProblem:
            return None
        if end < len(stripped):
            return None
    return value if isinstance(value, dict) else None


def find_objects(text: str, *, is_cut_off: bool = False, is_strict: bool = False) -> Iterator[FoundObject]:
    """Yield the outermost objects of a text in order, without those that cannot be read.

    The parts of an object that cannot be read are not objects of the text. `is_cut_off`: the reply ended at
    a limit, and missing brackets are missing content. `is_strict`: no fault is admitted.
    """
    position, can_skip, failures = 0, True, 0
    while failures < _MOST_FAILURES and (match := _OBJECT.search(text, position)):
        start = match.start()
        try:
            value, position, is_faulty = _read_object_at(
                text, start, is_cut_off, is_strict_first=failures < _STRICT_FAILURES
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


def read_literal(text: str, position: int, *, is_cut_off: bool = False) -> tuple[Any, int]:
    """Return the literal that begins at a position, and its end; raise `JsonProblem` where there is none.

    >>> read_literal("{'a': True, 'b': [1, 2,],}", 0)
    ({'a': True, 'b': [1, 2]}, 26)
    """
    try:
        value, end = _Literals(text, is_cut_off).read(position, 0)
    except _Stuck as stuck:
        raise JsonProblem(f"no literal at character {stuck.position}") from stuck
    return _checked(value), end


def _checked(value: Any) -> Any:
    """Return a value as strict JSON has it; raise `JsonProblem` for half a character or an endless number."""
    try:
        return parse(json.dumps(value), limit_bytes=1 << 26, max_depth=MAX_REPLY_DEPTH)
    except (ValueError, RecursionError) as error:
        raise JsonProblem(str(error)) from error


def _read_object_at(
    text: str, start: int, is_cut_off: bool, *, is_strict_first: bool
) -> tuple[dict[str, Any] | None, int, bool]:
    """Return the object at a place, or None for one that is refused, its end, and whether it has faults."""
    is_faulty = False
    try:
        if not is_strict_first:
            raise JsonProblem("not tried")
        _, end = _raw_decode(text, start)
        read = partial(parse, text[start:end], limit_bytes=1 << 26, max_depth=MAX_REPLY_DEPTH)
    except (ValueError, RecursionError):
        value, end = _Literals(text, is_cut_off).read(start, 0)
        read, is_faulty = partial(_checked, value), is_strict_first
    try:
        return read(), end, is_faulty
    except JsonProblem:
        return None, end, is_faulty


def _find_end(text: str, start: int) -> int:
    """Return the place after the bracket that closes the one at `start`; -1 where none does."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        bracket = match.group()
        depth += 1 if bracket == "{" else -1 if bracket == "}" else 0
        if depth == 0:
            return match.end()
    return -1


class _Literals:
    """Reads literals of one text: every method takes a position and returns the one after its literal."""

    def __init__(self, text: str, is_cut_off: bool) -> None:
        self.text, self.is_cut_off = text, is_cut_off

    def read(self, position: int, depth: int) -> tuple[Any, int]:
        position = self._skip(position)
        mark = self.text[position : position + 1]
        if mark in "{[" and mark:
            if depth == MAX_REPLY_DEPTH:
                raise _Stuck(position, is_deep=True)
            read_items = self._read_object if mark == "{" else self._read_list
            return read_items(position + 1, depth + 1)
        if mark in "\"'" and mark:
            return self._read_string(position)
        match = _SCALAR.match(self.text, position)
        if match is None:
            raise _Stuck(position)
        return _to_scalar(match), match.end()

    def _read_object(self, position: int, depth: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        while not self._is_at(position := self._skip(position), "}"):
            if self.text[position : position + 1] not in ('"', "'"):
                raise _Stuck(position)
            key, after = self._read_string(position)
            after = self._skip(after)
            if key in items or not self._is_at(after, ":"):
                raise _Stuck(after)
            items[key], position = self.read(after + 1, depth)
            position, has_more = self._after_item(position, "}")
            if not has_more:
                return items, position
        return items, position + 1

    def _read_list(self, position: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while not self._is_at(position := self._skip(position), "]"):
            item, position = self.read(position, depth)
            items.append(item)
            position, has_more = self._after_item(position, "]")
            if not has_more:
                return items, position
        return items, position + 1

    def _after_item(self, position: int, closing: str) -> tuple[int, bool]:
        """Return the place after what follows an item, and whether another may follow."""
        position = self._skip(position)
        if self._is_at(position, ","):
            return position + 1, True
        if self._is_at(position, closing):
            return position + 1, False
        # Small models leave closing brackets out: after a whole value, nothing else can be missing.
        is_end = position == len(self.text) or self.text.startswith(_ENDS, position)
        if is_end and not self.is_cut_off:
            return position, False
        raise _Stuck(position)

    def _read_string(self, position: int) -> tuple[str, int]:
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

    def _is_at(self, position: int, mark: str) -> bool:
        return self.text.startswith(mark, position)


def _to_scalar(match: re.Match[str]) -> Any:
    written = match.group()
    if written[0].isalpha():
        if written not in _WORDS:
            raise _Stuck(match.start())
        return _WORDS[written]
    if not written.removeprefix("-").isdigit():
        return float(written)
    if len(written) > MAX_DIGITS:
        raise _Stuck(match.end())
    return int(written)


def _unescape(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    return chr(int(digits, 16)) if digits else _ESCAPES[match[4]]
