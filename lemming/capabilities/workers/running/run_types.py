"""A run of a harness as it is asked for, and its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lemming.capabilities.workers.harnesses.harness_types import Harness, HarnessResult, Permit, Progress, RunTokens

MIN_SECRET_CHARS = 8
"""Minimum length of a secret: a shorter text is part of ordinary words."""

EndedBy = Literal["", "deadline", "silence", "stop", "person", "budget"]
"""Cause of an early end; empty if the harness ended by itself. "stop": the engine ends. "person": `lemming workers stop`."""


@dataclass(frozen=True, kw_only=True)
class HarnessRun:
    """One run of a harness.

    `prompt`: text for standard input. `session`: the session to resume, or an empty text. `clone`: the work tree, `home`:
    HOME, both writable. `folder`: where `progress.jsonl`, `usage.jsonl` and `session.json` of the attempt are written.
    `readable`: further folders to read, such as the objects of the user's repository. `base_url` and `key`: the model's
    server behind the gateway. `usd_cost`: price of tokens in dollars, or None if unknown. `max_cost_usd`, `max_turns`:
    limits, None for none. `spent_usd`: spent by earlier runs of the attempt, which counts against `max_cost_usd`.
    `deadline_s`, `silence_s`: seconds for the run, and without any output or request. `budget_grace_s`: seconds for a
    harness to end by itself after a request beyond `max_cost_usd`. `is_confined`: False runs without a sandbox, as a
    person agreed. `permit`: decides permission questions.
    """

    harness: Harness
    model: str
    prompt: str
    session: str = ""
    clone: Path
    home: Path
    folder: Path
    readable: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    base_url: str = ""
    key: str = ""
    usd_cost: Callable[[RunTokens], float | None] | None = None
    max_cost_usd: float | None = None
    max_turns: int | None = None
    spent_usd: float = 0.0
    deadline_s: float = 1800.0
    silence_s: float = 600.0
    budget_grace_s: float = 5.0
    is_confined: bool = True
    permit: Permit | None = None
    on_progress: Callable[[Progress], object] | None = None
    stop: threading.Event | None = None

    @property
    def secret_key(self) -> str:
        """The key, to keep out of texts; empty for a short one, such as the "none" of a local server."""
        return self.key if len(self.key) >= MIN_SECRET_CHARS else ""


@dataclass(frozen=True, kw_only=True)
class HarnessEnd:
    """The end of a run. `tokens` and `cost_usd`: as the gateway counted them, None if nothing passed the gateway."""

    result: HarnessResult
    exit_status: int
    ended_by: EndedBy = ""
    tokens: RunTokens | None = None
    cost_usd: float | None = None
    requests: int = 0
