"""The nested blocks of `config/org.json`: related settings, each a value. Formats: docs/formats.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lemming.kernel.base.entry_kinds import FindingKind
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.fast_decoder import describe_field
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.org.schedule import Wake


@dataclass(frozen=True, kw_only=True)
class TurnDefaults:
    """Default limits of a turn, for agents whose resume sets none."""

    max_steps: int | None = field(
        default=None, metadata=describe_field('Default of a resume\'s "turn.max_steps".', ge=1, le=50)
    )
    repairs: int = field(default=1, metadata=describe_field("Maximum corrective calls after a bad reply.", ge=0, le=5))


@dataclass(frozen=True, kw_only=True)
class AgentDefaults:
    """Defaults for keys missing in a resume."""

    wake: Wake = field(default="always", metadata=describe_field('Default of a resume\'s "schedule.wake".'))
    turn: TurnDefaults = field(default_factory=TurnDefaults)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Maximum contents of each agent's workspace, and of `shared/`."""

    max_bytes: int = field(
        default=1 << 30,
        metadata=describe_field("Maximum bytes of all files; file_write and shell stop there.", ge=1 << 20),
    )
    max_files: int = field(
        default=100_000,
        metadata=describe_field(
            "Maximum number of files and folders; file_write and shell stop there.", ge=100, le=1_000_000
        ),
    )


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Thresholds for breaking loops: docs/concepts.md. A resume may set the same keys for its agent."""

    warn_after: int = field(
        default=3,
        metadata=describe_field("Number of equal results in a row after which the agent is warned.", ge=2, le=10_000),
    )
    stop_after: int = field(
        default=4,
        metadata=describe_field(
            "Number of equal results in a row after which the request fails, or the agent is paused.", ge=2, le=10_000
        ),
    )
    max_calls: int = field(
        default=25, metadata=describe_field("Maximum model calls for one request; then it fails.", ge=1, le=10_000)
    )


@dataclass(frozen=True, kw_only=True)
class FindingSettings:
    """Thresholds for the findings of `lemming findings`, and the kinds turned off: docs/TROUBLESHOOTING.md."""

    window: int = field(
        default=50, metadata=describe_field("Number of ticks to check: the newest with turns.", ge=1, le=100_000)
    )
    off: list[FindingKind] = field(
        default_factory=list, metadata=describe_field("Kinds of findings that are not reported.")
    )
    repeats: int = field(
        default=3, metadata=describe_field("Number of turns of an agent that say or do the same.", ge=2, le=10_000)
    )
    ping_pong: int = field(
        default=4,
        metadata=describe_field("Number of times two agents answer each other, and nothing else.", ge=2, le=10_000),
    )
    works_on: int = field(
        default=3, metadata=describe_field("Number of turns after their task has ended.", ge=1, le=10_000)
    )
    dropped: int = field(
        default=10, metadata=describe_field("Number of ticks in which nobody works on a request.", ge=1, le=100_000)
    )
    unread: int = field(
        default=5,
        metadata=describe_field("Number of turns that a reader takes without being shown an entry.", ge=1, le=10_000),
    )
    no_progress: int = field(
        default=10,
        metadata=describe_field("Number of turns in a row that cost credits and produce nothing.", ge=2, le=10_000),
    )


def parse_capability_block(name: str, kind: type[Any], blocks: Mapping[str, dict[str, Any]], file: str) -> Any:
    """Return a capability's settings block as a value of the class, or None. Raises `ConfigError`."""
    if name not in blocks:
        return None
    try:
        return to_value(kind, blocks[name])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"capabilities.{name}: {error}", where=file) from error
