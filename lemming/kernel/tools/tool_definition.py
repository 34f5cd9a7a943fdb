"""The engine's view of a tool: its declaration and its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.access.agent_files import write_effect
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_fields, accept_old_names
from lemming.kernel.base.entry_kinds import OnError, ToolClass
from lemming.kernel.base.errors import InvalidArguments, Outcome, PermissionDenied
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.journal.turn_report import GateVerdict
from lemming.kernel.memory import decode_memory
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools.arguments import (
    ArgumentMismatch,
    Arguments,
    get_arguments,
    make_arguments_hint,
    require_valid_arguments,
)

if TYPE_CHECKING:
    from lemming.kernel.base.contract import NewEntry
    from lemming.kernel.tools.tool_context import ToolContext

Places = Mapping[str, str]
"""Files and folders, each with the grant that opens it: relative to the organisation (`shared/news`), or
absolute. `/` means any file. In `agents/*/resume.json` the star is no pattern: it means the resumes of all
agents."""

ANYWHERE = "/"
NOWHERE: Places = {}
INFERRED: Any = ""


@accept_old_fields
@dataclass(frozen=True)
class ToolResult:
    """Result of a call: success, and the text for the agent.

    `outcome` defaults to a value derived from `success`.

    `entries` go into the caller's outbox, `attempts` counts the tries, `on_error` tells the effect of a
    failure. Only the engine and its tools use `effects` (files to write), `passed_on` (credits for a new
    agent), `trust`, `verdicts` (of gates), `entries_by` (the capability that wrote the entries), and `kept`
    (state attached to the call by capabilities, by name).
    """

    success: bool
    output: str = ""
    effects: tuple[FileEffect, ...] = ()
    passed_on: float = 0.0
    outcome: Outcome = INFERRED
    entries: tuple[NewEntry, ...] = ()
    attempts: int = 1
    on_error: OnError = "return"
    trust: Mapping[str, Any] = field(default_factory=dict, compare=False)
    verdicts: tuple[GateVerdict, ...] = ()
    entries_by: str = ""
    state: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.outcome == INFERRED:
            object.__setattr__(self, "outcome", "ok" if self.success else "failed")


@accept_old_names
class Tool(ABC):
    """An action available to agents. Its arguments are the keyword arguments of `execute`.

    A tool declares its properties in the attributes below. The defaults assume the worst: the tool may run
    any code, touch any file, and must not run twice.
    """

    name: str
    description: str

    tool_class: ToolClass = "execute"
    """Worst effect of a call."""

    repeatable: bool = False
    """True if a call that started and never finished may run again after a crash."""

    always_allowed: bool = False
    """True if every agent may call the tool without a grant in `permissions.tools`."""

    success_is_news: bool = True
    """True if a successful call wakes its agent (`wake: "changed"`) to read the result. A tool that only
    writes need not: its result is shown at the next wake-up."""

    is_independent: bool = False
    """True if its calls touch no shared file: a turn with only such tools need not wait for others."""

    parallel: bool = False
    """True if calls of one reply may run in parallel: they are independent and repeatable."""

    runs_in_order: bool = False
    """True if calls of turns that share a resource (`SharedResource.ordered`) run in the order of the turns."""

    timeout_s: float | None = None
    """Longest time a call may take; None: `tool_timeout_s` in `config/org.json`. A call that takes longer is
    left behind on its thread, which nothing can end from outside."""

    keeps_deadline: bool = False
    """True if its calls end in time by themselves, so they need no thread of their own."""

    output_limit_bytes: int = 32 << 10
    """Output beyond this is cut, and the cut is marked."""

    stages_files: bool = False
    """True if its results may contain files and entries, which the engine writes."""

    place_arguments: Sequence[str] = ()
    """Arguments that name files or folders as `file_read` takes them: gates see the place that is opened."""

    replaces_whole: bool = False
    """True if its calls keep nothing of a file's earlier content. With trust tracking, a file rewritten by
    any other tool keeps its low label."""

    own_memories: Sequence[str] = ()
    """Keys of memories that its calls keep for themselves: prompts do not show them."""

    @abstractmethod
    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Run the call.

        Raise `ToolError` (or return `ToolResult(False, why)`) to report a failure to the agent.

        A tool may take `**kwargs`, or name its arguments; named arguments are validated before the call.
        """

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run a call with validated arguments."""
        return self.execute(context.agent.name, context.base, **arguments)

    def refusal_reason(self, agent: Agent, settings: OrgSettings) -> str:
        """Return the rule that forbids the agent this tool, or an empty text."""
        permissions = agent.permissions
        if self.always_allowed or self.name in permissions.tools:
            return ""
        if any(is_match(self.name, pattern) for pattern in permissions.tool_patterns):
            return ""
        return f"refused by permissions.tools (granted: {', '.join(agent.permissions.tools) or 'none'})"

    def require_granted(self, agent: Agent, settings: OrgSettings) -> None:
        """Raise `PermissionDenied` with the rule that forbids the agent this tool."""
        if reason := self.refusal_reason(agent, settings):
            raise PermissionDenied(f"{self.name}: {reason}")

    def read_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the paths an agent's calls may read, among paths others may change in the same tick."""
        return NOWHERE

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the paths outside the agent's own folder that its calls may change."""
        if self.is_independent:
            return NOWHERE
        return {ANYWHERE: f"tool {self.name}, which does not say that it is independent"}

    def describe_side_effects(self, settings: OrgSettings) -> str:
        """Return a description of side effects beyond the organisation, as in "lets ada run ...", or an empty
        text.

        Called for shipped tools only: importing a plugin already needs workspace trust.
        """
        return ""

    def require_writable(self, context: ToolContext, effect: FileEffect) -> None:
        """Raise an error unless a call could produce this recorded effect now.

        Allowed effects are memories of the agent, and files covered by its grants.
        """

        if not self.stages_files:
            raise PermissionDenied(f"{self.name} has no files written by the engine")
        require_writable(context.agent, context.base, context.settings, effect, caller=self.name)

    def source_file(self, agent_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the one file with its content returned by a call, as in `Places`, or an empty text."""
        return ""

    @property
    def is_plan_only(self) -> bool:
        """True if calls only plan writes of the engine, so planning a call previews all its changes."""
        return False

    @property
    def definition(self) -> Any:
        """The class or function that implements the tool."""
        return type(self)

    @property
    def origin(self) -> str:
        """Location of the definition, for people: `file:line`, else the class."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, built from the signature. `**kwargs` takes any."""
        return self._arguments.schema

    def parse_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments to the types of the signature. Raises `InvalidArguments` with the reason.

        A hand-written `parameters` schema applies as well.
        """
        try:
            if self.has_custom_schema:
                require_valid_arguments(self.parameters, arguments)
            return self._arguments.parse_arguments(arguments)
        except ArgumentMismatch as error:
            hint = make_arguments_hint(self.parameters, arguments)
            raise InvalidArguments(f"{self.name}: {error}", hint=hint) from error

    @property
    def has_custom_schema(self) -> bool:
        """True if the class defines `parameters` by hand and leaves the validation to the engine."""
        return type(self).parameters is not Tool.parameters and type(self).parse_arguments is Tool.parse_arguments

    @property
    def _arguments(self) -> Arguments:
        return get_arguments(type(self).execute, 3)  # self, agent_name, base_path


def require_writable(agent: Agent, base: Path, settings: OrgSettings, effect: FileEffect, *, caller: str) -> None:
    """Raise a `LemmingError` unless the file is a memory of the agent, or is covered by the agent's grants."""
    if not effect.root and effect.path.startswith(f"{paths.memory_folder(agent.name)}/"):
        key = effect.path.rpartition("/")[2].removesuffix(".json")
        is_key = paths.MEMORY_KEY.match(key) and not key.endswith(".")
        if not is_key or paths.memory_file(agent.name, key) != effect.path:
            raise PermissionDenied(f"{effect.path} is not a memory of {agent.name}")
        decode_memory(effect.content, effect.path)
        return
    # By the current grants: a person may have edited the journal, or taken a right away.
    target = resolve_path(agent, base, f"{effect.root or base}/{effect.path}", "write", caller=caller)
    if (target.effect_root, target.relative) != (effect.root, effect.path):
        raise target.attempt.to_denial("it is written otherwise than the engine writes a place")
    limits = FolderSize(settings.quota.max_bytes, settings.quota.max_files)
    write_effect(target, effect.content, {}, limits=limits)
