"""Quoting of untrusted text in prompts, such that the text cannot leave its quotation. Pure.

A single-line text is quoted as a JSON string, with escaped quotes and line breaks. Every line of a longer
text begins with `> `. There is no secret to guess, and nothing changes from turn to turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.untrusted_quoting import escape_markers

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
