"""The places of a turn at which what goes through is looked at: what is shown, written, called, given.

Plain types, in which who looks there, who asks persons and who keeps records tell each other of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.times.spoken import Expires
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.records import ModelFailed, ModelReplied
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.mail.inbox import Inbox
from lemming.kernel.mail.task import Task
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import LLMProvider, Reply, Request
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.tools.context import ToolContext

if TYPE_CHECKING:
    from lemming.kernel.journal.events import Observer
    from lemming.kernel.journal.file import Journal


class Asking(NamedTuple):
    """What is wanted before something may pass: approval of one of these persons (None: of any), in time.

    `line` says so first, and `further` do; it is to be there before one of `expires` is over.
    """

    line: str
    why: str = ""
    persons: Collection[str] | None = None
    expires: tuple[Expires, ...] = ()
    further: Collection[str] = ()


class Carried(NamedTuple):
    """A payload as it leaves, and what is in the files that go with it: their SHA-256, by place."""

    payload: Json
    files: Mapping[str, str] = MappingProxyType({})


class Found(NamedTuple):
    """What was found in something: why it may not pass as it is, and what a rewrite puts in its place."""

    why: str
    content: Any = None


class FunctionBroke(Exception):
    """A function that was asked about something gave nothing to go by; the message says how it broke."""


Functions = Callable[[tuple[str, ...]], Callable[[str, Json], Found | None]]
"""Gives the functions of plugins, which are asked by name."""


class Held(NamedTuple):
    """What becomes of a call that somebody is asked about: its result, or None where it may be made.

    `kept` stands with the call in the journal, by capability.
    """

    result: ToolResult | None
    kept: Mapping[str, Json] = MappingProxyType({})


Hold = Callable[[ToolCall, Asking], Held]
"""Says what becomes of a call for which approval is wanted."""


class Holder(Protocol):
    """Says of the calls of one turn what becomes of them, where approval is wanted."""

    def hold(
        self, call: ToolCall, asking: Asking, context: ToolContext, plan: Callable[[], ToolResult]
    ) -> Held:
        """Return what becomes of a call; `plan` makes one that only tells the engine what to write."""
        ...


class LowValue(NamedTuple):
    """A value that a turn knows from an answer that is trusted less than the turn is, and how far that is."""

    value: Any
    word: str


class Trusted(NamedTuple):
    """How far a turn is trusted by now, and what made it less than agents are; empty: nobody tracks that.

    `facts_of` gives what gates see of where a call's arguments come from.
    """

    word: str = ""
    source: str = ""
    facts_of: Callable[[Any], Json] = lambda _: {}


class Passed(NamedTuple):
    """A call that may be made, with what was said of it, and by whose word, if one was needed."""

    call: ToolCall
    verdicts: Sequence[GateVerdict] = ()
    kept: Mapping[str, Json] = MappingProxyType({})


class CallLookout(Protocol):
    """Who looks at the calls of one turn as they are made, with what there is to see now."""

    def before(
        self, call: ToolCall, tool: Tool, context: ToolContext, trusted: Trusted, hold: Hold
    ) -> Passed | ToolResult:
        """Return a call as it may be made, or the result that it has because it may not."""
        ...

    def after(
        self, call: ToolCall, tool: Tool, base: Path, trusted: Trusted, result: ToolResult
    ) -> ToolResult:
        """Return what a call gave as it may be shown; it is whole, and not cut yet."""
        ...


class SpendingLimits(Protocol):
    """What one turn may spend: asked before each question to a model, and told what became of it.

    What a question can cost is reserved before it is asked, and given back as it is known what it did cost.
    """

    def look(
        self, call: int, key: str, entry: ModelEntry, request: Request, *, trust: str = ""
    ) -> Iterator[GateVerdict]:
        """Yield what is said of a question about to be asked; raise `LimitReached` when it may not be."""
        ...

    def reserve(self, key: str, entry: ModelEntry, request: Request) -> None:
        """Reserve the most that a question can cost which is about to be asked."""
        ...

    def release(self, call: int) -> None:
        """Give back what was reserved for a question: it was not asked, or what it cost is known."""
        ...

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Count what a question has cost, and what of the reservations for it is lost."""
        ...

    @property
    def unsettled(self) -> Lost:
        """What the turn may have spent beside its answers: what is reserved, and what is lost."""
        ...

    def lost(self, call: int) -> Lost:
        """Return what of the reservations for a question is lost, now that it is over."""
        ...


class CallsOfTick(NamedTuple):
    """How the model calls of a tick are made, and where it is put down: `journal`, for whoever gathers them.

    `make` makes a bare provider, `live` asks one now, with retries. `journal` has what earlier attempts left.
    Without `sends` only what these sent is waited for. `sleep` ends when `stop` is set.
    """

    make: Callable[[ModelEntry], LLMProvider]
    live: Callable[[ModelEntry, Request], Reply]
    journal: Journal
    now: Callable[[], datetime]
    notify: Observer
    stop: threading.Event
    sends: bool
    sleep: Callable[[float], object]


class Gathering(Protocol):
    """Where the model calls of a tick wait for each other. Every method may be called from any thread."""

    def entered(self, turns: int = 1) -> None:
        """Count turns that may begin now, before the first of them asks."""
        ...

    def left(self) -> None:
        """Count a turn that is over; those that may begin because of it have entered before."""
        ...

    def complete(self, entry: ModelEntry, request: Request) -> Reply:
        """Return a model's answer. Raises what a live call raises, and `Unavailable` when all is to stop."""
        ...


class Shared(NamedTuple):
    """What turns of a tick share beside files, in words: who is `bound` waits for those before it that count.

    `counted`: those who make it what it is, all that are bound among them.
    """

    what: str
    bound: AbstractSet[str]
    counted: AbstractSet[str]


LetsIn = Callable[[OutboxEntry], bool]
"""Says whether a person has let an entry in."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class ToShow:
    """What a turn is to be shown, before it is put into a prompt; its results once the rest has passed."""

    task: Task | None
    inbox: Inbox
    asked: list[OutboxEntry]
    memories: Memories
    context: list[tuple[str, str]]
    tell: Callable[[Task | None], Sequence[Mapping[str, Any]]]


class Lookout(Protocol):
    """Who looks at what goes through the places of one turn, after everybody else."""

    def look_at_entry(self, new: NewEntry, at: str, *, is_approved: bool = False) -> NewEntry | None:
        """Return an entry as it may be written; None where it may not: why is told, or somebody asked."""
        ...

    def look_at_memory(self, key: str, value: Any) -> Any:
        """Return a value as it may be remembered; raise `ToolError` that says why it may not."""
        ...

    def look_at_notes(self, notes: str) -> str:
        """Return the notes of a reply as they may be kept and shown."""
        ...

    def look_at_effects(self, effects: Iterable[FileEffect], at: str) -> tuple[FileEffect, ...]:
        """Return the files that a tool wants written, its memories as they may be remembered."""
        ...

    def judged_call(self, call: ToolCall) -> ToolCall:
        """Return a call with what is said of it, by which gates at calls go."""
        ...

    def judged_result(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return what a call gave as it may be shown."""
        ...

    def taken_back(self) -> None:
        """Forget what the turn took back: it may be written again."""
        ...


class Words(Protocol):
    """How far what turns are shown is trusted, each in a word; `usual` is that of what bears none."""

    usual: str

    def known(self, word: str) -> str:
        """Return a word as it is, if it is one of those that there are, else the least trusted."""
        ...

    def of_entry(self, entry: OutboxEntry) -> str:
        """Return how far an entry is trusted."""
        ...

    def of_memories(self, agent_name: str, memories: Memories) -> Mapping[str, str]:
        """Return how far an agent's memories are trusted, of those that say so, by key."""
        ...


class Tracing(Protocol):
    """Who looks at where the calls of one turn reach: before each is made, and at what it gave."""

    @property
    def word(self) -> str:
        """How far the turn is trusted by now."""
        ...

    @property
    def source(self) -> str:
        """What made the turn trusted less than agents are; empty where nothing did."""
        ...

    def facts_of_args(self, args: Any) -> Json:
        """Return the trust labels of a call's arguments for gates."""
        ...

    @property
    def word_after(self) -> str:
        """How far it will be, once it has been given what the call gives that was looked at last."""
        ...

    def look(self, call: ToolCall, tool: Tool | None, context: ToolContext) -> None:
        """Look at what a call that is about to be made may look at."""
        ...

    def recorded_result(self, result: ToolResult) -> ToolResult:
        """Return the result of that call as it is recorded."""
        ...

    def take(self, result: ToolResult) -> None:
        """Note what a call gave, recorded or live."""
        ...
