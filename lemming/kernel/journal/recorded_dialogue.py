"""Messages of a model and the tools in the turns for a request.

They are kept in the ledger while the request waits; the next turn for the request continues from them:
`lemming.kernel.turn.dialogue`. Format: docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROLES = ("assistant", "user", "tool")


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """The messages after the prompt, up to the model's latest answer, whose calls are pending.

    `style`: message format of the backend. `calls`: for each of the request's `results`, the id of the
    model's own call, empty for any other result. `hidden`: ids of calls whose results are not shown to the
    model. `trust`: trust label of the turn after all messages were shown, or an empty string if untracked.
    """

    style: str
    messages: tuple[dict[str, Any], ...]
    calls: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    trust: str = ""

    def __post_init__(self) -> None:
        for number, message in enumerate(self.messages):
            if not is_message(message):
                raise ValueError(f"dialogue/messages/{number} must be a message of a user, a model or a tool")

    def as_json(self) -> dict[str, Any]:
        """Return the dialogue as JSON; keys without a value are left out."""
        lists = {key: [*value] for key in ("calls", "hidden") if (value := getattr(self, key))}
        trust = {"trust": self.trust} if self.trust else {}
        return {"style": self.style, "messages": [*self.messages], **lists, **trust}


def is_message(message: Mapping[str, Any]) -> bool:
    """Return True if a value from a ledger is a message a backend accepts."""
    role = message.get("role")
    if role not in ROLES or not isinstance(message.get("content"), str):
        return False
    if not all(
        map(is_found_tool, found_tools if isinstance(found_tools := message.get("found", []), list) else [found_tools])
    ):
        return False
    if role == "tool":
        return all(isinstance(message.get(key), str) for key in ("call", "tool"))
    calls = message.get("calls", [])
    return isinstance(calls, list) and all(map(_is_call, calls))


def is_found_tool(tool: object) -> bool:
    """Return True if a value describes a tool returned by a tool search."""
    if not isinstance(tool, dict) or not isinstance(tool.get("parameters"), dict):
        return False
    return all(isinstance(tool.get(key), str) for key in ("name", "description"))


def _is_call(call: object) -> bool:
    is_named = isinstance(call, dict) and all(isinstance(call.get(key), str) for key in ("id", "tool"))
    return is_named and isinstance(call, dict) and "args" in call
