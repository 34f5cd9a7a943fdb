"""The nested blocks of `config/org.json`: related settings, each a value. Formats: docs/formats.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from lemming.kernel.base.entry_kinds import FindingKind
from lemming.kernel.files.fast_decoder import make_field
from lemming.kernel.org.schedule import Wake


@dataclass(frozen=True, kw_only=True)
class TurnDefaults:
    """Default limits of a turn, for agents whose resume sets none."""

    max_steps: int | None = make_field(None, 'Default of a resume\'s "turn.max_steps".', ge=1, le=50)
    repairs: int = make_field(1, "Maximum corrective calls after a bad reply.", ge=0, le=5)


@dataclass(frozen=True, kw_only=True)
class AgentDefaults:
    """Defaults for keys missing in a resume."""

    wake: Wake = make_field("always", 'Default of a resume\'s "schedule.wake".')
    turn: TurnDefaults = field(default_factory=TurnDefaults)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Maximum contents of each agent's workspace, and of `shared/`."""

    max_bytes: int = make_field(1 << 30, "Maximum bytes of all files; file_write and shell stop there.", ge=1 << 20)
    max_files: int = make_field(
        100_000, "Maximum number of files and folders; file_write and shell stop there.", ge=100, le=1_000_000
    )


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Thresholds for breaking loops: docs/concepts.md. A resume may set the same keys for its agent."""

    warn_after: int = make_field(
        3, "Number of equal results in a row after which the agent is warned.", ge=2, le=10_000
    )
    stop_after: int = make_field(
        4, "Number of equal results in a row after which the request fails, or the agent is paused.", ge=2, le=10_000
    )
    max_calls: int = make_field(25, "Maximum model calls for one request; then it fails.", ge=1, le=10_000)


@dataclass(frozen=True, kw_only=True)
class FindingSettings:
    """Thresholds for the findings of `lemming findings`, and the kinds turned off: docs/TROUBLESHOOTING.md."""

    window: int = make_field(50, "Number of ticks to check: the newest with turns.", ge=1, le=100_000)
    off: list[FindingKind] = make_field(list, "Kinds of findings that are not reported.")
    repeats: int = make_field(3, "Number of turns of an agent that say or do the same.", ge=2, le=10_000)
    ping_pong: int = make_field(4, "Number of times two agents answer each other, and nothing else.", ge=2, le=10_000)
    works_on: int = make_field(3, "Number of turns after their task has ended.", ge=1, le=10_000)
    dropped: int = make_field(10, "Number of ticks in which nobody works on a request.", ge=1, le=100_000)
    unread: int = make_field(5, "Number of turns that a reader takes without being shown an entry.", ge=1, le=10_000)
    no_progress: int = make_field(
        10, "Number of turns in a row that cost credits and produce nothing.", ge=2, le=10_000
    )
    failing_calls: int = make_field(5, "Number of turns in a row in which a tool fails.", ge=2, le=10_000)
