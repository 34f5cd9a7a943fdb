"""The values that pass through the seams of a turn: what a capability is given at each moment, and gives.

The moments themselves: `lemming.kernel.turn.seams`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lemming.kernel.agents import Agent
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.report import End
from lemming.kernel.mail.inbox import Inbox
from lemming.kernel.mail.task import Task
from lemming.kernel.memory import Memories
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.labels import PLAIN, Labels
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import SpendingLimits
from lemming.kernel.turn.values import Steps, TurnInputs

Drive = Callable[[Steps], End]
"""Does what a strategy says, to its end."""


Keeps = Callable[[EntryName], bool]
"""Says of an entry that it stays."""
Awaits = Callable[[OutboxEntry, Collection[str], Mapping[str, bool]], bool]
"""Says of an entry that it is waited for, by agents that were not shown it, or by persons, each with whether
they were not."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Moment:
    """A turn as it is put together: the organisation as the tick found it, and where the agent stands.

    `settings` is what `config/org.json` says of the capability that is asked, `own` what the resume does,
    each a value of the class that it names; None where nothing is said.
    `held`: files that earlier turns wrote and that are not on the disk yet, by place.
    """

    now: Surroundings
    agent: Agent
    model: ModelEntry
    state: AgentState
    held: Mapping[str, bytes] = field(default_factory=dict)
    settings: Any = None
    own: Any = None


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Showing:
    """What a turn is to be shown, before it is put into a prompt; gates have let it pass.

    `left_out`: so many entries that were said before are not shown. `before`: sections, title and text, that
    stand before what was said. `also` and `also_memories`: entries, and keys of memories, that another
    question of the turn shows. `to_come`: places of results that come as the turn begins, by calls that were
    approved.
    """

    task: Task | None
    inbox: Inbox
    memories: Memories
    results: Sequence[Mapping[str, Any]]
    labels: Labels = PLAIN
    left_out: int = 0
    before: Sequence[tuple[str, str]] = ()
    also: Sequence[OutboxEntry] = ()
    also_memories: Sequence[str] = ()
    to_come: Collection[int] = ()


class TickLimits(Protocol):
    """What the turns of one tick may spend."""

    def of(self, inputs: TurnInputs) -> SpendingLimits:
        """Return the limits of a turn that begins, or goes on."""
        ...


class No(NamedTuple):
    """What does not pass, and why: the model is told so in its place."""

    why: str


@dataclass(frozen=True)
class NoSettings:
    """The settings of a capability that has none: its block is `{}`."""


class Rest(NamedTuple):
    """Why nobody goes on, in words, and whether a file or a moment will change that with no tick run."""

    why: str
    comes_by_itself: bool


class Fact(NamedTuple):
    """A line that a capability has for screens: whom it is about, an agent most often, and what is so."""

    about: str
    text: str


class InUse(NamedTuple):
    """An organisation as a screen looks at it, to a capability that is in use.

    `agents`: those that use it, by name; `kept`: what their ledgers keep of it. `at`: the moment of the look.
    """

    org: Organisation
    config: Config
    agents: Mapping[str, Agent]
    kept: Mapping[str, Json]
    at: str
