"""Inputs, steps and outcome of a turn: plain values without disk access."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lemming.kernel.agents import Agent
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.contract import ToolCall, TurnReply
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.base.turn_numbers import first_number
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.turn_report import End, TurnReport
from lemming.kernel.messages import OutboxEntry, entry_id
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.org.settings_blocks import LoopSettings
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.forms.reply_form import ReplyForm

if TYPE_CHECKING:
    from lemming.kernel.obligations.current_request import CurrentRequest
    from lemming.kernel.tools.tool_context import ToolContext
    from lemming.kernel.turn.turn_effects import AskPerson


@accept_old_names
@dataclass(kw_only=True, slots=True)  # made for every turn, and a frozen one takes three times as long
class TurnInputs:
    """Inputs of a turn, all recorded in the journal before the first model call.

    `model`: the line of `config/models.json`. `allocation`: the agent's credit limits. `repairs`: maximum corrections of
    each reply. `state`: the agent's ledger before the turn. `read`: the read mark after a written turn. `warned`: True
    if the prompt warns of the soft cap.
    """

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
    """Digests of the agent's files besides entries, for `"wake": "changed"`; None for an agent that wakes otherwise."""
    damaged: frozenset[str] = frozenset()
    """Keys of memories whose files a person damaged, which are not overwritten."""
    current_request: CurrentRequest | None = None
    """The request of the turn, made from the `Task` of the agenda, or None for a turn about the inbox."""
    open_requests: dict[str, str] = field(default_factory=dict)
    """The askers by identity of the open requests shown beside others."""
    said_requests: dict[str, str] = field(default_factory=dict)
    """The askers by identity of requests that the inbox shows as ordinary entries, which the turn need not answer."""
    given: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Snapshots of the participating capabilities, by name (`turn.turn_hooks`)."""
    loops: LoopSettings | None = None
    """Limits of the loop breaker; None for a turn begun by a version without one."""
    turn: int = 0
    """Number of the turn among the agent's turns in the tick."""
    dialogue: Sequence[Message] = ()
    """Messages of the same request from earlier turns, shown after the prompt."""
    memories_seen: Mapping[str, str] | None = None
    """The digests of the agent's memories as the turn began; None: a record does not have them."""
    problem: ProviderError | None = None
    """Error raised by each model call: the resume or the settings have changed since the record. Not recorded."""

    @property
    def request_identity(self) -> str:
        """The identity of the turn's request, or an empty text in a turn about the inbox."""
        return self.current_request.request if self.current_request else ""

    @property
    def first_messages(self) -> list[Message]:
        """Messages of the first model call."""
        return [*self.prompt, *self.dialogue]

    def entry_id(self, number: int) -> str:
        """Return the id of the turn's entry `number`."""
        return entry_id(self.tick, self.agent.name, number, self.turn)

    def call_id(self, index: int) -> str:
        """Return the id of the turn's tool call number `index`: `TICK/AGENT/INDEX`."""
        return f"{self.tick}/{self.agent.name}/{first_number(self.turn) + index}"


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Answer:
    """A model's reply as the journal records it: text, time and usage."""

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
    acted: bool = False
    asked_by: str = field(default="", init=False)
    """The capability that asked for itself, noted by the turn; empty for the turn's own question."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Ask:
    """A model call. The agent's own model is used unless `model` is a key of `config/models.json`.

    `schema`: JSON Schema of the answer for backends with constrained output. None selects the schema of the
    contract, an empty dict no schema. The generator receives the `Answer`, or a `ProviderError` or
    `OutOfCredits` is thrown into it.
    """

    messages: Sequence[Message]
    model: str = ""
    schema: dict[str, Any] | None = None


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Act:
    """A reply to carry out: write the entries, call the tools, store the memories.

    `has_seen`: True if the author of the reply has seen the results up to this point; False if the results
    are still to be shown.
    """

    reply: TurnReply
    has_seen: bool = True


Step = Ask | Act
Steps = Generator[Step, Any, End]


class AnswerSource(Protocol):
    """Source of a turn's answers: first the record, then the outside world.

    Model calls (`call`) and tool calls (`index`) are numbered apart, each from 0 in the turn. `at` is the time of the
    reply that makes the call. `staged`: files of the turn that are not written yet, by `FileEffect.path_key`.
    """

    def ask(self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None) -> Answer:
        """Return model answer number `call`.

        Raises `ProviderError`, or `OutOfCredits` if the call is not affordable.

        `model` is a key of `config/models.json`, empty for the agent's own; `schema` as in `Ask`.
        """

    @property
    def everyone(self) -> Collection[str]:
        """Names of the agents that existed as the tick began."""

    def has_answer(self, call: int) -> bool:
        """Return True if model answer number `call` is recorded."""

    def take_urgent(self, call: int, trust_label: str) -> Mapping[str, str]:
        """Return the urgent entries to show before model call number `call`: lines by identity.

        `trust_label`: label of the turn so far, empty without trust tracking.
        """

    def start_calls(
        self, first: int, calls: Sequence[ToolCall], at: str, staged: Callable[[], dict[str, FileEffect]]
    ) -> None:
        """Start the calls of a reply that may run in parallel. The calls are numbered from `first` on.

        `call_tool` returns and records their results in order; a call without a `call_tool` was never made.
        """

    def call_tool(
        self,
        index: int,
        call: ToolCall,
        at: str,
        staged: dict[str, FileEffect],
        questions: Sequence[AskPerson] = (),
        approved: int = 0,
    ) -> ToolResult:
        """Return the result of the turn's tool call number `index`. Persons must approve `questions` first.

        `approved`: number of those that they have approved already, for the record.
        """

    def is_approved(
        self, index: int, call: ToolCall, at: str, staged: dict[str, FileEffect], questions: Sequence[AskPerson]
    ) -> bool:
        """Return True if a person has approved the call that the last question is about, by the record or now."""

    def refuse(self, index: int, call: ToolCall, refusal: ToolResult, approved: int = 0) -> None:
        """Record that the turn's tool call number `index` was refused before a tool ran. `approved` as in `call_tool`."""

    def has_call(self, index: int) -> bool:
        """Return True if the turn's tool call number `index`, or the start, is recorded."""

    def run_check(self, name: str, run: CheckRun, at: str, staged: dict[str, FileEffect] | None) -> CheckFinding | None:
        """Return the finding of the turn's next check. Raises `CheckFunctionError`.

        `staged`: files that are written first, or None for a check that looks at no file.
        """

    def had_side_effects(self, index: int) -> bool:
        """Return True if the call had side effects, before which `call_tool` wrote the staged files."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class TurnOutcome:
    """Outcome of a turn: the report, the files to write in order, and the agent's next state.

    `state_if_unwritten` computes the state to store if the files cannot be written.
    """

    report: TurnReport
    state: AgentState
    state_if_unwritten: Callable[[], AgentState]
    entries: tuple[OutboxEntry, ...] = ()
    effects: tuple[FileEffect, ...] = ()


class PayloadWithDigests(NamedTuple):
    """An outgoing payload with the SHA-256 digests of the attached files, by path."""

    payload: Json
    files: Mapping[str, str] = MappingProxyType({})


class CheckFinding(NamedTuple):
    """Finding of a check: the reason the content may not pass, and the replacement of a rewrite."""

    why: str
    content: Any = None


class CheckFunctionError(Exception):
    """A check function failed. The message describes the failure."""


CheckRun = Callable[["ToolContext"], CheckFinding | None]
"""Runs a check of a turn: a function of a plugin, or a program."""
