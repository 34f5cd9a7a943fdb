"""Text of others in a prompt, such that it cannot leave its place. Pure.

A text of one line stands as a JSON string, in which a quote and a line break are escaped. Of a longer text
every line begins with `> `. There is no secret to guess, and nothing that changes from turn to turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemming.kernel.base.jsontext import compact, to_line
from lemming.kernel.base.quoting import quoted

LINE_CHARS = 70_000
NEW_LINE = "\n> "
OF_THE_ENGINE = frozenset(
    {
        "budget", "conversation", "deadline", "default", "join", "parent", "path", "reply_to", "schema",
        "spent", "step", "target", "verify", "within",
    }
)  # fmt: skip
"""Keys of a payload that say where an entry belongs, and nothing of what was asked or answered."""
_HIDDEN_KEYS = OF_THE_ENGINE | {"asked", "call", "hops", "not_after", "owed_to"}
_PLACES = frozenset({"conversation", "hops", "parent", "reply_to", "target"})
"""Keys that the engine reads or writes in an entry that neither asks nor answers; others are its author's."""


def quote_text(text: str) -> str:
    """Return a text of others as it stands after its author's name and a colon.

    >>> quote_text('Say "hi".')
    ' "Say \\\\"hi\\\\"."'
    >>> quote_text("one\\nada: two")
    '\\n> one\\n> ada: two'
    """
    if "\n" not in text.strip():
        return f" {quoted(to_line(text.strip()))}"
    return "".join(f"\n> {line}" for line in quoted(text.strip("\n")).split("\n"))


def quote_lines(text: str) -> str:
    """Return a text each of whose lines begins with `> `, so that none of it can leave its place.

    >>> quote_lines("one\\n\\nDraft: two")
    '> one\\n> \\n> Draft: two'
    """
    return "\n".join(f"> {line}" for line in quoted(text).split("\n"))


def quote_payload(payload: Mapping[str, Any], tags: Sequence[str] = (), *, is_request: bool = True) -> str:
    """Return the text of a payload as it stands after a colon, and what else the payload says.

    `is_request`: the entry asks or answers, and keys such as `budget` are the engine's.

    >>> quote_payload({"text": "3 lamps", "target": "ada", "city": "Oslo"})
    ' "3 lamps" {"city": "Oslo"}'
    """
    text = payload.get("text")
    told = quote_text(text) if isinstance(text, str) else ""
    hidden = _HIDDEN_KEYS if is_request else _PLACES
    rest = {key: value for key, value in payload.items() if key not in hidden}
    if told:
        del rest["text"]
    if tags:
        rest["tags"] = [*tags]
    if told and not rest:
        return told
    return f"{told}{NEW_LINE if NEW_LINE in told else ' '}{quoted(to_line(rest))}"


def cut_line(line: str) -> str:
    """Return what a prompt shows of an entry; one made by hand may be longer than any of the engine's."""
    return (
        line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} ... (cut, {len(line)} characters in all)"
    )


def text_of_payload(payload: dict[str, Any]) -> str:
    """Return the text of a payload, else the whole as JSON."""
    text = payload.get("text")
    return text if isinstance(text, str) else compact(payload).decode()
