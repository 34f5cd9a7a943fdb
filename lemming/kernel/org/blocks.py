"""The blocks of `config/org.json`: settings that belong together, each a value. Formats: docs/formats.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from lemming.kernel.base.kinds import FindingKind
from lemming.kernel.files.fitting import about
from lemming.kernel.org.schedule import Wake


@dataclass(frozen=True, kw_only=True)
class TurnDefaults:
    """Limits of a turn for agents whose resume does not set them."""

    max_steps: int | None = field(
        default=None, metadata=about('Default of a resume\'s "turn.max_steps".', ge=1, le=50)
    )
    repairs: int = field(default=1, metadata=about("Corrective calls after a bad reply.", ge=0, le=5))


@dataclass(frozen=True, kw_only=True)
class AgentDefaults:
    """What a resume that is silent means."""

    wake: Wake = field(default="always", metadata=about('Default of a resume\'s "schedule.wake".'))
    turn: TurnDefaults = field(default_factory=TurnDefaults)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """What the workspace of each agent may hold, and likewise `shared/`."""

    max_bytes: int = field(
        default=1 << 30, metadata=about("Bytes of all files: file_write and shell stop there.", ge=1 << 20)
    )
    max_files: int = field(
        default=100_000,
        metadata=about("Files and folders: file_write and shell stop there.", ge=100, le=1_000_000),
    )


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """When a loop is broken: docs/concepts.md. A resume may set the same keys for its agent."""

    warn_after: int = field(
        default=3,
        metadata=about("Equal results in a row after which the agent is told.", ge=2, le=10_000),
    )
    stop_after: int = field(
        default=4,
        metadata=about(
            "Equal results in a row after which the request fails, or the agent is paused.", ge=2, le=10_000
        ),
    )
    max_calls: int = field(
        default=25,
        metadata=about(
            "Model calls that an agent's turns for one request may make before it fails.", ge=1, le=10_000
        ),
    )


@dataclass(frozen=True, kw_only=True)
class FindingSettings:
    """From when on `lemming findings` tells of something, and of what it does not: docs/checks.md."""

    window: int = field(
        default=50, metadata=about("Ticks that are looked at: the newest with turns.", ge=1, le=100_000)
    )
    off: list[FindingKind] = field(
        default_factory=list, metadata=about("Kinds of findings that nobody is told of.")
    )
    repeats: int = field(
        default=3, metadata=about("So many turns of an agent say or do the same.", ge=2, le=10_000)
    )
    ping_pong: int = field(
        default=4, metadata=about("So often two agents answer each other, and nothing else.", ge=2, le=10_000)
    )
    works_on: int = field(
        default=3,
        metadata=about("So many turns are taken after what they were for is over.", ge=1, le=10_000),
    )
    dropped: int = field(
        default=10, metadata=about("For so many ticks nobody works on a request.", ge=1, le=100_000)
    )
    unread: int = field(
        default=5,
        metadata=about("So many turns its reader takes without being shown an entry.", ge=1, le=10_000),
    )
    no_progress: int = field(
        default=10, metadata=about("So many turns in a row cost credits and leave nothing.", ge=2, le=10_000)
    )
