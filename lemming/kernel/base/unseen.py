"""What a text holds that a reader would not see, or would take for something else. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

# What shows nothing though Unicode calls it a letter or a mark: fillers, joiners, selectors.
INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]")
_SMALL_CAPITAL = "LATIN LETTER SMALL CAPITAL "
_LIKE_ALPHABETS = {"ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "DESERET", "GOTHIC", "LISU"}
"""Greek is not among them: kΩ and Δt are words."""
_USUAL_SIGNS = frozenset("‘’“”–—…·•×‐‑′″")
"""Signs that people write every day: they look like others, and nobody is told so of each."""
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


def look_alike(letter: str) -> str:
    """Return the character of ASCII that another one looks like, or stands for; empty where there is none.

    >>> [look_alike(letter) for letter in ("\u0430", "\u037e", "\uff1b", "\u1d00", "\u00e9", "a")]
    ['a', ';', ';', 'A', '', '']
    """
    if letter.isascii():
        return ""
    import unicodedata  # where a text is no plain one: every command looks here for what is not seen

    if letter in _alike():
        return _alike()[letter]
    plain = unicodedata.normalize("NFKC", letter)
    if plain.isascii() and len(plain) == 1 and plain.isprintable() and plain != " ":
        return plain
    name = unicodedata.name(letter, "")
    is_small_capital = name.startswith(_SMALL_CAPITAL) and len(name) == len(_SMALL_CAPITAL) + 1
    return name[-1] if is_small_capital else ""


@cache
def _alike() -> Mapping[str, str]:
    from lemming.kernel.base.look_alikes import LIKE  # where a text is no plain one

    return {letter: plain for plain, letters in LIKE.items() for letter in letters}


def _strange_words(text: str) -> Iterator[str]:
    """Yield words with letters that are not what they look like, and signs of which the same is so."""
    import unicodedata

    for word in dict.fromkeys(re.findall(r"\w+", text)):
        if word.isascii():
            continue
        is_latin = any(letter.isascii() and letter.isalpha() for letter in word)
        strange = [it for it in word if look_alike(it) or (is_latin and _is_of_like_alphabet(it))]
        if not strange:
            continue
        numbers = " ".join(dict.fromkeys(f"U+{ord(letter):04X}" for letter in strange))
        if is_latin:
            yield f"{with_unseen_shown(word)} has letters of several alphabets: {numbers}"
        elif all(letter.isascii() or look_alike(letter) for letter in word):
            yield f"{with_unseen_shown(word)} looks like Latin letters, and has none: {numbers}"
    signs = [letter for letter in dict.fromkeys(text) if _is_strange_sign(letter, text)]
    if signs:
        signs_text = " ".join(f"U+{ord(letter):04X} for {look_alike(letter)}" for letter in signs)
        yield f"signs that look like others: {signs_text}"
    for line in text.splitlines():
        if re.search(r"[0-9]", line) and any(unicodedata.bidirectional(it) in ("R", "AL") for it in line):
            yield "letters written from right to left beside numbers: these may be shown in another order"
            return


def _is_of_like_alphabet(letter: str) -> bool:
    """Return True for a letter of an alphabet whose letters no word shares with Latin ones."""
    import unicodedata

    return not letter.isascii() and unicodedata.name(letter, "").partition(" ")[0] in _LIKE_ALPHABETS


def _is_strange_sign(letter: str, text: str) -> bool:
    """Return True if a sign beside plain letters looks like one of ASCII, and is none."""
    if letter.isascii() or letter.isalnum() or letter in _USUAL_SIGNS or not look_alike(letter):
        return False
    place = text.find(letter)
    beside = text[max(0, place - 1) : place] + text[place + 1 : place + 2]
    return any(it.isascii() and not it.isspace() for it in beside)


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
