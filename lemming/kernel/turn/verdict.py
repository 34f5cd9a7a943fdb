"""Verdict schema shared by judges, critics and the verifiers of plan steps. Pure."""

from __future__ import annotations

from typing import Any

VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"passes": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["passes", "reason"],
    "additionalProperties": False,
}
