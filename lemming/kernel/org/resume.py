"""A resume as a value: the complete definition of an agent. Format: docs/settings.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS, MessageKind
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK
from lemming.kernel.files.fast_decoder import INTERNAL_FIELD, MAX_AMOUNT, describe_field, make_field, to_file_value
from lemming.kernel.org.schedule import AgentSchedule
from lemming.kernel.plugins.capability_loader import make_loaders

Take = Literal["one", "all"] | None


@dataclass(frozen=True, kw_only=True)
class AgentModel:
    """Selection of the agent's model."""

    key: str = make_field("default", "A key of config/models.json.", min_length=1)
    temperature: float | None = make_field(None, "Sampling temperature; null: that of the model's line.", ge=0, le=2)
    fallback: list[str] = make_field(
        list, "Model keys to call, in this order, when the one before gives no answer.", max_length=8
    )


@dataclass(frozen=True, kw_only=True)
class FileAccess:
    """Folders available to the file tools. `./workspace` is the agent's, `./shared` the organisation's."""

    allow_read: list[str] = make_field(lambda: ["./workspace"], "Folders and files that tools may read.")
    allow_write: list[str] = make_field(lambda: ["./workspace"], "Folders and files that tools may write.")


@dataclass(frozen=True, kw_only=True)
class AgentPermissions:
    """Permissions of the agent: readable outboxes and memories, tools, files."""

    read_outboxes: list[str] = make_field(list, 'Agents whose outboxes the agent reads; "*" means all others.')
    tools: list[str] = make_field(
        list, 'Tools the agent may call, beside those always allowed; "weather_*" is a pattern.'
    )
    file_access: FileAccess = field(default_factory=FileAccess)
    read_memories: list[str] = make_field(
        list, 'Memories of other agents in its prompts, as AGENT/KEY: "planner/goal", "desk/*".'
    )
    may_be_absent: bool = make_field(False, "Allow names of agents and tools that do not exist yet.")

    @cached_property
    def tool_patterns(self) -> tuple[str, ...]:
        """The items of `tools` that match more than one tool."""
        return tuple(name for name in self.tools if "*" in name)


@dataclass(frozen=True, kw_only=True)
class AgentCredits:
    """Spending limits of the agent. `config/credits.json` overrides these."""

    max_credits: float | None = make_field(None, "Maximum credits; null: no limit.", ge=0, le=MAX_AMOUNT)
    soft_cap: float | None = make_field(
        None, "Credits at which the log and the prompt show one warning.", ge=0, le=MAX_AMOUNT
    )


@dataclass(frozen=True, kw_only=True)
class Allocation(AgentCredits):
    """An entry of `config/credits.json`."""

    may_be_absent: bool = make_field(False, "Allow an agent that does not exist yet.")


@dataclass(frozen=True, kw_only=True)
class TurnLimits:
    """Limits of a turn."""

    max_steps: int | None = make_field(
        None,
        "Maximum model calls of a turn. Default 8; 1 with the whole contract, without a strategy "
        "and without native tools.",
        ge=1,
        le=50,
    )
    repairs: int | None = make_field(
        None, "Maximum corrective calls after a reply that breaks the contract. Default 1.", ge=0, le=5
    )
    tool_timeout_s: float | None = make_field(
        None, "Timeout of a tool call in seconds; null: that of the tool or the organisation.", gt=0
    )
    deadline_s: float | None = make_field(
        None,
        "Timeout of the whole turn in seconds: model calls, retries, tool calls. Results so far are kept. null: none.",
        gt=0,
    )
    max_entries: int = make_field(64, "Maximum entries of one reply.", ge=0, le=64)
    max_tool_calls: int = make_field(64, "Maximum tool calls of one reply; the rest is left out.", ge=1, le=128)
    max_approvals: int = make_field(
        5, "Maximum calls, and maximum entries, that one turn asks persons to approve; others wait.", ge=1, le=64
    )
    kinds: list[MessageKind] = make_field(
        lambda: list(MESSAGE_KINDS), "Kinds of entries the agent may write.", min_length=1
    )
    take: Take = make_field(
        None,
        '"one": a turn is for one open request, and shows only what belongs to it; "all": requests '
        'are part of the inbox. Default: "one" for askers that wait for the answer (`lemming ask`, '
        'programs, agents whose team has this one), "all" for others.',
    )
    requests: int = make_field(
        1,
        "Maximum number of open requests in one tick, each in its own turn; others wait for the next tick.",
        ge=1,
        le=TURNS_PER_TICK,
    )
    strategy: str | None = make_field(
        None,
        'How a turn calls its model and acts: "react", "plan_execute", "reflexion", or one of a '
        "plugin; null: react, with one step unless max_steps is set.",
    )
    options: dict[str, Any] = make_field(dict, "Options of the strategy: docs/plans.md.")


@dataclass(frozen=True, kw_only=True)
class LoopLimits:
    """Thresholds for breaking loops of this agent; null: as in `loops` of config/org.json."""

    warn_after: int | None = make_field(
        None, "Number of equal results in a row after which the agent is warned.", ge=2, le=10_000
    )
    stop_after: int | None = make_field(
        None, "Number of equal results in a row after which the request fails, or the agent is paused.", ge=2, le=10_000
    )
    max_calls: int | None = make_field(None, "Maximum model calls for one request; then it fails.", ge=1, le=10_000)


_NO_LIMITS = TurnLimits()


def has_turn_key(limits: TurnLimits, key: str) -> bool:
    """Return True if a resume sets a key of `turn`."""
    return bool(getattr(limits, key) != getattr(_NO_LIMITS, key))


@dataclass(frozen=True, kw_only=True)
class ContextFile:
    """A file whose text is included in every prompt of the agent."""

    file: str = field(
        metadata=describe_field(
            "A path the agent may read, such as ./shared/facts.txt; * in the name: all matching files.", min_length=1
        )
    )
    label: str = make_field("", "Label in the prompt; default: the file's name.")
    take: Literal["all", "next_line"] = make_field(
        "all", '"next_line": one line each turn, from the start again after the last.'
    )


@dataclass(frozen=True, kw_only=True)
class Example:
    """One example turn shown to the model before the real turn."""

    input: str = field(metadata=describe_field("What the agent was shown."))
    output: str = field(metadata=describe_field("The text of the one entry it wrote."))


@accept_old_names
@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent, as defined by its resume."""

    name: str = field(metadata=describe_field("The name of the agent's folder."))
    title: str = make_field("", "Title of the agent in prompts and tables.")
    model: AgentModel = field(default_factory=AgentModel)
    permissions: AgentPermissions = field(default_factory=AgentPermissions)
    schedule: AgentSchedule = field(default_factory=AgentSchedule)
    instructions: str = field(metadata=describe_field("Instructions for the agent.", min_length=1))
    credits: AgentCredits = field(default_factory=AgentCredits)
    turn: TurnLimits = make_field(TurnLimits, "Limits of one turn.")
    loops: LoopLimits = field(default_factory=LoopLimits)
    created_by: str = make_field("", "The agent that created it and whose limits it shares; set by create_agent.")
    context: list[ContextFile] = make_field(list, "Files to show in every prompt.")
    clock: bool = make_field(False, "Show date, time, weekday and time zone in every prompt.")
    examples: list[Example] = make_field(list, "Example turns; small models need two.", max_length=20)
    paused: str = make_field("", "Any text, such as the reason: the agent takes no turns. Set by `lemming pause`.")

    capabilities: dict[str, dict[str, Any]] = make_field(
        dict, "Settings of third-party capabilities for this agent, by name."
    )
    extensions: dict[str, Any] = field(default_factory=dict, metadata=INTERNAL_FIELD)
    """Values of keys read by capabilities, by key, as far as the resume has them."""

    FURTHER: ClassVar[Mapping[str, Callable[[], Any]]] = make_loaders("resume")

    def may_read(self, author: str) -> bool:
        """Return True if entries of `author` may reach this agent's inbox."""
        readable = self.permissions.read_outboxes
        return author != self.name and (author in readable or "*" in readable)

    @cached_property
    def as_json(self) -> dict[str, Any]:
        """The agent as JSON values, in the resume's own shape, without newer keys at their defaults."""
        values: dict[str, Any] = parse(dump_compact(asdict(self)))
        del values["extensions"]
        values |= {key: to_file_value(value) for key, value in self.extensions.items()}
        for block, defaults in LATER_KEYS.items():
            block_values = (values.get(block) or {}) if block else values
            for key in [key for key, default in defaults.items() if block_values.get(key, ...) == default]:
                del block_values[key]
        return values


_BY_THE_CLOCK = ("cron", "timezone", "missed", "grace_minutes")
LATER_KEYS: dict[str, dict[str, Any]] = {
    "": {
        "capabilities": {},
        "clock": False,
        "created_by": "",
        "loops": {"warn_after": None, "stop_after": None, "max_calls": None},
        "paused": "",
    },
    "model": {"fallback": []},
    "permissions": {"may_be_absent": False},
    "schedule": {key: getattr(AgentSchedule(), key) for key in _BY_THE_CLOCK},
    "turn": {
        "take": None,
        "tool_timeout_s": None,
        "deadline_s": None,
        "max_tool_calls": 64,
        "requests": 1,
        "strategy": None,
        "options": {},
    },
}
"""Keys added after version 0.1.0, by their block: at their defaults no journal holds them."""
