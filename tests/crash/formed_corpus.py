"""The organisation of the corpus whose answers have a form, and whose conversation is a long one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand

from lemming.testing import make_org, resume, say

PRICED = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
LONG = "what became of the harvest, and of the apples that nobody bought " * 3


def _says(kind: str, **payload: Any) -> dict[str, Any]:
    return say("", outbox_entries=[{"kind": kind, "payload": payload, "tags": []}])


def formed(base: Path, org: dict[str, Any]) -> None:
    """Answers that fit once corrected, and never; a conversation summed up, once in vain."""
    serves = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
    make_org(
        base,
        resume("ada", memory={"strategy": "summary", "max_tokens": 120}, **serves),
        resume("bob", output={"schema": PRICED}, **serves),
        resume("cyd", memory={"max_tokens": 60}),
        resume("human", model={"key": "human"}),
        org=org,
        models={"human": {"provider": "human"}},
        script=[
            {"agent": "ada", "tick": 2, "contains": "Write the new summary", "error": "AuthenticationFailed"},
            {"agent": "ada", "contains": "Write the new summary", "reply": "Apples were talked of."},
            {"agent": "ada", "reply": say("noted", kind="response")},
            {"agent": "bob", "contains": "/payload/price", "tick": 1, "reply": _says("response", price=3)},
            {"agent": "bob", "reply": _says("response", text="not much")},
            {"reply": say("on and on")},
        ],
    )
    for number in range(4):
        by_hand(base, "human", 0, f"talk{number}", text=f"{number}: {LONG}", target="ada", conversation="talk")
    for number in range(2):
        asked = {"text": "how much?", "target": "bob", "conversation": "", "schema": PRICED}
        by_hand(base, "human", 0, f"price{number}", **asked)
