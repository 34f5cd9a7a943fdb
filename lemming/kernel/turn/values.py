"""What goes into a turn, what it asks for on the way, and what comes out: plain values, and no disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import ToolCall, TurnReply
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.base.turn_numbers import first_number
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.journal.report import End, TurnReport
from lemming.kernel.messages import OutboxEntry, entry_id
from lemming.kernel.org.blocks import LoopSettings
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.forms.reply_form import ReplyForm
from lemming.kernel.turn.places import Found, Functions

if TYPE_CHECKING:
    from lemming.kernel.llm.credits import Most


class Paid(Protocol):
    """An answer of a model, with what it cost."""

    @property
    def input_tokens(self) -> int:
        """What was read for it."""
        ...

    @property
    def output_tokens(self) -> int:
        """What was written."""
        ...

    @property
    def credits(self) -> float:
        """What that was worth."""
        ...


class Purpose(Protocol):
    """What a turn is for, where that is one thing that was asked: as whoever says so has it, and records it.

    `request`: the entry's identity, empty for what the agent asked on its own account; `asker`: to whom the
    answer is owed; `id`: what it refers to.
    """

    @property
    def request(self) -> str:
        """The entry's identity."""
        ...

    @property
    def asker(self) -> str:
        """To whom the answer is owed."""
        ...

    @property
    def id(self) -> str:
        """What the answer refers to."""
        ...

    @property
    def begun(self) -> Begun:
        """Where it stands."""
        ...

    @property
    def answered(self) -> tuple[tuple[str, str], ...]:
        """What calls asked for it, and has an answer: both entries, by identity."""
        ...

    @property
    def has_budget(self) -> bool:
        """Whether what may be spent on it is limited."""
        ...

    def why_unpaid(self, answers: Iterable[Paid], lost: Lost, worst: Most | None = None) -> str:
        """Return the reason to ask for nothing more that could cost so much; empty if there is none.

        `answers`: those of the turn; `lost`: what it may have spent beside them.
        """
        ...

    def as_json(self) -> Json:
        """Return it as the turn's record has it."""
        ...


@dataclass(kw_only=True, slots=True)  # made for every turn, and a frozen one takes three times as long
class TurnInputs:
    """What a turn starts from. All of it is in the journal before the model is asked."""

    agent: Agent
    tick: int
    model: ModelEntry
    allocation: AgentCredits
    max_steps: int
    repairs: int
    prompt: list[Message]
    schema: dict[str, Any] | None
    state: AgentState
    read: ReadMark
    form: ReplyForm | None = None
    """The form of its replies; None: they are the contract's four keys, as all were up to 0.2.0."""
    warned: bool = False
    fingerprint: dict[str, Any] | None = None
    damaged: frozenset[str] = frozenset()
    """Keys of memories whose files a person broke: they are not written over."""
    task: Purpose | None = None
    """What the turn is for; None: for its inbox."""
    open_requests: dict[str, str] = field(default_factory=dict)
    """Who asked, by the identity of the open requests that the prompt shows beside others."""
    said_requests: dict[str, str] = field(default_factory=dict)
    """Likewise of new entries that ask the agent for something, and are shown as all others."""
    given: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What capabilities start from that take part in the turn, by their names (`turn.seams`)."""
    loops: LoopSettings | None = None
    """When a loop is broken; None: the turn was begun by a version that broke none."""
    turn: int = 0
    """Which of the agent's turns in the tick it is."""
    dialogue: Sequence[Message] = ()
    """What was said for the same request in earlier turns, as it goes on: messages behind the prompt."""
    memories_seen: Mapping[str, str] | None = None
    """The digests of the agent's memories as the turn began; None: a record does not have them."""
    problem: ProviderError | None = None
    """Why no model can be asked any more, if so."""

    @property
    def question(self) -> list[Message]:
        """The messages that the model is asked with first."""
        return [*self.prompt, *self.dialogue]

    def entry_id(self, number: int) -> str:
        """Return the id of the turn's entry with this number."""
        return entry_id(self.tick, self.agent.name, number, self.turn)

    def call_id(self, index: int) -> str:
        """Return the id of the turn's tool call number `index`: `TICK/AGENT/INDEX`."""
        return f"{self.tick}/{self.agent.name}/{first_number(self.turn) + index}"


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Answer:
    """A model's reply as the journal keeps it: the text, when it came, what it used."""

    text: str
    at: str
    finish: str = "stop"
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    is_estimated: bool = False
    credits: float = 0.0
    cost_usd: float | None = None
    duration_ms: int = 0
    calls: Sequence[dict[str, Any]] = ()
    kept: Any = None
    verdicts: Sequence[dict[str, Any]] = ()
    lost: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Ask:
    """A question to a model, the agent's own unless `model` is a key of `config/models.json`.

    `schema`: the JSON Schema of the answer, for backends that can keep to one; None: the contract's; empty:
    none. Sent back is the `Answer`; thrown is what stood in its place: a `ProviderError`, or `OutOfCredits`.
    """

    messages: Sequence[Message]
    model: str = ""
    schema: dict[str, Any] | None = None


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Act:
    """A reply whose entries are written, whose tools are called and whose memories are kept.

    `has_seen`: whether whoever gave it was shown the results so far; else they are still to be shown.
    """

    reply: TurnReply
    has_seen: bool = True


Step = Ask | Act
Steps = Generator[Step, Any, End]


class Answers(Protocol):
    """Where the answers of a turn come from: its record first, the world after that."""

    def ask(
        self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None
    ) -> Answer:
        """Return the model's answer number `call`; raise what stood in its place.

        That is a `ProviderError`, or `OutOfCredits` when the call could not be paid for. `model` is a key of
        `config/models.json`, empty for the agent's own; `schema` as in `Ask`.
        """
        ...

    @property
    def everyone(self) -> Collection[str]:
        """The names of the agents that there were as the tick began."""
        ...

    def knows(self, call: int) -> bool:
        """Return whether the model's answer number `call` is recorded."""
        ...

    def begin(
        self, first: int, calls: Sequence[ToolCall], at: str, staged: Callable[[], dict[str, FileEffect]]
    ) -> None:
        """Begin those calls of a reply that may run at once, of these, which are number `first` on.

        What they give `use` returns, and records, in their order; what is not `use`d was not called.
        """
        ...

    def use(self, index: int, call: ToolCall, at: str, staged: dict[str, FileEffect]) -> ToolResult:
        """Return the result of the turn's tool call number `index`."""
        ...

    def refuse(self, index: int, call: ToolCall, refused: ToolResult) -> None:
        """Record that the turn's tool call number `index` was refused before it reached a tool."""
        ...

    def has_call(self, index: int) -> bool:
        """Return True if the turn's tool call number `index` is recorded, or its beginning is."""
        ...

    def check(self, number: int, name: str, seen: dict[str, Any], functions: Functions) -> Found | None:
        """Return what a function says that is asked, the turn's `number`th time; raise why it broke."""
        ...

    def reached_outside(self, index: int) -> bool:
        """Return whether that call had effects of its own, before which `use` wrote what was staged."""
        ...


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class TurnOutcome:
    """What a turn came to: the report, the files to write in this order, and the agent's next state.

    `state_if_unwritten` works out the state to keep instead if the files turn out not to be writable.
    """

    report: TurnReport
    state: AgentState
    state_if_unwritten: Callable[[], AgentState]
    entries: tuple[OutboxEntry, ...] = ()
    effects: tuple[FileEffect, ...] = ()
