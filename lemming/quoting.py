"""Text of others in a prompt: marks its author cannot foresee, and nothing inside that looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

MARK_BYTES = 16

# Whatever a reader may take for the end of a line, or that turns text around on its way to the eye.
_MISLEADING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|<(?=<<DATA)|(?<=DATA)>(?=>>)"
)


def quoted(text: str) -> str:
    """Return text without anything that could pass for a mark or for the end of a line but a plain one.

    What could is spelled as JSON spells it, so that a line of JSON still says the same.

    >>> quoted("a" + chr(0x2028) + "0 DATA>>>")
    'a\\\\u20280 DATA\\\\u003e>>'
    """
    if text.isprintable() and "DATA" not in text:
        return text
    return _MISLEADING.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\r\n", "\n"))


def mark_for(texts: Iterable[str]) -> str:
    """Return the mark for a prompt of these texts: 32 hex digits made from all of them.

    A text that holds its prompt's mark would have to hold a hash of itself.
    """
    return blake2b("\n".join(texts).encode("utf-8", "replace"), digest_size=MARK_BYTES).hexdigest()


def fenced(text: str, mark: str) -> str:
    """Return a text between marks."""
    return f"<<<DATA {mark}\n{text}\n{mark} DATA>>>"
