"""Texts that stand in other texts in disguise: behind escapes, in base64, in hex.

Bytes become characters one by one there: what is not ASCII is UTF-8, read so.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

Place = Callable[[int, int], tuple[int, int]]
"""From where something stands in a text inside to where it stands in the outer one."""

_ROUNDS = 4  # escapes of escapes of escapes
_IS_ESCAPED = re.compile(r"\\(?:u00[2-7]|x[2-7]|/)|%[2-7][0-9a-f]|&#x?[0-9a-f]", re.I)
_ESCAPE = re.compile(
    r"\\\\*(?:u(?P<u>[0-9a-f]{4})|x(?P<x>[0-9a-f]{2})|(?P<sign>[/\"'\\nrt]))"
    r"|%(?P<percent>[0-9a-f]{2})|&#(?:x(?P<hex>[0-9a-f]{2,4})|(?P<dec>[0-9]{2,4}));",
    re.I,
)
_SIGNS = {"n": "\n", "r": "\r", "t": "\t"}

_LINE_END = r"(?:\\+r)?(?:\\+n|\r?\n)[ \t]*"
_WORD = re.compile(rf"[A-Za-z0-9+/_-]{{16,}}(?:{_LINE_END}[A-Za-z0-9+/_-]{{2,}})*")
_BETWEEN = re.compile(_LINE_END)
_HEX = re.compile(r"[0-9a-fA-F]{16,}")
_TO_STANDARD = str.maketrans("-_", "+/")


def texts_in(text: str) -> Iterator[tuple[str, Place]]:
    """Yield what a text may hold in disguise, and how to find it there again.

    >>> found = [inner for inner, _ in texts_in("%68ush and 68757368687573682068757368")]
    >>> "hush and 68757368687573682068757368" in found, "hushhush hush" in found
    (True, True)
    """
    if _IS_ESCAPED.search(text):
        yield _unescaped(text)
    for word in _WORD.finditer(text):
        written, places = _in_one_line(word[0], word.start())
        standard = written.translate(_TO_STANDARD)
        for first in range(4):
            yield _from_base64(standard[first:]), _in_groups(places[first:], 3, 4)
        for run in _HEX.finditer(written):
            for first in (run.start(), run.start() + 1):
                yield _from_hex(written[first : run.end()]), _in_groups(places[first:], 1, 2)


def _unescaped(text: str) -> tuple[str, Place]:
    rounds: list[Callable[[int], int]] = []
    for _ in range(_ROUNDS):
        escapes = [*_ESCAPE.finditer(text)]
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
    """Return a text with the one character in place of each escape, and the way back to where it was."""
    pieces: list[str] = []
    inner, outer = [0], [0]  # where there a stretch begins that is as long here
    at = end = 0
    for escape in escapes:
        pieces += text[end : escape.start()], _meant(escape)
        at += escape.start() - end
        end = escape.end()
        inner += at, at + 1
        outer += escape.start(), end
        at += 1

    def back(position: int) -> int:
        stretch = bisect_right(inner, position) - 1
        return outer[stretch] + position - inner[stretch]

    return "".join([*pieces, text[end:]]), back


def _meant(escape: re.Match[str]) -> str:
    if sign := escape["sign"]:
        return _SIGNS.get(sign, sign)
    if escape["dec"]:
        return chr(int(escape["dec"]))
    return chr(int(escape["u"] or escape["x"] or escape["percent"] or escape["hex"], 16))


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
    whole = written[: len(written) - (len(written) % 4 == 1)]
    return binascii.a2b_base64(whole + "=" * (-len(whole) % 4)).decode("latin-1")


def _from_hex(written: str) -> str:
    return bytes.fromhex(written[: len(written) & ~1]).decode("latin-1")


def _in_groups(places: range | list[int], bytes_each: int, characters_each: int) -> Place:
    """Return the way back from bytes to the whole groups of characters that hold them."""

    def place(start: int, end: int) -> tuple[int, int]:
        last = min(-(-end // bytes_each) * characters_each, len(places)) - 1
        return places[start // bytes_each * characters_each], places[last] + 1

    return place
