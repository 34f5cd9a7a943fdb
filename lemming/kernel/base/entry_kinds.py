"""Closed lists: kinds of entries (architecture guide, "Engine↔LLM JSON Contract"), tool classes, kinds of findings."""

from __future__ import annotations

from typing import Literal

MessageKind = Literal["message", "report", "request", "response", "status"]
MESSAGE_KINDS: tuple[MessageKind, ...] = ("message", "report", "request", "response", "status")

ToolClass = Literal["read", "write", "send", "execute", "administer"]
"""Worst effect of a call. `read`: returns files, memories or pages. `write`: changes files of the
organisation. `send`: contacts the outside. `execute`: runs code. `administer`: changes agents, permissions or
budgets."""

OnError = Literal["return", "skip", "stop"]
"""Effect of a failed call on its turn. `return`: the model sees the error and continues. `skip`: the error is
not shown. `stop`: the turn ends and has failed."""

FindingKind = Literal[
    "repeats", "ping_pong", "works_on", "dropped", "unread", "claims", "unverified", "no_progress", "failing_calls"
]
"""Kinds of findings in the turns of an organisation; docs/TROUBLESHOOTING.md explains each."""
