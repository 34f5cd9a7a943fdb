"""A tool as the engine sees it: what it says of itself, what a call of it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import InvalidArguments, Outcome, PermissionDenied
from lemming.kernel.base.kinds import OnError, ToolClass
from lemming.kernel.base.patterns import is_named
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.org.config import Org
from lemming.kernel.tools.arguments import (
    Arguments,
    WrongArguments,
    arguments_hint,
    arguments_of,
    require_fitting,
)

if TYPE_CHECKING:
    from lemming.kernel.base.contract import NewEntry
    from lemming.kernel.files.effects import FileEffect
    from lemming.kernel.tools.context import ToolContext

Places = Mapping[str, str]
"""Files and folders, each with what allows it: relative to the organisation (`shared/news`), or absolute. `/`
is any file there is. In `agents/*/resume.json` the star is no pattern: it stands for the resumes of all."""

ANYWHERE = "/"
NOWHERE: Places = {}
INFERRED: Any = ""


@dataclass(frozen=True)
class ToolResult:
    """What a call gave: whether it worked, and the text the agent reads. `outcome` follows from `success`.

    `entries` are to go into the caller's outbox, `attempts` says how often it was tried, `on_error` what
    its failing means. Only the engine and its tools use `effects` (files to be written), `passed_on` (credits
    for a new agent), `trust`, `verdicts` (of gates), `entries_by` (the
    capability that wrote its entries), and `kept` (what capabilities keep with the call, by their names).
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
    kept: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.outcome == INFERRED:
            object.__setattr__(self, "outcome", "ok" if self.success else "failed")


class Tool(ABC):
    """Something an agent can call. Its arguments are the keyword arguments of `execute`.

    What the engine must know of a tool, the tool says itself, below. What it does not say is taken to be the
    worst: it may run any code, touch any file, and not be run twice.
    """

    name: str
    description: str

    tool_class: ToolClass = "execute"
    """What a call can do at worst."""

    repeatable: bool = False
    """Whether a call that was started and never finished may be run again after a crash."""

    always_allowed: bool = False
    """Whether every agent may call it without naming it in `permissions.tools`."""

    success_is_news: bool = True
    """Whether a call that worked wakes its agent (`wake: "changed"`) to read the result. One that only wrote
    what it was told to need not: the result is shown when the agent wakes for something else."""

    is_independent: bool = False
    """Whether its calls touch no file that others do: a turn with such tools alone need not wait for them."""

    parallel: bool = False
    """Whether calls of one reply may run at once: none needs what the other gives, and each may run again."""

    timeout_s: float | None = None
    """Longest time a call may take; None: `tool_timeout_s` in `config/org.json`. A call that takes longer is
    left behind on its thread, which nothing can end from outside."""

    keeps_deadline: bool = False
    """Whether its calls end in time by themselves, so that they need no thread of their own."""

    output_limit_bytes: int = 32 << 10
    """Output beyond this is cut, and the cut is marked."""

    stages_files: bool = False
    """Whether its results may hold files and entries, which the engine writes."""

    place_arguments: Sequence[str] = ()
    """Arguments that name files or folders as `file_read` takes them: gates see the place that is opened."""

    replaces_whole: bool = False
    """Whether what its calls write holds nothing of what was there before. What any other tool writes anew is
    never trusted further than it was, where trust is tracked."""

    own_memories: Sequence[str] = ()
    """Keys of memories that its calls keep for themselves: prompts do not show them."""

    @abstractmethod
    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        """Do it. Raise `ToolError` (or return `ToolResult(False, why)`) to tell the agent what went wrong.

        A tool may take `**kwargs`, or name its arguments; then they are checked before it is called.
        """

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run a call whose arguments have been checked."""
        return self.execute(context.agent.name, context.base, **arguments)

    def why_refused(self, agent: Agent, settings: Org) -> str:
        """Return the rule by which an agent may not call it; empty when it may."""
        permissions = agent.permissions
        if self.always_allowed or self.name in permissions.tools:
            return ""
        if any(is_named(self.name, pattern) for pattern in permissions.tool_patterns):
            return ""
        return f"refused by permissions.tools (granted: {', '.join(agent.permissions.tools) or 'none'})"

    def require_granted(self, agent: Agent, settings: Org) -> None:
        """Raise `PermissionDenied` with the rule by which an agent may not call it."""
        if why := self.why_refused(agent, settings):
            raise PermissionDenied(f"{self.name}: {why}")

    def reads(self, agent: Agent, settings: Org) -> Places:
        """Return what an agent's calls may look at, of what others may change in the same tick."""
        return NOWHERE

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return what an agent's calls may change outside its own folder."""
        if self.is_independent:
            return NOWHERE
        return {ANYWHERE: f"tool {self.name}, which does not say that it is independent"}

    def reaches_outside(self, settings: Org) -> str:
        """Return what its calls may do beyond the organisation, as in "lets ada run ..."; empty: nothing.

        Asked of tools that ship: importing a plugin is itself what a person has to agree to.
        """
        return ""

    def require_writable(self, context: ToolContext, effect: FileEffect) -> None:
        """Raise unless an effect that a journal tells of is one that a call could give now.

        That is a memory of the agent, or a file that its grants cover.
        """
        from lemming.kernel.access.recorded_effects import require_writable

        if not self.stages_files:
            raise PermissionDenied(f"{self.name} has no files written by the engine")
        require_writable(context.agent, context.base, context.settings, effect, caller=self.name)

    def source(self, agent_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the file whose content a call gives, as in `Places`; empty when it gives none, or many."""
        return ""

    @property
    def is_planned(self) -> bool:
        """Whether calls only tell the engine what to write: planning one changes nothing, and tells it."""
        return False

    @property
    def defined_by(self) -> Any:
        """The class or function that stands behind it."""
        return type(self)

    @property
    def origin(self) -> str:
        """Where it is defined, for people: `file:line`, else the class."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, built from the signature. `**kwargs` takes any."""
        return self._arguments.schema

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the signature's types; raise `InvalidArguments` that says what is wrong.

        They are held to `parameters` too, where a class of somebody's own says those itself.
        """
        try:
            if self.says_parameters:
                require_fitting(self.parameters, arguments)
            return self._arguments.check(arguments)
        except WrongArguments as error:
            hint = arguments_hint(self.parameters, arguments)
            raise InvalidArguments(f"{self.name}: {error}", hint=hint) from error

    @property
    def says_parameters(self) -> bool:
        """Whether its class says by hand what its arguments are, and leaves the check to the engine."""
        return type(self).parameters is not Tool.parameters and type(self).check is Tool.check

    @property
    def _arguments(self) -> Arguments:
        return arguments_of(type(self).execute, 3)  # self, agent_name, base_path
