"""What a text holds that a reader would not see, or would take for something else. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

# What shows nothing though Unicode calls it a letter or a mark: fillers, joiners, selectors.
INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]")
_OTHER_ALPHABETS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL")
_LIKE_LATIN = frozenset("асеорхуіјѕһԁԛԝАВЕКМНОРСТХУІЈЅορνΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
_BEHIND_AT = re.compile(r"://[^\s/?#@]*@([^\s/?#'\"<>]+)")
_PILED_UP = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4}")
_LONG_GAP = re.compile(r"[^\S\n]{60}|\n{20}")


def is_invisible(letter: str) -> bool:
    """Return whether a character shows nothing, or another thing than itself: all but letters and signs."""
    return letter != " " and (not letter.isprintable() or bool(INVISIBLE.match(letter)))


def is_unseen(letter: str) -> bool:
    """Return whether a character is to be shown as its number: selectors too, and the signs that do that."""
    return is_invisible(letter) or "\ufe00" <= letter <= "\ufe0f" or letter in "⟨⟩"


def with_unseen_shown(text: str) -> str:
    """Return a text in which what is not seen stands as its number.

    >>> with_unseen_shown("a\\u202eb\\tc")
    'a⟨U+202E⟩b⟨U+0009⟩c'
    """
    return "".join(f"⟨U+{ord(letter):04X}⟩" if is_unseen(letter) else letter for letter in text)


def notes_on(args: Any) -> Iterator[str]:
    """Yield what is to be looked at closely in a call: words that look like others, signs that are not seen.

    >>> list(notes_on({"command": "ls \\u202e"}))
    ['signs that are not seen: U+202E']
    """
    said = "".join(_texts_in(args))
    if not said.isascii():
        yield from _strange_words(said)
    found = (letter for before, letter in pairwise(f" {said}") if _is_hidden(letter, before))
    hidden = dict.fromkeys(f"U+{ord(letter):04X}" for letter in found)
    if hidden:
        yield f"signs that are not seen: {' '.join(hidden)}"
    if _LONG_GAP.search(said):
        yield "a long gap, with something behind it"
    if hosts := dict.fromkeys(_BEHIND_AT.findall(said)):
        yield f"an address that begins like another: it leads to {' '.join(map(with_unseen_shown, hosts))}"
    if _PILED_UP.search(said):
        yield "marks that are piled up on a letter, and may cover others"


def _is_hidden(letter: str, before: str) -> bool:
    """Return whether a character is unseen, and not part of a picture or of the letter before it."""
    is_joined = (letter == "\u200d" or "\ufe00" <= letter <= "\ufe0f") and not before.isascii()
    return is_unseen(letter) and not is_joined and letter not in "\n\t⟨⟩"


def _strange_words(text: str) -> Iterator[str]:
    import unicodedata

    for word in dict.fromkeys(re.findall(r"\w+", text)):
        if word.isascii():
            continue
        strange = [it for it in word if unicodedata.name(it, "").split(" ")[0] in _OTHER_ALPHABETS]
        if not strange:
            continue
        numbers = " ".join(dict.fromkeys(f"U+{ord(it):04X}" for it in strange))
        if any(it.isascii() and it.isalpha() for it in word):
            yield f"{with_unseen_shown(word)} has letters of several alphabets: {numbers}"
        elif _LIKE_LATIN.issuperset(strange):
            yield f"{with_unseen_shown(word)} looks like Latin letters, and has none: {numbers}"


def _texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield f"{value}\n"
        case dict():
            for key, each in value.items():
                yield f"{key}\n"
                yield from _texts_in(each)
        case list():
            for each in value:
                yield from _texts_in(each)
