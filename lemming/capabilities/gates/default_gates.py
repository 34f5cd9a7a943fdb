"""Standard gates: limits on the actions of a turn after untrusted text. See docs/gates.md."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_FROM_OUTSIDE: Json = {"field": "trust", "op": "is", "value": "outside"}
_ARGUMENT_FROM_OUTSIDE: Json = {"field": "args_lowest", "op": "is", "value": "outside"}
_READ_BY_A_MODEL = "this turn was shown words from outside"


def standard_gates() -> Json:
    """Return the standard settings for `config/org.json`: trust tracking, and approval of risky actions after
    untrusted text.

    Writes to the agent's own workspace and memories need no approval. A tool without declared writes asks.
    """
    from_a_channel: Json = {"field": "channel", "op": "is", "value": True}
    outside_own_files: Json = {"field": "own", "op": "is_not", "value": True}
    return {
        "trust": {},
        "gates": [
            {
                "at": "in",
                "when": {"all": [from_a_channel, _FROM_OUTSIDE]},
                "then": "ask",
                "because": "a stranger wrote it: a person reads it first",
            },
            {
                "at": "call",
                "class": ["send", "execute", "administer"],
                "when": {"any": [_FROM_OUTSIDE, _ARGUMENT_FROM_OUTSIDE]},
                "then": "ask",
                "because": f"{_READ_BY_A_MODEL}, or an argument is a value of such an answer",
            },
            {
                "at": "call",
                "class": "write",
                "when": {"all": [_FROM_OUTSIDE, outside_own_files]},
                "then": "ask",
                "because": f"{_READ_BY_A_MODEL}, and it writes beyond its own workspace",
            },
            {
                "at": "out",
                "when": {"all": [_FROM_OUTSIDE, {"field": "leaves", "op": "is", "value": True}]},
                "then": "ask",
                "because": f"{_READ_BY_A_MODEL}, and a channel would take this out of the organisation",
            },
        ],
    }
