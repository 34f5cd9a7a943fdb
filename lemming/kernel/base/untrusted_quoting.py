"""Quoting of untrusted text in prompts, such that the text cannot leave its quotation. Pure.

Longer texts stand between markers, which are unpredictable for the author and escaped inside the text. A
single-line text of an entry is quoted as a JSON string, and every line of a longer one begins with `> `.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from lemming.kernel.base.jsontext import to_line

MARK_BYTES = 16
LINE_CHARS = 70_000
QUOTED_LINE_START = "\n> "
ENGINE_KEYS = frozenset(
    {
        "budget", "conversation", "deadline", "default", "join", "parent", "path", "reply_to", "schema",
        "spent", "step", "target", "verify", "within",
    }
)  # fmt: skip
"""Keys of a payload that locate an entry, without content of the question or answer."""
_HIDDEN_KEYS = ENGINE_KEYS | {"asked", "call", "hops", "not_after", "owed_to"}
_ROUTING_KEYS = frozenset({"conversation", "hops", "parent", "reply_to", "target"})
"""Keys that the engine reads or writes in an entry that neither asks nor answers; others are its author's."""

# Whatever a reader may take for the end of a line, turns text around on its way to the eye, or is there and
# cannot be seen: zero width, tags, fillers.
_JOINERS, _SELECTORS = "\u200c\u200d", "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_misleading = cache(
    lambda: re.compile(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
        "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e00ff"
        f"{_SELECTORS}]"
    )
)
_selector = cache(lambda: re.compile(f"[{_SELECTORS}]"))
_OPENING_BRACKETS = (
    "<\uff1c\u2039\u00ab\u2329\u27e8\u3008\u300a\u226a\u22d8\u02c2\ufe64\u1438\u276e\u2770\u276c\u29fc\u27ea"
)
_CLOSING_BRACKETS = (
    ">\uff1e\u203a\u00bb\u232a\u27e9\u3009\u300b\u226b\u22d9\u02c3\ufe65\u1433\u276f\u2771\u276d\u29fd\u27eb"
)
_opening = cache(lambda: re.compile(rf"(?:[{_OPENING_BRACKETS}]\s*){{1,3}}\w{{4}}"))
_closing = cache(lambda: re.compile(rf"\w{{4}}(?:\s*[{_CLOSING_BRACKETS}]){{1,3}}"))
_bracket = cache(lambda: re.compile(f"[{_OPENING_BRACKETS}{_CLOSING_BRACKETS}]"))
_LOOK_ALIKES = str.maketrans(
    {
        **dict.fromkeys("\u0410\u0430\u0391\u03b1\u13aa\u15c5\u1d00\ua4ee", "A"),
        **dict.fromkeys("\u0422\u0442\u03a4\u03c4\u13a2\u1d1b\ua4d4\u22a4", "T"),
        **dict.fromkeys("\u13a0\u15de\u15ea\u1d05\ua4d3\u0500\u0501\u00d0\u0110\u0189", "D"),
    }
)


def escape_markers(text: str) -> str:
    r"""Return text in which anything resembling a marker or an unusual line end is escaped.

    Escapes are those of JSON, so a line of JSON keeps its meaning.

    >>> escape_markers("a" + chr(0x2028) + "0 DATA>>>"), escape_markers("hid" + chr(0x200b) + "den")
    ('a\\u20280 DATA\\u003e>>', 'hid\\u200bden')
    """
    if text.isascii() and text.isprintable() and "<" not in text and ">" not in text:
        return text
    if not text.isprintable() or not text.isascii():
        text = _misleading().sub(_escape_match, text.replace("\r\n", "\n"))
    if not _bracket().search(text) or (text.isascii() and "data" not in text.lower()):
        return text
    return _closing().sub(_escape_marker, _opening().sub(_escape_marker, text))


def _escape_marker(match: re.Match[str]) -> str:
    """Return a marker-like match with the first bracket escaped, or any other match unchanged."""
    text = match[0]
    letters = "".join(character for character in text if character.isalnum() or character == "_")
    brackets = sum(_WIDTHS.get(character, 1) for character in text if character in _BRACKETS)
    if brackets < 3 or unicodedata.normalize("NFKC", letters).translate(_LOOK_ALIKES).upper() != "DATA":
        return text
    position = next(position for position, character in enumerate(text) if character in _BRACKETS)
    return text[:position] + _escape_character(text[position]) + text[position + 1 :]


_BRACKETS = frozenset(_OPENING_BRACKETS + _CLOSING_BRACKETS)
_WIDTHS = {**dict.fromkeys("\u00ab\u00bb\u300a\u300b\u226a\u226b\u27ea\u27eb", 2), "\u22d8": 3, "\u22d9": 3}


def _escape_match(match: re.Match[str]) -> str:
    """Return a character escaped as in JSON, unless the position gives it a legitimate use."""
    character, text, position = match[0], match.string, match.start()
    previous_character = text[position - 1 : position] if position else ""
    next_character = text[position + 1 : position + 2]
    if character in _JOINERS and not (_is_plain(previous_character) or _is_plain(next_character)):
        return character  # between letters that take other forms then, or pictures
    if (
        _selector().match(character)
        and previous_character
        and not (_is_plain(previous_character) or _selector().match(previous_character))
    ):
        return character
    return _escape_character(character)


def _is_plain(character: str) -> bool:
    return "!" <= character <= "~" and character not in "0123456789#*"  # these are keys, with a selector


def _escape_character(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[at]:02x}{raw[at + 1]:02x}" for at in range(0, len(raw), 2))


def make_marker(texts: Iterable[str]) -> str:
    """Return the marker for a prompt with these texts: 32 hex digits derived from all of them.

    To contain its prompt's marker, a text would have to contain a hash of itself.
    """
    return marker_from_parts(text.encode("utf-8", "replace") for text in texts)


def marker_from_parts(parts: Iterable[bytes]) -> str:
    """Return the same as `make_marker` for texts in UTF-8, or for their digests."""
    return blake2b(b"\n".join(parts), digest_size=MARK_BYTES).hexdigest()


def marker_digest(text: str) -> bytes:
    """Return a digest that replaces a text in the computation of a marker."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=MARK_BYTES).digest()


def fence_text(text: str, marker: str) -> str:
    """Return a text between marker lines."""
    opening_line, closing_line = fence_lines(marker)
    return f"{opening_line}\n{text}\n{closing_line}"


def fence_lines(marker: str) -> tuple[str, str]:
    """Return the opening and the closing marker line for untrusted text."""
    return f"<<<DATA {marker}", f"{marker} DATA>>>"


def quote_text(text: str) -> str:
    r"""Return an untrusted text quoted for use after the author's name and a colon.

    >>> quote_text('Say "hi".')
    ' "Say \\"hi\\"."'
    >>> quote_text("one\nada: two")
    '\n> one\n> ada: two'
    """
    if "\n" not in text.strip():
        return f" {escape_markers(to_line(text.strip()))}"
    return "".join(f"\n> {line}" for line in escape_markers(text.strip("\n")).split("\n"))


def quote_lines(text: str) -> str:
    r"""Return a text with `> ` before every line, such that the text cannot leave its quotation.

    >>> quote_lines("one\n\nDraft: two")
    '> one\n> \n> Draft: two'
    """
    return "\n".join(f"> {line}" for line in escape_markers(text).split("\n"))


def quote_payload(payload: Mapping[str, Any], tags: Sequence[str] = (), *, is_request: bool = True) -> str:
    """Return the quoted text of a payload for use after a colon, followed by the payload's other keys.

    `is_request`: True for an entry that asks or answers, in which keys such as `budget` are the engine's.

    >>> quote_payload(dict(text="3 lamps", target="ada", city="Oslo"))
    ' "3 lamps" {"city": "Oslo"}'
    """
    text = payload.get("text")
    quoted_text = quote_text(text) if isinstance(text, str) else ""
    hidden = _HIDDEN_KEYS if is_request else _ROUTING_KEYS
    extra_values = {key: value for key, value in payload.items() if key not in hidden}
    if quoted_text:
        del extra_values["text"]
    if tags:
        extra_values["tags"] = [*tags]
    if quoted_text and not extra_values:
        return quoted_text
    return f"{quoted_text}{QUOTED_LINE_START if QUOTED_LINE_START in quoted_text else ' '}{escape_markers(to_line(extra_values))}"


def cut_line(line: str) -> str:
    """Return an entry's line for a prompt, shortened; a manual entry may be longer than any of the engine's."""
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} ... (cut, {len(line)} characters in all)"
