"""Texts that stand in other texts in disguise: behind escapes, with signs nobody sees, in base64, in hex.

Bytes become characters one by one there: what is not ASCII is UTF-8, read so.
"""

from __future__ import annotations

import binascii
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache

Place = Callable[[int, int], tuple[int, int]]
"""From where something stands in a text inside to where it stands in the outer one."""

MOST_IN_SHORT_LINES = 1 << 16
"""So many characters in lines shorter than a key are looked at as base64: lists of words are such."""
_ROUNDS = 4  # escapes of escapes of escapes
# Signs that nobody sees (soft hyphen, zero width, directions, variants), and letters in another dress.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"
)
_DRESSED = "\u2070-\u209c\u2102-\u2149\u2460-\u24e9\uff01-\uff5e\U0001d400-\U0001d7ff"
_in_disguise = cache(lambda: re.compile(f"[{_UNSEEN}{_DRESSED}]"))
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
_word = cache(lambda: re.compile(_LONG_WORD))
_word_or_lines = cache(lambda: re.compile(rf"{_LONG_WORD}|(?P<short>{_SHORT_LINES})"))
_SHORT_LINE = re.compile(rf"(?:\\n|\n)[ \t]*{_IN_BASE64}{{4,15}}+(?:\\+r)?(?:\\+n|\r?\n)")
_BETWEEN = re.compile(_LINE_END)
_HEX = re.compile(r"[0-9a-fA-F]{16,}")
_TO_STANDARD = str.maketrans("-_", "+/")


def texts_in(text: str, *, is_bytes: bool = False) -> Iterator[tuple[str, Place, bool]]:
    """Yield what a text may hold in disguise, how to find it there again, and whether it is bytes read so.

    >>> found = [inner for inner, _, _ in texts_in("%68ush and 68757368687573682068757368")]
    >>> "hush and 68757368687573682068757368" in found, "hushhush hush" in found
    (True, True)
    """
    if not is_bytes and is_dressed(text):
        yield *_undressed(text), False
    if _IS_ESCAPED.search(text):
        yield *_unescaped(text), is_bytes
    if not is_bytes and "=" in text and _IS_QUOTED_PRINTABLE.search(text):
        inner, back = _without([*_QUOTED_PRINTABLE.finditer(text)], text)
        yield inner, _both(back), False
    for word in _words_in(text, is_bytes=is_bytes):
        written, places = _in_one_line(word[0], word.start())
        standard = written.translate(_TO_STANDARD)
        for first in range(4):  # four signs are three bytes, and where a group begins is not known
            yield _from_base64(standard[first:]), _in_groups(places[first:], 3, 4), True
        for run in _HEX.finditer(written):
            for first in (run.start(), run.start() + 1):  # nor where a byte begins
                yield _from_hex(written[first : run.end()]), _in_groups(places[first:], 1, 2), True


def _words_in(text: str, *, is_bytes: bool) -> Iterator[re.Match[str]]:
    """Yield what may be base64 or hex: long words, and short ones line by line where there are such lines."""
    room = MOST_IN_SHORT_LINES
    words = _word if is_bytes or not is_in_short_lines(text) else _word_or_lines
    for word in words().finditer(text):
        if word.lastgroup == "short":
            room -= len(word[0])
        if word.lastgroup is None or room >= 0:
            yield word


def is_dressed(text: str) -> bool:
    """Return whether signs nobody sees, or letters in another dress, stand in a text."""
    return not text.isascii() and _in_disguise().search(text) is not None


def is_in_short_lines(text: str) -> bool:
    """Return whether a line of a text could be one of a key in base64 that is broken into short lines."""
    return ("\n" in text or "\\n" in text) and _SHORT_LINE.search(text) is not None


def _undressed(text: str) -> tuple[str, Place]:
    """Return a text in plain letters and without what nobody sees."""
    plain = text.translate({ord(sign): _plain(sign) for sign in {*_in_disguise().findall(text)}})

    def place(start: int, end: int) -> tuple[int, int]:
        if len(plain) == len(text):
            return start, end
        seen = [at for at, sign in enumerate(text) if not _in_disguise().match(sign) or _plain(sign)]
        return seen[start], seen[end - 1] + 1

    return plain, place


def _plain(sign: str) -> str:
    """Return what a sign in disguise is: one letter, itself where that is several, or nothing."""
    if unicodedata.category(sign) in ("Cf", "Mn", "Cn", "Lo"):
        return ""
    plain = unicodedata.normalize("NFKC", sign)
    return plain if len(plain) == 1 else sign


def _both(back: Callable[[int], int]) -> Place:
    return lambda start, end: (back(start), back(end))


def _unescaped(text: str) -> tuple[str, Place]:
    rounds: list[Callable[[int], int]] = []
    for _ in range(_ROUNDS):
        escapes = [*_escape().finditer(text)]
        if not escapes:
            break
        text, back = _without(escapes, text)
        rounds.insert(0, back)

    def place(start: int, end: int) -> tuple[int, int]:
        for back in rounds:
            start, end = back(start), back(end)
        return start, end

    return text, place


def _without(escapes: list[re.Match[str]], text: str) -> tuple[str, Callable[[int], int]]:
    """Return a text with what each escape means in its place, and the way back to where it was."""
    pieces: list[str] = []
    inner, outer = [0], [0]  # where there a stretch begins that is as long here
    at = end = 0
    for escape in escapes:
        meant = _meant(escape)
        pieces += text[end : escape.start()], meant
        at += escape.start() - end
        end = escape.end()
        inner += at, at + len(meant)
        outer += escape.start(), end
        at += len(meant)

    def back(position: int) -> int:
        stretch = bisect_right(inner, position) - 1
        return outer[stretch] + position - inner[stretch]

    return "".join([*pieces, text[end:]]), back


def _meant(escape: re.Match[str]) -> str:
    kind, written = escape.lastgroup, escape[escape.lastgroup or 0]
    match kind:
        case "soft_end":
            return ""
        case "sign":
            return _SIGNS.get(written, written)
        case "dec":
            return chr(int(written))
        case "octal":
            return chr(int(written, 8))
    return chr(int(written, 16))


def _in_one_line(word: str, start: int) -> tuple[str, range | list[int]]:
    """Return a word without the ends of lines in it, and where each of its characters is."""
    if "\n" not in word and "\\" not in word:  # much sooner found than by the pattern
        return word, range(start, start + len(word))
    places: list[int] = []
    end = 0
    for between in _BETWEEN.finditer(word):
        places += range(start + end, start + between.start())
        end = between.end()
    places += range(start + end, start + len(word))
    return _BETWEEN.sub("", word), places


def _from_base64(written: str) -> str:
    whole = written[: len(written) - (len(written) % 4 == 1)]  # one sign alone holds no byte
    return binascii.a2b_base64(whole + "=" * (-len(whole) % 4)).decode("latin-1")


def _from_hex(written: str) -> str:
    return bytes.fromhex(written[: len(written) & ~1]).decode("latin-1")  # half a byte at the end is none


def _in_groups(places: range | list[int], bytes_each: int, characters_each: int) -> Place:
    """Return the way back from bytes to the whole groups of characters that hold them."""

    def place(start: int, end: int) -> tuple[int, int]:
        last = min(-(-end // bytes_each) * characters_each, len(places)) - 1
        return places[start // bytes_each * characters_each], places[last] + 1

    return place
