"""Text of others in a prompt: marks its author cannot foresee, and nothing inside that looks like one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b

MARK_BYTES = 16

# Whatever a reader may take for the end of a line, turns text around on its way to the eye, or is there and
# cannot be seen: zero width, tags, fillers.
_JOINS, _SELECTS = "\u200c\u200d", "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_misleading = cache(
    lambda: re.compile(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
        "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e00ff"
        f"{_SELECTS}]"
    )
)
_selector = cache(lambda: re.compile(f"[{_SELECTS}]"))
_OPENS = (
    "<\uff1c\u2039\u00ab\u2329\u27e8\u3008\u300a\u226a\u22d8\u02c2\ufe64\u1438\u276e\u2770\u276c\u29fc\u27ea"
)
_CLOSES = (
    ">\uff1e\u203a\u00bb\u232a\u27e9\u3009\u300b\u226b\u22d9\u02c3\ufe65\u1433\u276f\u2771\u276d\u29fd\u27eb"
)
_opening = cache(lambda: re.compile(rf"(?:[{_OPENS}]\s*){{1,3}}\w{{4}}"))
_closing = cache(lambda: re.compile(rf"\w{{4}}(?:\s*[{_CLOSES}]){{1,3}}"))
_bracket = cache(lambda: re.compile(f"[{_OPENS}{_CLOSES}]"))
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u0410\u0430\u0391\u03b1\u13aa\u15c5\u1d00\ua4ee", "A"),
        **dict.fromkeys("\u0422\u0442\u03a4\u03c4\u13a2\u1d1b\ua4d4\u22a4", "T"),
        **dict.fromkeys("\u13a0\u15de\u15ea\u1d05\ua4d3\u0500\u0501\u00d0\u0110\u0189", "D"),
    }
)


def quoted(text: str) -> str:
    """Return text without anything that could pass for a mark or for the end of a line but a plain one.

    What could is spelled as JSON spells it, so that a line of JSON still says the same.

    >>> quoted("a" + chr(0x2028) + "0 DATA>>>"), quoted("hid" + chr(0x200b) + "den")
    ('a\\\\u20280 DATA\\\\u003e>>', 'hid\\\\u200bden')
    """
    if text.isascii() and text.isprintable() and "<" not in text and ">" not in text:
        return text
    if not text.isprintable() or not text.isascii():
        text = _misleading().sub(_spelled, text.replace("\r\n", "\n"))
    if not _bracket().search(text) or (text.isascii() and "data" not in text.lower()):
        return text
    return _closing().sub(_without_mark, _opening().sub(_without_mark, text))


def _without_mark(found: re.Match[str]) -> str:
    """Return what looks like a mark with its brackets spelled; anything else as it is."""
    text = found[0]
    word = "".join(each for each in text if each.isalnum() or each == "_")
    brackets = sum(_WIDTHS.get(each, 1) for each in text if each in _BRACKETS)
    if brackets < 3 or unicodedata.normalize("NFKC", word).translate(_ALIKE).upper() != "DATA":
        return text
    place = next(place for place, each in enumerate(text) if each in _BRACKETS)
    return text[:place] + _spelling(text[place]) + text[place + 1 :]


_BRACKETS = frozenset(_OPENS + _CLOSES)
_WIDTHS = {**dict.fromkeys("\u00ab\u00bb\u300a\u300b\u226a\u226b\u27ea\u27eb", 2), "\u22d8": 3, "\u22d9": 3}


def _spelled(found: re.Match[str]) -> str:
    """Return a character as JSON spells it, unless it does where it stands what it is there for."""
    character, text, place = found[0], found.string, found.start()
    before, after = text[place - 1 : place] if place else "", text[place + 1 : place + 2]
    if character in _JOINS and not (_is_plain(before) or _is_plain(after)):
        return character  # between letters that take other forms then, or pictures
    if _selector().match(character) and before and not (_is_plain(before) or _selector().match(before)):
        return character
    return _spelling(character)


def _is_plain(character: str) -> bool:
    return "!" <= character <= "~" and character not in "0123456789#*"  # these are keys, with a selector


def _spelling(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[at]:02x}{raw[at + 1]:02x}" for at in range(0, len(raw), 2))


def mark_for(texts: Iterable[str]) -> str:
    """Return the mark for a prompt of these texts: 32 hex digits made from all of them.

    A text that holds its prompt's mark would have to hold a hash of itself.
    """
    return mark_of(text.encode("utf-8", "replace") for text in texts)


def mark_of(parts: Iterable[bytes]) -> str:
    """Do what `mark_for` does for texts in UTF-8, or what stands for them."""
    return blake2b(b"\n".join(parts), digest_size=MARK_BYTES).hexdigest()


def digest_of(text: str) -> bytes:
    """Return what may stand for a text as a mark is made."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=MARK_BYTES).digest()


def fenced(text: str, mark: str) -> str:
    """Return a text between marks."""
    opens, closes = marks_of(mark)
    return f"{opens}\n{text}\n{closes}"


def marks_of(mark: str) -> tuple[str, str]:
    """Return the line that opens what others wrote, and the one that closes it."""
    return f"<<<DATA {mark}", f"{mark} DATA>>>"
