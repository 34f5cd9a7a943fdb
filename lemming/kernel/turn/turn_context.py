"""Values that the hooks of a turn take and return.

The hooks are declared in `lemming.kernel.turn.turn_hooks`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lemming.kernel.agents import Agent
from lemming.kernel.inboxes.inbox import Inbox
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.turn_report import End
from lemming.kernel.memory import Memories
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.turn.prompt_labels import PLAIN, PromptLabels
from lemming.kernel.turn.prompt_prefix import TickContext
from lemming.kernel.turn.turn_values import Steps


class RunTurn(Protocol):
    """Runs the rest of a turn to the end, or with `steps` only these steps."""

    def __call__(self, steps: Steps | None = None) -> End:
        """Return the end of the turn."""
        ...


ReplyHold = Callable[[OutboxEntry, Collection[str], Mapping[str, bool]], bool]
"""Marks an entry as awaited by agents or persons; each with True if it was not shown to them."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class TurnContext:
    """A turn in preparation: the organisation at the start of the tick, and the agent with the state.

    `settings` is the block of `config/org.json` for the capability, `agent_settings` the block of the resume,
    each as the dataclass of the capability or None without a block. `unwritten_files`: files of earlier turns
    that are not on disk yet, by path.
    """

    tick_context: TickContext
    agent: Agent
    model: ModelEntry
    state: AgentState
    unwritten_files: Mapping[str, bytes] = field(default_factory=dict)
    settings: Any = None
    agent_settings: Any = None


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class VisibleContext:
    """The content of a turn before the prompt is built; gates have let all of this pass.

    `omitted_count`: number of earlier messages that are not shown. `leading_sections`: sections (title, text)
    before the dialogue. `other_entries` and `other_memories`: entries and memory keys that another prompt of
    the turn shows. `pending_indexes`: indexes of results that arrive as the turn begins, from approved calls.
    """

    task: Task | None
    inbox: Inbox
    memories: Memories
    results: Sequence[Mapping[str, Any]]
    labels: PromptLabels = PLAIN
    omitted_count: int = 0
    leading_sections: Sequence[tuple[str, str]] = ()
    other_entries: Sequence[OutboxEntry] = ()
    other_memories: Sequence[str] = ()
    pending_indexes: Collection[int] = ()


@dataclass(frozen=True)
class NoSettings:
    """Settings of a capability without settings: the block is `{}`."""


class SkipReason(NamedTuple):
    """Reason an agent cannot continue.

    `resolves_itself`: a file or the clock can end the wait without a tick.
    """

    reason: str
    resolves_itself: bool


class RetentionHold(NamedTuple):
    """A hold on entries past their retention. `is_kept` returns True for an entry that must stay."""

    is_kept: Callable[[EntryName], bool]


class CapabilityStatus(NamedTuple):
    """Status line of a capability: the subject, most often an agent, and the text."""

    about: str
    text: str
