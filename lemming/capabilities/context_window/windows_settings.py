"""The key `memory` of a resume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lemming.ext import describe_field


@dataclass(frozen=True, kw_only=True)
class MemoryWindowSettings:
    """Limit on earlier messages in the prompt; null: no limit."""

    strategy: Literal["window", "summary"] = field(
        default="window",
        metadata=describe_field(
            '"window": the newest entries that fit; "summary": the agent\'s model summarises older '
            "entries of a conversation."
        ),
    )
    max_tokens: int = field(
        metadata=describe_field("Maximum tokens of earlier entries, estimated.", ge=50, le=10_000_000)
    )


@dataclass(frozen=True, kw_only=True)
class WindowsResumeSettings:
    """Keys of the windows capability in a resume."""

    memory: MemoryWindowSettings | None = None
