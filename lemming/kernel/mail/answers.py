"""What a payload answers: all of it but what the engine keeps in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENVELOPE = frozenset({"reply_to", "status", "target", "owed_to", "parent", "conversation", "spent"})
"""Keys of an answer's payload that are not the answer, unless its schema names them."""
MAY_ANSWER = ("message", "report")
"""Kinds whose entry is taken for the answer where none is of kind response: a small model's."""
OF_THE_ENGINE = frozenset(
    {
        "budget", "conversation", "deadline", "default", "join", "parent", "path", "reply_to", "schema",
        "spent", "step", "target", "verify", "within",
    }
)  # fmt: skip
"""Keys of a payload that say where an entry belongs, and nothing of what was asked or answered."""
KEYS_OF_REQUESTS = OF_THE_ENGINE | {
    "asked", "call", "cancels", "gate", "hands_on", "hops", "not_after", "not_before", "owed_to", "status",
    "text",
}  # fmt: skip
"""Keys that mean something in the payload of a request, and of what answers, moves or ends one."""


def answer_in(payload: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> Any:
    """Return what a payload answers: its text where that is all it has, else an object.

    Beside a schema that does not name it, `text` is what is said to the answer, and no part of it.
    """
    properties = schema.get("properties") if schema else None
    named = properties if isinstance(properties, Mapping) else {}
    fields = {key: value for key, value in payload.items() if key not in ENVELOPE or key in named}
    if not isinstance(properties, Mapping):
        return fields["text"] if fields.keys() == {"text"} else fields
    return {key: value for key, value in fields.items() if key != "text" or key in properties}
