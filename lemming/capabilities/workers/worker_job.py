"""A worker's job as the engine sends it to the machine that runs the harness: JSON in `Request.extra`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

JOB = "worker"
"""Key of the job in `Request.extra`, and of its outcome in `Reply.kept`."""


@dataclass(frozen=True, kw_only=True)
class WorkerJob:
    """One run of a harness on a private clone.

    `key`: the attempt, `TICK-AGENT-CALL` of its first run. `run`: number of the run in the attempt, from 0. `repository`:
    git directory of the user's repository, or an empty text with `bundle`, a git bundle in base64. `patch`: a patch in
    base64 to begin with, when the clone of an earlier run is gone. `prices`: dollars per token, by kind, empty if unknown.
    `readable`: further folders that the sandbox may read. `grants`: tools with input that a person has permitted.
    """

    key: str
    run: int = 0
    base: str
    at: str = ""
    agent: str
    model: str
    repository: str = ""
    bundle: str = ""
    patch: str = ""
    is_confined: bool = True
    is_full_copy: bool = False
    max_file_bytes: int = 5_000_000
    max_cost_usd: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    readable: Sequence[str] = ()
    grants: Sequence[Mapping[str, Any]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the job in a request."""
        return cls(**raw)
