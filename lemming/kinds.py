"""The kinds of entries. Architecture guide, "Engine↔LLM JSON Contract"."""

from __future__ import annotations

from typing import Literal

MessageKind = Literal["message", "report", "request", "response", "status"]
MESSAGE_KINDS: tuple[MessageKind, ...] = ("message", "report", "request", "response", "status")
