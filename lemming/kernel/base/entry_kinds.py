"""Closed lists: kinds of entries (architecture guide, "Engine↔LLM JSON Contract"), tool classes, kinds of
findings.
"""

from __future__ import annotations

from typing import Literal

MessageKind = Literal["message", "report", "request", "response", "status"]
MESSAGE_KINDS: tuple[MessageKind, ...] = ("message", "report", "request", "response", "status")

ToolClass = Literal["read", "write", "send", "execute", "administer"]
"""What a call can do at worst. `read`: give what files, memories or pages hold. `write`: change files of the
organisation. `send`: tell somebody outside of it. `execute`: run code. `administer`: change who works here,
what they may do or spend."""

OnError = Literal["return", "skip", "stop"]
"""What a call that failed means for its turn. `return`: the model is told, and goes on. `skip`: nobody is
told. `stop`: the turn ends, and has failed."""

FindingKind = Literal[
    "repeats", "ping_pong", "works_on", "dropped", "unread", "claims", "unverified", "no_progress"
]
"""What can be found to go wrong in what an organisation did: docs/checks.md says what each means."""
