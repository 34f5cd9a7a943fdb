"""Effects of a turn, requests to the world and changes to leave behind, and their outcomes.

    effect -> the interceptors of its type, in order -> the kernel performs it -> outcome

A capability sees effects and answers with outcomes; and never changes the state of a turn. `effect_chain` takes an
effect through its interceptors. A type without interceptors costs nothing: the kernel does not even create the effect.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar

from lemming.kernel.base.contract import NewEntry, ToolCall, TurnReply
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.errors import Outcome as ResultOutcome
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.times import Expiry
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.turn_report import End
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult

_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A request of a turn.

    `facts`: values that capabilities derived, by name. A capability writes only facts it declares; models and persons
    write none.
    """

    facts: Mapping[str, Any] = field(default_factory=lambda: _NO_FACTS)


class LiveEffect(Effect):
    """An effect of the live phase (`live_phase`). Its content is large and not compared: no outcome is `Replaced`."""


class PreparationEffect(Effect):
    """An effect of a turn in preparation (`preparation_effects`). Its content is not compared either."""


UNCOMPARED = (LiveEffect, PreparationEffect)


def has_turn_effects(kinds: Iterable[type[Effect]]) -> bool:
    """Return True if any of the types occurs in a turn that has begun."""
    return any(not issubclass(kind, PreparationEffect) for kind in kinds)


@dataclass(frozen=True, kw_only=True)
class CallTool(Effect):
    """A call of a tool.

    `at`: time of the reply, ISO 8601. `grant`: the person's approval that the call carries, as recorded, or None.
    `call_id`: the backend's id of the call, or an empty string.
    """

    tool: str
    args: Any
    at: str = ""
    call_id: str = ""
    grant: Mapping[str, Any] | None = None

    @classmethod
    def from_call(cls, call: ToolCall, at: str) -> CallTool:
        """Return the effect of a call."""
        return cls(tool=call.tool, args=call.args, at=at, call_id=call.id, grant=call.approved)

    @property
    def call(self) -> ToolCall:
        """The call, as tools and journals have it."""
        return ToolCall(self.tool, self.args, self.call_id, self.grant, self.facts.get("judged"))


@dataclass(frozen=True, kw_only=True)
class TakeResult(Effect):
    """The result of a call, before the turn uses it. `had_side_effects`: the call was announced first."""

    call: CallTool
    result: ToolResult
    had_side_effects: bool = False


@dataclass(frozen=True, kw_only=True)
class WriteEntry(Effect):
    """An entry for the agent's outbox, whoever causes it: a reply, a tool, a strategy or a capability.

    `grant`: the person's approval that the entry carries, as recorded, or None. `is_independent`: not part of the turn's
    request. `written`: the entry as a tool wrote it into the outbox itself, such as a reminder, or None.
    """

    kind: MessageKind
    payload: dict[str, Any]
    tags: list[str]
    at: str = ""
    grant: Mapping[str, Any] | None = None
    is_independent: bool = False
    written: OutboxEntry | None = None

    @property
    def new(self) -> NewEntry:
        """The entry without id and author."""
        return NewEntry(self.kind, self.payload, self.tags)


@dataclass(frozen=True, kw_only=True)
class WriteMemory(Effect):
    """A memory of the agent: its key and JSON value."""

    memory_key: str
    value: Any
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class WriteFile(Effect):
    """A file written or removed by a tool, other than memories and entries."""

    file: FileEffect
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class WriteNotes(Effect):
    """The notes of a reply, for logs and screens."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Seal(Effect):
    """Outputs of the turn in their final form.

    Dispatched as the turn ends, and for its files before each call with side effects.

    `files`: the staged files by path, in the order of writing. An interceptor labels them; it adds files, and removes
    none.
    """

    files: Mapping[str, FileEffect]
    entries: Sequence[OutboxEntry] = ()
    results: Sequence[Json] = ()


@dataclass(frozen=True, kw_only=True)
class ShowResult(Effect):
    """The result of a call, as the model sees it within the turn: tool, args, success, output."""

    result: Json


@dataclass(frozen=True, kw_only=True)
class CheckEntries(Effect):
    """The entries of a reply as the model wrote them.

    The outcome's answer has for each entry the entry as it is written, or a list of problems in the payload.
    """

    entries: Sequence[NewEntry]


@dataclass(frozen=True, kw_only=True)
class TakeReply(Effect):
    """A model's reply, before any of it is carried out. A rejected reply is asked for again, within `repairs`."""

    reply: TurnReply


@dataclass(frozen=True, kw_only=True)
class BindFiles(Effect):
    """Payloads that are about to leave. The outcome's answer has for each a `PayloadWithDigests`, in order."""

    payloads: Sequence[Json]
    at: str


@dataclass(frozen=True, kw_only=True)
class CarryOut(Effect):
    """A reply that is carried out: entries, calls, memories. The outcome's answer is a `CarriedOut`.

    `has_seen`: a model wrote the reply and had seen all results; False for a reply that a strategy made.
    """

    reply: TurnReply
    at: str
    has_seen: bool = True


@dataclass(frozen=True)
class CarriedOut:
    """Writes of a reply that was carried out.

    `entries`: the new entries of the turn in order; `reply_entries`: the ids of those that the reply itself wrote. `memories`:
    the paths of the reply's memories, each with the file that was staged before, or None.
    """

    entries: Sequence[OutboxEntry]
    reply_entries: Collection[str]
    memories: Mapping[str, FileEffect | None]


@dataclass(frozen=True, kw_only=True)
class AskModel(Effect):
    """A question to a model. `model`: a key of `config/models.json`, empty for the agent's own. `schema` as in `Ask`.

    `asked_by`: the capability that asks for itself, or an empty string for the turn's own question.
    """

    messages: Sequence[Message]
    model: str = ""
    schema: dict[str, Any] | None = None
    asked_by: str = ""


@dataclass(frozen=True, kw_only=True)
class AskPerson(Effect):
    """A question to persons: may `subject` happen, exactly as it is?

    `asked_by`: the gate's line or the capability. `persons`: who may decide, None for anybody who may approve.
    `other_lines`: further rules that ask. `expires`: the earliest of these ends the question. The kernel sets `asker`, the
    plugin's capability, and `besides`, the persons who have answered its other questions about the same effect.
    """

    subject: Effect
    reason: str
    asked_by: str = ""
    persons: Collection[str] | None = None
    other_lines: Collection[str] = ()
    expires: tuple[Expiry, ...] = ()
    asker: str = field(default="", compare=False)
    besides: Collection[str] = field(default=(), compare=False)

    def find_answer(self, grant: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the approval that is the answer to this question, the earliest one, or None."""
        grants = [] if grant is None else [*grant.get("grants", ()), grant]
        return next(
            (item for item in grants if item.get("gate") == self.asked_by and self.may_decide(item["by"])), None
        )

    def may_decide(self, person: str) -> bool:
        """Return True if the question does not exclude a person."""
        return (self.persons is None or person in self.persons) and person not in self.besides


@dataclass(frozen=True, kw_only=True)
class Withdraw(Effect):
    """Take back writes of this turn's replies. Files that tools wrote stay, and so do memories that are on disk.

    `entries`: their identities. `memories`: their paths, each with the file that was staged before, or None. `by`: the
    capability, set by the kernel. The report names a plugin's capability.
    """

    entries: Collection[str] = ()
    memories: Mapping[str, FileEffect | None] = field(default_factory=dict)
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class EndTurn(Effect):
    """The end of the turn, with its error, if any, and its entries.

    `failure_entries`: entries written although the turn has failed. `drops_files`: files and memories are not
    written.
    """

    end: End
    error: LemmingError | None = None
    entries: tuple[OutboxEntry, ...] = ()
    failure_entries: tuple[OutboxEntry, ...] = ()
    drops_files: bool = False


WRITES = (WriteEntry, WriteMemory, WriteFile, WriteNotes, Seal)
"""Effects that leave something behind. An interceptor lets through only what the rest of the chain has seen."""


class Outcome:
    """The decision about an effect."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Allowed(Outcome):
    """The effect passed as `effect`. `answer` comes from the world, or from an interceptor."""

    effect: Effect
    answer: Any = None


@dataclass(frozen=True, slots=True)
class Replaced(Allowed):
    """The effect passed with other content. Only the kernel creates this outcome, by comparison."""


@dataclass(frozen=True, slots=True)
class Rejected(Outcome):
    """No, for a reason that the model sees. `is_final`: the turn ends as failed. `outcome`: the result's outcome."""

    reason: str
    is_final: bool = False
    outcome: ResultOutcome = "refused"


@dataclass(frozen=True, slots=True)
class Suspended(Outcome):
    """A person has to decide about `question.subject` first.

    `request`: the entry by which the capability `by` asks persons, or None if nobody is asked now. `reason`: the text that
    the model sees, in a result with this `outcome`.
    """

    question: AskPerson
    request: NewEntry | None = None
    reason: str = ""
    by: str = ""
    outcome: ResultOutcome = "pending"


@dataclass(frozen=True, slots=True)
class Deferred(Outcome):
    """Not yet: the same effect may be requested again later, and the repetition counts as no loop."""

    reason: str
    outcome: ClassVar[ResultOutcome] = "deferred"


@dataclass(frozen=True, slots=True)
class EffectStarted:
    """All interceptors agreed. Without this event two parallel calls could use one grant."""

    effect: Effect


@dataclass(frozen=True, slots=True)
class EffectPerformed:
    """The world answered, or the turn took the effect over."""

    effect: Effect
    answer: Any


@dataclass(frozen=True, slots=True)
class EffectFinished:
    """An effect has an outcome. `effect` is as requested, `outcome.effect` as performed."""

    effect: Effect
    outcome: Outcome


Refusal = Rejected | Suspended | Deferred
Event = EffectStarted | EffectPerformed | EffectFinished
Interception = Generator[Effect, Any, Outcome | None] | Outcome | None
"""Result of `intercept`: an outcome, None to take no part, or a generator that yields effects.

`outcome = yield effect` passes the effect, changed or not, to the rest of the chain. Another type of effect is
requested from the top of its own chain. Code after `yield AskPerson(...)` runs only once a person has approved.
"""


JSON_TYPES = (dict, list, str, int, float, bool, type(None))


def effect_content(effect: Effect) -> str:
    """Return the content of an effect as canonical JSON: what a person approves, without facts and times."""
    names = [item.name for item in fields(effect) if item.name not in ("facts", "at", "call_id", "grant", "written")]
    values = {name: getattr(effect, name) for name in names}
    content = {
        name: effect_content(value)
        if isinstance(value, Effect)
        else value
        if isinstance(value, JSON_TYPES)
        else repr(value)
        for name, value in values.items()
    }
    return dump_compact([type(effect).__name__, content]).decode()
