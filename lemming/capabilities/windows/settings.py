"""The key `memory` of a resume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lemming.kernel.files.fitting import about


@dataclass(frozen=True, kw_only=True)
class MemoryWindow:
    """How much of what was said before the prompt holds; null: no limit."""

    strategy: Literal["window", "summary"] = field(
        default="window",
        metadata=about(
            '"window": the newest entries that fit; "summary": of a conversation, what no longer fits is '
            "summed up by the agent's own model."
        ),
    )
    max_tokens: int = field(
        metadata=about("So many tokens, as estimated, of entries said before.", ge=50, le=10_000_000)
    )


@dataclass(frozen=True, kw_only=True)
class OfResume:
    """What a resume says of windows."""

    memory: MemoryWindow | None = None
