"""Encoded texts inside other texts: behind escapes, with invisible characters, in base64, in hex.

Decoded bytes become characters byte by byte; non-ASCII text therefore appears as its UTF-8 bytes.
"""

from __future__ import annotations

import binascii
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache

SpanMapper = Callable[[int, int], tuple[int, int]]
"""Maps a position in the decoded text to its position in the outer text."""

MAX_SHORT_LINE_CHARS = 1 << 16
"""Maximum characters in lines shorter than a key that are decoded as base64: word lists have such lines."""
_ROUNDS = 4  # escapes of escapes of escapes
# Invisible characters (soft hyphen, zero width, directions, variants), and styled forms of letters.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"
)
_STYLED_LETTERS = "\u2070-\u209c\u2102-\u2149\u2460-\u24e9\uff01-\uff5e\U0001d400-\U0001d7ff"
_in_disguise = cache(lambda: re.compile(f"[{_INVISIBLE}{_STYLED_LETTERS}]"))
_IS_ESCAPED = re.compile(r"\\(?:u[0-9a-f{]|U0000|x[2-7]|/|[01][0-7]{2})|%[2-7][0-9a-f]|&#x?[0-9a-f]", re.I)
_escape = cache(
    lambda: re.compile(
        r"\\\\*(?:(?-i:U)0000(?P<long>[0-9a-f]{4})|u(?P<u>[0-9a-f]{4})|u\{0{0,9}(?P<braced>[0-9a-f]{2,4})\}"
        r"|x(?P<x>[0-9a-f]{2})|(?P<octal>[01][0-7]{2})|(?P<sign>[/\"'\\nrt]))"
        r"|%(?P<percent>[0-9a-f]{2})|&#(?:x0{0,9}(?P<hex>[0-9a-f]{2,4})|0{0,9}(?P<dec>[0-9]{2,4}));?",
        re.I,
    )
)
_IS_QUOTED_PRINTABLE = re.compile(r"=(?:[2-7][0-9a-f]|\r?\n)", re.I)
_QUOTED_PRINTABLE = re.compile(r"=(?:(?P<percent>[0-9a-f]{2})|(?P<soft_end>[ \t]{0,9}\r?\n))", re.I)
_SIGNS = {"n": "\n", "r": "\r", "t": "\t"}

_LINE_END = r"(?:\\+r)?(?:\\+n|\r?\n)[ \t]*"
_IN_BASE64 = "[A-Za-z0-9+/_-]"
_SHORT_LINES = rf"(?<!{_IN_BASE64}){_IN_BASE64}{{4,15}}+(?:{_LINE_END}{_IN_BASE64}{{2,}}+){{2,}}"
_LONG_WORD = rf"{_IN_BASE64}{{16,}}(?:{_LINE_END}{_IN_BASE64}{{2,}})*"
_long_word_pattern = cache(lambda: re.compile(_LONG_WORD))
_word_or_lines = cache(lambda: re.compile(rf"{_LONG_WORD}|(?P<short>{_SHORT_LINES})"))
_SHORT_LINE = re.compile(rf"(?:\\n|\n)[ \t]*{_IN_BASE64}{{4,15}}+(?:\\+r)?(?:\\+n|\r?\n)")
_BETWEEN = re.compile(_LINE_END)
_HEX = re.compile(r"[0-9a-fA-F]{16,}")
_TO_STANDARD = str.maketrans("-_", "+/")


def find_hidden_texts(text: str, *, is_bytes: bool = False) -> Iterator[tuple[str, SpanMapper, bool]]:
    """Yield the decoded texts in a text, each with a span mapper, and True for decoded bytes.

    >>> found = [inner for inner, _, _ in find_hidden_texts("%68ush and 68757368687573682068757368")]
    >>> "hush and 68757368687573682068757368" in found, "hushhush hush" in found
    (True, True)
    """
    if not is_bytes and has_disguised_letters(text):
        yield *_normalize_letters(text), False
    if _IS_ESCAPED.search(text):
        yield *_unescape_text(text), is_bytes
    if not is_bytes and "=" in text and _IS_QUOTED_PRINTABLE.search(text):
        inner, map_position = _replace_escapes([*_QUOTED_PRINTABLE.finditer(text)], text)
        yield inner, lambda start, end: (map_position(start), map_position(end)), False
    for match in _find_encoded_words(text, is_bytes=is_bytes):
        joined, positions = _join_lines(match[0], match.start())
        standard = joined.translate(_TO_STANDARD)
        for first in range(4):  # four signs are three bytes, and where a group begins is not known
            written = standard[first:]
            padded = written[: len(written) - (len(written) % 4 == 1)]  # one sign alone holds no byte
            decoded = binascii.a2b_base64(padded + "=" * (-len(padded) % 4))
            yield decoded.decode("latin-1"), _in_groups(positions[first:], 3, 4), True
        for run in _HEX.finditer(joined):
            for first in (run.start(), run.start() + 1):  # nor where a byte begins
                # half a byte at the end is ignored
                decoded = bytes.fromhex(joined[first : first + ((run.end() - first) & ~1)])
                yield decoded.decode("latin-1"), _in_groups(positions[first:], 1, 2), True


def _find_encoded_words(text: str, *, is_bytes: bool) -> Iterator[re.Match[str]]:
    """Yield candidates for base64 or hex: long words, and sequences of short lines if there are any."""
    remaining_chars = MAX_SHORT_LINE_CHARS
    get_pattern = _long_word_pattern if is_bytes or not has_short_key_lines(text) else _word_or_lines
    for match in get_pattern().finditer(text):
        if match.lastgroup == "short":
            remaining_chars -= len(match[0])
        if match.lastgroup is None or remaining_chars >= 0:
            yield match


def has_disguised_letters(text: str) -> bool:
    """Return True if a text has invisible characters or stylised letters."""
    return not text.isascii() and _in_disguise().search(text) is not None


def has_short_key_lines(text: str) -> bool:
    """Return True if a line of a text could belong to a base64 key broken into short lines."""
    return ("\n" in text or "\\n" in text) and _SHORT_LINE.search(text) is not None


def _normalize_letters(text: str) -> tuple[str, SpanMapper]:
    """Return a text in plain letters, without invisible characters, and the span mapper."""
    plain = text.translate({ord(sign): _to_plain_letter(sign) for sign in {*_in_disguise().findall(text)}})

    def map_span(start: int, end: int) -> tuple[int, int]:
        if len(plain) == len(text):
            return start, end
        visible_positions = [
            position for position, sign in enumerate(text) if not _in_disguise().match(sign) or _to_plain_letter(sign)
        ]
        return visible_positions[start], visible_positions[end - 1] + 1

    return plain, map_span


def _to_plain_letter(sign: str) -> str:
    """Return the plain letter for a stylised one, the sign itself if there is no single letter, or nothing."""
    if unicodedata.category(sign) in ("Cf", "Mn", "Cn", "Lo"):
        return ""
    plain = unicodedata.normalize("NFKC", sign)
    return plain if len(plain) == 1 else sign


def _unescape_text(text: str) -> tuple[str, SpanMapper]:
    position_mappers: list[Callable[[int], int]] = []
    for _ in range(_ROUNDS):
        escapes = [*_escape().finditer(text)]
        if not escapes:
            break
        text, map_position = _replace_escapes(escapes, text)
        position_mappers.insert(0, map_position)

    def map_span(start: int, end: int) -> tuple[int, int]:
        for map_position in position_mappers:
            start, end = map_position(start), map_position(end)
        return start, end

    return text, map_span


def _replace_escapes(escapes: list[re.Match[str]], text: str) -> tuple[str, Callable[[int], int]]:
    """Return a text with decoded escapes, and a function that maps positions back."""
    pieces: list[str] = []
    inner, outer = [0], [0]  # where there a stretch begins that is as long here
    inner_position = end = 0
    for escape in escapes:
        decoded = _decode_escape(escape)
        pieces += text[end : escape.start()], decoded
        inner_position += escape.start() - end
        end = escape.end()
        inner += inner_position, inner_position + len(decoded)
        outer += escape.start(), end
        inner_position += len(decoded)

    def map_position(position: int) -> int:
        stretch = bisect_right(inner, position) - 1
        return outer[stretch] + position - inner[stretch]

    return "".join([*pieces, text[end:]]), map_position


def _decode_escape(escape: re.Match[str]) -> str:
    kind, code = escape.lastgroup or "", escape[escape.lastgroup or 0]
    if kind in ("soft_end", "sign"):
        return "" if kind == "soft_end" else _SIGNS.get(code, code)
    return chr(int(code, {"dec": 10, "octal": 8}.get(kind, 16)))


def _join_lines(text: str, start: int) -> tuple[str, range | list[int]]:
    """Return a word without line ends, and the original position of each of the characters."""
    if "\n" not in text and "\\" not in text:  # much sooner found than by the pattern
        return text, range(start, start + len(text))
    positions: list[int] = []
    end = 0
    for between in _BETWEEN.finditer(text):
        positions += range(start + end, start + between.start())
        end = between.end()
    positions += range(start + end, start + len(text))
    return _BETWEEN.sub("", text), positions


def _in_groups(positions: range | list[int], bytes_each: int, characters_each: int) -> SpanMapper:
    """Return a span mapper from bytes to the whole groups of characters that encode them."""

    def map_span(start: int, end: int) -> tuple[int, int]:
        last = min(-(-end // bytes_each) * characters_each, len(positions)) - 1
        return positions[start // bytes_each * characters_each], positions[last] + 1

    return map_span
