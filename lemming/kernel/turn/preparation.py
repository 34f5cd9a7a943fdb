"""A turn in preparation. Only now may a capability read files; nothing is recorded yet.

After a crash before the record `turn_started` the turn is prepared again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lemming.kernel.agents import Agent
from lemming.kernel.base.object_cache import ObjectCache
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import Agenda
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.turn_report import End
from lemming.kernel.memory import Memories, load_memories
from lemming.kernel.messages import EntryName
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.effect_guard import lend
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.turn_values import Steps

if TYPE_CHECKING:
    from lemming.kernel.org.organisation import Organisation


class RunTurn(Protocol):
    """Runs the rest of a turn to the end, or with `steps` only these steps."""

    def __call__(self, steps: Steps | None = None) -> End:
        """Return the end of the turn."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class TurnContext:
    """A turn in preparation: the start of the tick, and the agent with its state and mail.

    `unwritten_files`: files of earlier turns that are not on disk yet, by path. `context_texts`: the agent's context
    files, as title and text. `fingerprint`: of the inputs besides the inbox, of an agent that wakes on changed inputs.
    `has_news`: there is a reason for the turn besides those of capabilities, which `has_own_reason` tells. `prompt`: the
    values of the prompt, once it is complete.
    """

    tick_context: TickContext
    agent: Agent
    model: ModelEntry
    state: AgentState
    view: ReaderView
    allocation: AgentCredits
    unwritten_files: Mapping[str, bytes] = field(default_factory=dict)
    loaded_memories: Memories | None = None
    context_texts: list[tuple[str, str]] = field(default_factory=list)
    fingerprint: Json | None = None
    agenda: Agenda | None = None
    has_news: bool = False
    has_own_reason: bool = False
    prompt: PromptInput | None = None

    @property
    def memories(self) -> Memories:
        """The agent's memories."""
        if self.loaded_memories is None:
            self.loaded_memories = load_memories(self.tick_context.org, self.agent.name)
        return self.loaded_memories


@dataclass(frozen=True)
class NoSettings:
    """Settings of a capability without settings: the block is `{}`."""


class SkipReason(NamedTuple):
    """Reason an agent cannot continue.

    `resolves_itself`: a file or the clock can end the wait without a tick. `error`: the class of the error, if any.
    """

    reason: str
    resolves_itself: bool
    error: str = ""


class RetentionHold(NamedTuple):
    """A hold on entries past their retention. `is_kept` returns True for an entry that must stay."""

    is_kept: Callable[[EntryName], bool]


class CapabilityStatus(NamedTuple):
    """Status line of a capability: the subject, most often an agent, and the text."""

    about: str
    text: str


class Preparation(ObjectCache):
    """A turn in preparation, as one capability sees it.

    `settings` is the block of `config/org.json` for the capability, `agent_settings` the block of the resume, each as
    the dataclass of the capability or None without a block.
    """

    __slots__ = ("_caches", "agent_settings", "context", "name", "settings")

    def __init__(self, name: str, context: TurnContext, settings: Any, agent_settings: Any) -> None:
        self.name, self.context = name, context
        self._caches: dict[Any, Any] = {}
        self.settings, self.agent_settings = lend(name, self, settings), lend(name, self, agent_settings)

    @property
    def agent(self) -> Agent:
        """The agent that takes the turn."""
        return lend(self.name, self, self.context.agent)

    @property
    def model(self) -> ModelEntry:
        """The agent's line of `config/models.json`."""
        return lend(self.name, self, self.context.model)

    @property
    def tick(self) -> int:
        """The number of the tick."""
        return self.context.tick_context.tick

    @property
    def at(self) -> str:
        """The tick's clock time, ISO 8601, or an empty string in a tick without a clock."""
        return self.context.tick_context.at

    @property
    def org(self) -> Organisation:
        """The organisation, for reading. `org.base` is its folder."""
        return self.context.tick_context.org

    @property
    def state(self) -> Json:
        """The capability's own state in the agent's ledger, or {}."""
        state: Json = self.context.state.kept.get(self.name, {})
        return lend(self.name, self, state)

    @property
    def memories(self) -> Memories:
        """The agent's memories, as they are on disk."""
        return self.context.memories

    @property
    def has_news(self) -> bool:
        """True if the agent takes the turn whether or not a capability has a reason for it. Known after `due`."""
        return self.context.has_news


class Watch(NamedTuple):
    """A file that the turn depends on. A change is news for an agent that wakes on changed inputs.

    `path`: relative to the organisation's folder. `digest`: of its content, as hex.
    """

    path: str
    digest: str


class Block(NamedTuple):
    """A request in progress must wait, although none of its sub-requests is open.

    `reason`: the agent's wait, as `lemming status` shows it. `until`: the first tick in which the wait can end, or None
    if no tick ends it.
    """

    request: str
    reason: str = ""
    until: int | None = None


class Continue(NamedTuple):
    """A request in progress continues now, despite open sub-requests."""

    request: str


class Wake(NamedTuple):
    """A reason to take a turn. `check` is called once all new entries have passed `ReceiveEntry`."""

    check: Callable[[], bool] = lambda: True


Due = Watch | Block | Continue | Wake
