"""Strict reading and writing of JSON. Pure: bytes in, values out.

Python's own reader accepts NaN, duplicate keys and lone surrogates, and fails on deep nesting, huge integers
and bad UTF-8 with three different exceptions. Here each of these is a `JsonProblem` with a line, a column and
a sentence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import cache, lru_cache
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from json.scanner import make_scanner
from typing import Any

MAX_DEPTH = 64
RECORD_DEPTH = 2 * MAX_DEPTH  # journals and ledgers nest foreign values inside their own
MAX_INTEGER = 2**53
MAX_DIGITS = 4300  # Python reads and writes no longer integer as text
DEFAULT_LIMIT_BYTES = 1 << 20
_N, _I = b"NI"
_DIGITS = frozenset(b"0123456789")
_SEPARATOR = re.compile(r"[-_. ]")
_COUNTERS = re.compile(r"[0-9]+|(?<![A-Za-z])[A-Za-z]{1,2}(?![A-Za-z])")
_LONG_INTEGER = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))

# A string that never ends is one token up to the end: to look for its end from each quote is quadratic.
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]:,]|[^\s{}\[\]:,"]+')


class JsonProblem(ValueError):
    """The text is not strict JSON. `line` and `column` count from 1; 0 when unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0, pointer: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.column, self.pointer = message, line, column, pointer


class _ParseRejected(ValueError):
    """Raised inside the parser's hooks, where the position is unknown."""

    def __init__(self, message: str, *, key: str | None = None, literal: str = "") -> None:
        super().__init__(message)
        self.key, self.literal = key, literal


def parse(
    raw: bytes | str,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    allow_bom: bool = False,
    max_depth: int = MAX_DEPTH,
    any_integer: bool = True,
) -> Any:
    """Parse one strict JSON text. Raise `JsonProblem` for anything else.

    Integers are exact, up to `MAX_DIGITS`. Without `any_integer`, used for hand-written settings, they must
    fit in 53 bits, because many programs round larger integers.

    >>> parse('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    >>> parse('{"a":1,' + '"a":2}')
    Traceback (most recent call last):
    lemming.kernel.base.jsontext.JsonProblem: duplicate key "a"
    """
    text = _decode(raw, limit_bytes, allow_bom)
    try:
        value = _scan_value(text, _ANY if any_integer else _SMALL)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            raise JsonProblem("unexpected end of JSON", error.lineno, error.colno) from error
        raise JsonProblem(_plain_message(error.msg, text, error.pos), error.lineno, error.colno) from error
    except _ParseRejected as error:
        is_duplicate = error.key is not None
        pointer = _find_duplicate(text, error.key or "") if is_duplicate else _find_value(text, error.literal)
        raise JsonProblem(str(error), *locate(text, pointer), pointer) from error
    except RecursionError as error:
        raise JsonProblem(f"nesting deeper than {max_depth}") from error
    # counted first, which is quick: a text with fewer brackets cannot be deeper
    if text.count("[") + text.count("{") > max_depth and _depth(value) > max_depth:
        raise JsonProblem(f"nesting deeper than {max_depth}")
    # only an escape can produce a lone surrogate: the rest of the text was decoded already
    if "\\u" in text and ("\\ud" in text or "\\uD" in text):
        _require_encodable(value)
    return value


def dump_pretty(value: Any) -> bytes:
    """Return the bytes of a human-readable file: two spaces, key order kept, one line end."""
    return _dump(value, indent=2) + b"\n"


def dump_compact(value: Any) -> bytes:
    """Return the value on one line, without a line end."""
    return _dump(value)


def dump_pretty_flat(values: dict[str, str | int]) -> bytes:
    """Return the same as `dump_pretty` for a small flat object, without loading pydantic."""
    return json.dumps(values, ensure_ascii=False, indent=2).encode("utf-8", "replace") + b"\n"


def to_line(value: Any) -> str:
    """Return a value as JSON for prompts: on one line, with spaces."""
    return "".join(_pieces_of(value, 0))


# Made once: `json.JSONEncoder(ensure_ascii=False).encode` makes another for every value.
_refuse = json.JSONEncoder().default
_pieces_of = c_make_encoder(None, _refuse, encode_basestring, None, ": ", ", ", False, False, True)


def locate(text: str, pointer: str) -> tuple[int, int]:
    """Return (line, column) of the key or element at a JSON pointer, or (0, 0) if there is none."""
    offset = _pointer_offsets(text).get(pointer)
    if offset is None:
        return 0, 0
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def did_you_mean(name: str, candidates: Collection[str]) -> str:
    """Return `did you mean "x"?` for the closest candidate, or an empty string.

    >>> did_you_mean("modle", ["model", "title"])
    'did you mean "model"?'
    """
    match = closest_match(name, candidates)
    return f'did you mean "{match}"?' if match else ""


def closest_match(name: str, candidates: Collection[str]) -> str:
    """Return the closest candidate, or an empty string."""
    by_lowercase = {other.lower(): other for other in candidates}
    matches = get_close_matches(name, candidates, n=1, cutoff=0.6)
    matches = matches or [by_lowercase[other] for other in get_close_matches(name.lower(), by_lowercase, 1, 0.6)]
    # "exec", "org"
    prefix_matches = [other for other in candidates if len(name) > 2 and other.lower().startswith(name.lower())]
    return matches[0] if matches else prefix_matches[0] if len(prefix_matches) == 1 else ""


def correct_typo(name: str, candidates: Iterable[str]) -> str:
    """Return the candidate a name is surely a misspelling of, or an empty string in case of doubt.

    Stricter than `did_you_mean`: names that differ in digits, or in a part of two letters, are different
    names.

    >>> correct_typo("credit", ["credits", "gates"]), correct_typo("Gates", ["gates"]), correct_typo("worker_2", ["worker_1"])
    ('credits', 'gates', '')
    """
    return next((other for other in candidates if name != other and _is_typo(name, other)), "")


def _is_typo(name: str, other: str) -> bool:
    """Return True if two words differ by a single edit, so one is likely a typo of the other."""
    if _COUNTERS.findall(name) != _COUNTERS.findall(other):
        return False
    name, other = ("".join(_SEPARATOR.split(text.lower())) for text in (name, other))
    shorter = min(len(name), len(other))
    if name == other or shorter < 3 or (shorter == 3 and len(name) == len(other)):
        return name == other
    start = next((at for at, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), len(name))
    name_end, other_end = name[start:], other[start:]
    # one extra, missing or wrong letter, or two swapped letters
    is_single_edit = (
        name_end[1:] == other_end or name_end == other_end[1:] or name_end[1:] == other_end[1:]
        or (name_end[:2] == other_end[1::-1] and name_end[2:] == other_end[2:])
    )  # fmt: skip
    return is_single_edit or SequenceMatcher(None, name, other).ratio() > 0.87


def _dump(value: Any, indent: int | None = None) -> bytes:
    """Return strict JSON. Raise `ValueError` for a value outside JSON, including NaN.

    Half of a surrogate pair, as in a file name that is not UTF-8, is not text and becomes "?".
    """
    to_json, refusal = _writer()
    try:
        raw: bytes = to_json(value, indent=indent)
    except refusal as error:
        try:
            text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        except TypeError:
            raise error from None
        raw = to_json(json.loads(text), indent=indent)
    if len(raw) > MAX_DIGITS:
        _require_short_integers(raw)
    if isinstance(value, str):  # where these are words
        return raw
    # To look for one byte, as a number, takes next to no time, and most values have neither.
    if (_N in raw and b"NaN" in raw) or (_I in raw and b"Infinity" in raw):
        json.dumps(value, allow_nan=False, default=str)  # raises unless these are words in a string
    return raw


def _require_short_integers(raw: bytes) -> None:
    """Raise `ValueError` for JSON with an integer too long for any reader; the library writes any length."""
    # A longer run of digits covers one of these places, so nearly nothing is looked at.
    for position in range(MAX_DIGITS, len(raw), MAX_DIGITS):
        if raw[position] in _DIGITS and _LONG_INTEGER.search(raw, position - MAX_DIGITS, position + MAX_DIGITS + 1):
            parse(raw, limit_bytes=len(raw), max_depth=RECORD_DEPTH)  # in a string, they are no number
            return


@cache
def _writer() -> tuple[Any, type[Exception]]:
    """Return the JSON serialiser and its exception class, loaded on first use because reading needs neither."""
    from pydantic_core import PydanticSerializationError, to_json

    return to_json, PydanticSerializationError


def _decode(raw: bytes | str, limit_bytes: int, allow_bom: bool) -> str:
    if len(raw) > limit_bytes:
        raise JsonProblem(f"larger than {limit_bytes} bytes")
    if isinstance(raw, str):
        text = raw
        _require_encodable(text)
    else:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            column = error.start - raw.rfind(b"\n", 0, error.start)
            message = f"byte 0x{raw[error.start]:02x} at offset {error.start} is not UTF-8"
            raise JsonProblem(message, line, column) from error
    if text.startswith("\ufeff"):
        if not allow_bom:
            raise JsonProblem("starts with a byte order mark", 1, 1)
        text = text[1:]
    return text


def _plain_message(message: str, text: str, position: int) -> str:
    following = text[position:].lstrip()
    if following.startswith(("//", "/*", "#")):
        return "JSON has no comments"
    is_after_comma = following[:1] in ("}", "]") and text[:position].rstrip().endswith(",")
    if is_after_comma or message.startswith("Illegal trailing comma"):  # the latter in Python 3.13
        return "a comma before } or ] is not JSON"
    if message.startswith("Expecting property name"):
        return "expected a key in double quotes"
    return message[0].lower() + message[1:].removesuffix(" at").removesuffix(" starting")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        known_keys: set[str] = set()
        for key, _ in pairs:
            if key in known_keys:
                raise _ParseRejected(f'duplicate key "{key}"', key=key)
            known_keys.add(key)
    return result


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS and len(digits.lstrip("-")) > MAX_DIGITS:
        raise _ParseRejected(f"number out of range: more than {MAX_DIGITS} digits", literal=digits)
    return int(digits)


def _small_integer(digits: str) -> int:
    if len(digits) >= 16 and (len(digits) > 18 or abs(int(digits)) > MAX_INTEGER):  # 2**53 has sixteen
        raise _ParseRejected("number out of range: integers must fit in 53 bits", literal=digits)
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _ParseRejected("number out of range", literal=digits)
    return value


def _constant(name: str) -> None:
    raise _ParseRejected(f"{name} is not JSON", literal=name)


def _decoder(parse_int: Callable[[str], int]) -> tuple[json.JSONDecoder, Any]:
    """Return a decoder and the scanner."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_object, parse_int=parse_int, parse_float=_number, parse_constant=_constant
    )
    return decoder, make_scanner(decoder)  # type: ignore[arg-type]  # it takes the decoder's attributes


_ANY, _SMALL = _decoder(_integer), _decoder(_small_integer)


def _scan_value(text: str, by: tuple[json.JSONDecoder, Any]) -> Any:
    """Decode a text with the scanner directly, and with the full decoder only in case of an error."""
    decoder, scan = by
    try:
        value, end = scan(text, 0)
    except StopIteration:  # parses again, to report the error and its location
        return decoder.decode(text)
    return value if not text[end:].strip(" \t\n\r") else decoder.decode(text)


def _depth(value: Any) -> int:
    deepest, pending = 0, [(value, 1)]
    while pending:
        item, level = pending.pop()
        if isinstance(item, (dict, list)):
            deepest = max(deepest, level)
            children = item.values() if isinstance(item, dict) else item
            pending.extend((child, level + 1) for child in children)
    return deepest


def _require_encodable(value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise JsonProblem("a string holds half of a surrogate pair, which is not text") from error


@lru_cache(maxsize=1)  # several problems of one text are located one after another
def _pointer_offsets(text: str) -> Mapping[str, int]:
    """Map each JSON pointer of a possibly broken text to the offset of the key or element."""
    return dict(_walk(text))


def _find_duplicate(text: str, key: str) -> str:
    known_pointers: set[str] = set()
    for pointer, _ in _walk(text):
        if pointer.endswith(f"/{escape_pointer_key(key)}"):
            if pointer in known_pointers:
                return pointer
            known_pointers.add(pointer)
    return ""


def _find_value(text: str, literal: str) -> str:
    """Return the pointer of the first value written as `literal`."""
    offset = next((token.start() for token in TOKEN.finditer(text) if token.group() == literal), 0)
    pointer = ""
    for candidate, start in _walk(text):
        if start > offset:
            break
        pointer = candidate
    return pointer


def _walk(text: str) -> Iterator[tuple[str, int]]:
    """Yield (pointer, offset) for every key and array element, in text order."""
    yield "", 0
    path: list[str | int] = []
    open_brackets: list[str] = []
    expect_key = False
    for token in TOKEN.finditer(text):
        lexeme = token.group()
        in_array = bool(open_brackets) and open_brackets[-1] == "["
        if in_array and lexeme not in "],:}":
            yield _pointer(path), token.start()
        if lexeme in "{[":
            if len(path) == MAX_DEPTH:  # a broken text may open without end
                return
            open_brackets.append(lexeme)
            path.append(0 if lexeme == "[" else "")
            expect_key = lexeme == "{"
        elif lexeme in "}]" and open_brackets:
            open_brackets.pop()
            path.pop()
        elif lexeme == ",":
            if in_array and isinstance(path[-1], int):
                path[-1] += 1
            expect_key = not in_array
        elif expect_key and lexeme.startswith('"') and path:
            try:
                path[-1] = str(json.loads(lexeme, strict=False))
            except json.JSONDecodeError:
                path[-1] = lexeme.strip('"')
            yield _pointer(path), token.start()
            expect_key = False


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{escape_pointer_key(str(part))}" for part in path)


def escape_pointer_key(part: str) -> str:
    """Return a key escaped for a JSON pointer."""
    return part.replace("~", "~0").replace("/", "~1")


def is_equal_json(first: Any, second: Any) -> bool:
    """Return True for equal JSON values, in any order of keys.

    Unlike `==`, it distinguishes `true` from `1`: consent to one value is not consent to the other.

    >>> is_equal_json(dict(a=1, b=[2]), dict(b=[2], a=1)), is_equal_json({"live": 1}, {"live": True})
    (True, False)
    """
    return bool(first == second) and json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
