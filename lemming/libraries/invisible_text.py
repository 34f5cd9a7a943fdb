"""Detection of invisible and misleading characters in a text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

# Invisible characters that Unicode calls letters or marks: fillers, joiners, selectors.
INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]")
_SMALL_CAPITAL = "LATIN LETTER SMALL CAPITAL "
_LATIN_LIKE_ALPHABETS = {"ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "DESERET", "GOTHIC", "LISU"}
"""Greek is not among them: kΩ and Δt are words."""
_USUAL_SIGNS = frozenset("‘’“”–—…·•×‐‑′″")
"""Look-alikes in everyday use, which are not reported."""
_HOST_AFTER_USERINFO = re.compile(r"://[^\s/?#@]*@([^\s/?#'\"<>]+)")
_STACKED_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4}")
_LONG_GAP = re.compile(r"[^\S\n]{60}|\n{20}")


def _is_escaped_in_display(character: str) -> bool:
    """Return True if a character is displayed as the code: invisible ones, selectors, and the escape brackets."""
    is_invisible = character != " " and (not character.isprintable() or bool(INVISIBLE.match(character)))
    return is_invisible or "\ufe00" <= character <= "\ufe0f" or character in "⟨⟩"


def show_invisible(text: str) -> str:
    r"""Return a text with invisible characters replaced by their codes.

    >>> show_invisible("a\u202eb\tc")
    'a⟨U+202E⟩b⟨U+0009⟩c'
    """
    return "".join(
        f"⟨U+{ord(character):04X}⟩" if _is_escaped_in_display(character) else character for character in text
    )


def find_suspicious_text(args: Any) -> Iterator[str]:
    r"""Yield warnings about suspicious text in a call's arguments: look-alike words, invisible characters.

    >>> list(find_suspicious_text({"command": "ls \u202e"}))
    ['signs that are not seen: U+202E']
    """
    text = "".join(_iter_texts(args))
    if not text.isascii():
        yield from _find_lookalikes(text)
    invisible = (character for previous, character in pairwise(f" {text}") if _is_hidden(character, previous))
    hidden = dict.fromkeys(f"U+{ord(character):04X}" for character in invisible)
    if hidden:
        yield f"signs that are not seen: {' '.join(hidden)}"
    if _LONG_GAP.search(text):
        yield "a long gap, with something behind it"
    if hosts := dict.fromkeys(_HOST_AFTER_USERINFO.findall(text)):
        yield f"an address that begins like another: it leads to {' '.join(map(show_invisible, hosts))}"
    if _STACKED_MARKS.search(text):
        yield "marks that are piled up on a letter, and may cover others"


def _is_hidden(character: str, previous: str) -> bool:
    """Return True if a character is invisible and not part of an emoji or of the preceding letter."""
    is_joined = (character == "\u200d" or "\ufe00" <= character <= "\ufe0f") and not previous.isascii()
    return _is_escaped_in_display(character) and not is_joined and character not in "\n\t⟨⟩"


def _find_look_alike(character: str) -> str:
    r"""Return the ASCII character a character looks like or stands for, or an empty string.

    >>> [_find_look_alike(letter) for letter in ("\u0430", "\u037e", "\uff1b", "\u1d00", "\u00e9", "a")]
    ['a', ';', ';', 'A', '', '']
    """
    if character.isascii():
        return ""
    import unicodedata  # only for unusual text: every command checks for invisible characters

    if character in _load_look_alikes():
        return _load_look_alikes()[character]
    plain = unicodedata.normalize("NFKC", character)
    if plain.isascii() and len(plain) == 1 and plain.isprintable() and plain != " ":
        return plain
    name = unicodedata.name(character, "")
    is_small_capital = name.startswith(_SMALL_CAPITAL) and len(name) == len(_SMALL_CAPITAL) + 1
    return name[-1] if is_small_capital else ""


@cache
def _load_look_alikes() -> Mapping[str, str]:
    import tomllib  # where a text is no plain one

    table = tomllib.loads(Path(__file__).with_name("look_alikes.toml").read_text("utf-8"))
    return {letter: plain for plain, letters in table.items() for letter in letters}


def _find_lookalikes(text: str) -> Iterator[str]:
    """Yield warnings about words with look-alike letters, and about look-alike signs."""
    import unicodedata

    for token in dict.fromkeys(re.findall(r"\w+", text)):
        if token.isascii():
            continue
        is_latin = any(sign.isascii() and sign.isalpha() for sign in token)
        suspicious = [
            character
            for character in token
            if _find_look_alike(character) or (is_latin and _has_latin_like_alphabet(character))
        ]
        if not suspicious:
            continue
        numbers = " ".join(dict.fromkeys(f"U+{ord(sign):04X}" for sign in suspicious))
        if is_latin:
            yield f"{show_invisible(token)} has letters of several alphabets: {numbers}"
        elif all(sign.isascii() or _find_look_alike(sign) for sign in token):
            yield f"{show_invisible(token)} looks like Latin letters, and has none: {numbers}"
    signs = [sign for sign in dict.fromkeys(text) if _is_lookalike_sign(sign, text)]
    if signs:
        signs_text = " ".join(f"U+{ord(sign):04X} for {_find_look_alike(sign)}" for sign in signs)
        yield f"signs that look like others: {signs_text}"
    for line in text.splitlines():
        if re.search(r"[0-9]", line) and any(unicodedata.bidirectional(character) in ("R", "AL") for character in line):
            yield "letters written from right to left beside numbers: these may be shown in another order"
            return


def _has_latin_like_alphabet(character: str) -> bool:
    """Return True for a letter of an alphabet that resembles Latin and is never mixed with Latin in a word."""
    import unicodedata

    return not character.isascii() and unicodedata.name(character, "").partition(" ")[0] in _LATIN_LIKE_ALPHABETS


def _is_lookalike_sign(sign: str, text: str) -> bool:
    """Return True if a sign next to plain letters resembles an ASCII sign."""
    if sign.isascii() or sign.isalnum() or sign in _USUAL_SIGNS or not _find_look_alike(sign):
        return False
    position = text.find(sign)
    neighbours = text[max(0, position - 1) : position] + text[position + 1 : position + 2]
    return any(neighbour.isascii() and not neighbour.isspace() for neighbour in neighbours)


def _iter_texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield f"{value}\n"
        case dict():
            for key, item in value.items():
                yield f"{key}\n"
                yield from _iter_texts(item)
        case list():
            for item in value:
                yield from _iter_texts(item)
