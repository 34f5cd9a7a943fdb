"""Values that the hooks of a turn take and return.

The hooks are declared in `lemming.kernel.turn.turn_hooks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from lemming.kernel.agents import Agent
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.turn_report import End
from lemming.kernel.memory import Memories, load_memories
from lemming.kernel.messages import EntryName
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.prompt_prefix import TickContext
from lemming.kernel.turn.turn_values import Steps


class RunTurn(Protocol):
    """Runs the rest of a turn to the end, or with `steps` only these steps."""

    def __call__(self, steps: Steps | None = None) -> End:
        """Return the end of the turn."""
        ...


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class TurnContext:
    """A turn in preparation: the organisation at the start of the tick, and the agent with the state.

    `unwritten_files`: files of earlier turns that are not on disk yet, by path. `has_news`: there is a reason for the
    turn besides those of capabilities. `prompt`: the values of the prompt, once it is complete.
    """

    tick_context: TickContext
    agent: Agent
    model: ModelEntry
    state: AgentState
    unwritten_files: Mapping[str, bytes] = field(default_factory=dict)
    loaded_memories: Memories | None = None
    has_news: bool = False
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
