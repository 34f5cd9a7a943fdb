"""Contents of a journal: a type for each kind of record. Pure.

The fields define the format: `lemming export schema journal` prints them, and every reader of a journal validates
lines against them, because a file anyone may have written is data, not code. A new kind is a class, a new key
a field. Keys a type does not declare are ignored; records of an unknown type are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_origin, get_type_hints

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.entry_kinds import OnError
from lemming.kernel.base.errors import Outcome
from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.files.field_types import (
    AgentName,
    Amount,
    Count,
    EntryFile,
    Json,
    Price,
    Schema,
    Timestamp,
    object_schema,
    type_schema,
)
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.record_parts import (
    PREFIX_FIELDS,
    CallJson,
    EffectJson,
    FailedAttempt,
    GivenTrustJson,
    Inputs,
    MessageJson,
    ModelJson,
    Read,
    ResumeJson,
    SaidBefore,
    State,
    TaskJson,
    ToolEntryJson,
    TotalsJson,
)
from lemming.kernel.journal.turn_report import JOURNAL_SPARSE_KEYS, TurnReport, VerdictJson, WriteOffJson

TurnNumber = Annotated[Count, {"description": "Number of the agent's turn in the tick; left out for 0."}]


@accept_old_names
class Record(Event):
    """A record of a journal."""

    @property
    def submitted_calls(self) -> Iterable[tuple[str, int]]:
        """The calls of agents' turns that are pending from this record on: they are not made again."""
        return ()

    def as_journal_json(self) -> Json:
        """Return the content of the record's line, without `type`, `epoch` and `check`."""
        return self.as_json()

    @classmethod
    def from_json(cls, plain: Json) -> Self:
        """Return the record of this kind from a line; other keys are ignored."""
        return cls(**{key: plain[key] for key in cls.__annotations__ if key in plain})

    def without_secrets(self) -> Self:
        """Return the record without secrets in the texts; the record's own names stay readable."""
        return self.from_json({key: redact_json(value) for key, value in self.as_json().items()})

    @classmethod
    def json_schema(cls) -> Schema:
        """Return the schema of the record, without `type`, `epoch` and `check`."""
        schemas = {key: type_schema(hint) for key, hint in _field_types(cls).items()}
        required = {key: schema for key, schema in schemas.items() if not hasattr(cls, key)}
        return object_schema(required, {key: schema for key, schema in schemas.items() if key not in required})


def _field_types(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields by name, in declaration order."""
    hints = get_type_hints(kind, include_extras=True)
    return {key: hint for key, hint in hints.items() if get_origin(hint) is not ClassVar and key != "kind"}


class TickStarted(Record):
    """The plan of a tick: the agents that take a turn, in order, and the reasons for the other agents."""

    at: Timestamp
    boot: Annotated[str, {"description": "Which start of the machine it was."}] = ""
    after: Annotated[int | None, {"maximum": LAST_TICK, "description": "The tick before it that has one."}] = None
    since: Annotated[str, {"description": "Up to which reading of the clock earlier ticks went."}] = ""
    tick: Count
    order: Annotated[list[AgentName], {"uniqueItems": True}]
    not_due: list[AgentName] = []  # noqa: RUF012 - never changed, as the two below
    skipped: dict[str, str] = {}  # noqa: RUF012
    broken: dict[str, str] = {}  # noqa: RUF012
    mcp: Annotated[Json, {"description": "The tools of MCP servers, by server, as the tick began."}] = {}  # noqa: RUF012
    at_once: Annotated[bool, {"description": "It was run for what was asked, and not by the clock."}] = False
    chosen: Annotated[list[AgentName], {"description": "The agents that somebody named for it."}] = []  # noqa: RUF012
    left_out: Annotated[list[AgentName], {"description": "Due by the clock, and not named for it."}] = []  # noqa: RUF012
    settings: Annotated[dict[str, str], {"description": "SHA-256 of each settings file, by its path."}] = {}  # noqa: RUF012

    @property
    def server_tools(self) -> dict[str, Json]:
        """Server tools at the start of the tick, by the capability that scanned the servers."""
        return {"mcp": self.mcp} if self.mcp else {}


class TurnStarted(Record):
    """All inputs of a turn, recorded before the model is called.

    Most fields may be stored in journals of earlier ticks (`journal.prompt_store`). They are then resolved on
    access, and `CorruptState` is raised if a part is gone.
    """

    # A slot is not in `vars`, which are what the journal's line holds.
    __slots__ = ("_fetch",)

    agent: AgentName
    entries: list[str]
    prompt: Annotated[list[Json], list[MessageJson]]
    schema: Json | None
    resume: Annotated[Json, ResumeJson]
    model: Annotated[Json, ModelJson]
    allocation: Json
    max_steps: Annotated[int, {"minimum": 1, "maximum": 50}]
    repairs: Annotated[int, {"minimum": 0, "maximum": 5}]
    loops: Annotated[Json | None, {"description": "When a loop is broken; 0.2.0 wrote none."}] = None
    form: Annotated[Json | None, {"description": "The form of replies; none: the contract's keys."}] = None
    state: State
    read: Read
    warned: bool = False
    inputs: Inputs | None = None
    damaged: list[str] = []  # noqa: RUF012
    task: Annotated[Json, TaskJson] | None = None
    open_requests: dict[str, AgentName] = {}  # noqa: RUF012
    said_requests: dict[str, AgentName] = {}  # noqa: RUF012
    given: Annotated[Json, {"description": "What capabilities start from, by their names."}] = {}  # noqa: RUF012
    turn: TurnNumber = 0
    dialogue: SaidBefore = []  # noqa: RUF012

    # Hidden from mypy, which would take any misspelt name for one that `__getattr__` knows.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in PREFIX_FIELDS and self._is_resolved():
                return vars(self)[name]
            return super().__getattr__(name)

    def as_json(self) -> Json:
        """Return the record as JSON values, without `type`, `epoch` and `check`."""
        self._is_resolved()
        return vars(self)

    @classmethod
    def from_json(cls, plain: Json, fetch: Callable[[], Json] | None = None) -> Self:
        """Return the record from a line: complete, or without the fields `fetch` returns."""
        record = super().from_json(plain)
        object.__setattr__(record, "_fetch", fetch)
        return record

    def _is_resolved(self) -> bool:
        fetch = getattr(self, "_fetch", None)
        if fetch is not None:
            fields = vars(self) | fetch()
            vars(self).clear()
            vars(self).update({key: fields[key] for key in type(self).__annotations__ if key in fields})
            object.__setattr__(self, "_fetch", None)
        return fetch is not None


class TurnResumed(Record):
    """An interrupted turn resumes."""

    agent: AgentName
    turn: TurnNumber = 0


class TurnStopped(Record):
    """The operator stopped the engine during this turn."""

    agent: AgentName
    turn: TurnNumber = 0


class ModelReserved(Record):
    """Upper bound of the cost of an imminent call, recorded where limits apply."""

    agent: AgentName
    call: Count
    key: str
    credits: Amount
    cost_usd: Price
    tokens: Count = 0


class ModelStarted(Record):
    """A call that may act outside is about to start."""

    agent: AgentName
    call: Count


class ModelReplied(Record):
    """A model's answer, recorded before any of its effects."""

    agent: AgentName
    call: Count
    at: Timestamp
    text: str
    finish: Literal["stop", "length", "refusal", "too_large", "failed"] = "stop"
    model: str = ""
    input_tokens: Count
    output_tokens: Count
    cached_tokens: Count = 0
    is_estimated: bool = False
    credits: Amount
    cost_usd: Price = None
    duration_ms: int = 0
    calls: Annotated[list[Json], list[CallJson]] = []  # noqa: RUF012
    thinking: str = ""
    kept: Any = None
    batched: bool = False
    written_tokens: Annotated[int, {"minimum": 0, "description": "Of the input, put into a cache."}] = 0
    key: Annotated[str, {"description": "The model key that answered, where it was a fallback."}] = ""
    attempts: Count = 1
    earlier: list[FailedAttempt] = []  # noqa: RUF012
    verdicts: Annotated[list[Json], list[VerdictJson]] = []  # noqa: RUF012
    lost: Annotated[Json, WriteOffJson] = {}  # noqa: RUF012
    acted: Annotated[bool, {"description": "It may have acted outside, and is asked for no correction."}] = False


class ModelFailed(Record):
    """A failed model call. `at`: the time, if the failure ends the request of the turn."""

    agent: AgentName
    call: Count
    code: str = ""
    error: str
    message: str
    duration_ms: Count = 0
    attempts: Count = 1
    earlier: list[FailedAttempt] = []  # noqa: RUF012
    verdicts: Annotated[list[Json], list[VerdictJson]] = []  # noqa: RUF012
    at: Annotated[str, {"anyOf": [{"format": "date-time"}, {"const": ""}]}] = ""
    lost: Annotated[Json, WriteOffJson] = {}  # noqa: RUF012


class ToolStarted(Record):
    """A tool with side effects is about to run."""

    agent: AgentName
    index: Count
    tool: str
    args: Any
    kept: Annotated[Json, {"description": "What capabilities keep with it, by their names."}] = {}  # noqa: RUF012


class ToolFinished(Record):
    """A tool's result, and the files to write for it."""

    agent: AgentName
    index: Count
    tool: str
    success: bool
    outcome: Literal[Outcome, ""] = ""
    output: str
    effects: Annotated[list[Json], list[EffectJson]]
    duration_ms: Count = 0
    passed_on: Amount = 0.0
    entries: Annotated[list[Json], list[ToolEntryJson]] = []  # noqa: RUF012
    attempts: Annotated[int, {"minimum": 1}] = 1
    on_error: OnError = "return"
    trust: Annotated[Json, GivenTrustJson] = {}  # noqa: RUF012
    entries_by: Annotated[str, {"description": "The capability that wrote its entries, if not the tool."}] = ""
    kept: Annotated[Json, {"description": "As in tool_started."}] = {}  # noqa: RUF012
    verdicts: Annotated[list[Json], list[VerdictJson]] = []  # noqa: RUF012
    approved: Annotated[int, {"minimum": 0, "description": "Questions of capabilities that persons had approved."}] = 0


class GateAsked(Record):
    """Result of a function that a gate called, or of a program that checked the turn.

    `wrote`: the files of the turn's tools were written before.
    """

    agent: AgentName
    number: Count
    function: str
    found: Json | None = None
    error: str = ""
    wrote: bool = False


class TurnTold(Record):
    """Urgent entries of persons that the turn shows before model call number `call`: lines by identity."""

    agent: AgentName
    call: Count
    entries: dict[str, str]

    def as_line(self) -> str:
        """Return a line that names the agent and the entries."""
        return f"{self.agent} is told while it works: {', '.join(self.entries)}"


class TurnAnswered(Record):
    """With durability "tick": the turn has all its answers; its files are not yet written."""

    agent: AgentName
    turn: TurnNumber = 0


class TurnEnded(Record):
    """End of a turn: the report, and the agent's state if the turn failed."""

    report: TurnReport
    state: Json | None = None

    @property
    def agent_name(self) -> str:
        """Name of the turn's agent."""
        return self.report.agent

    @property
    def turn(self) -> int:
        """Number of the turn among the agent's turns in the tick."""
        return self.report.turn

    def as_json(self) -> Json:
        """Return the fields of the report, and the state if there is one."""
        return self._add_state(self.report.as_json())

    def as_journal_json(self) -> Json:
        """Return the fields of the report without empty values, and the state if there is one."""
        return self._add_state(self.report.as_journal_json())

    def _add_state(self, plain: Json) -> Json:
        return {**plain, "state": self.state} if self.state is not None else plain

    @classmethod
    def from_json(cls, plain: Json) -> Self:
        """Return the record from a line."""
        state = {"state": plain["state"]} if "state" in plain else {}
        return cls(report=TurnReport.from_json(plain), **state)

    @classmethod
    def json_schema(cls) -> Schema:
        """Return the schema of the record, without `type`, `epoch` and `check`."""
        report = {key: type_schema(hint) for key, hint in _field_types(TurnReport).items()}
        absent = {name: report.pop(name) for name in (*JOURNAL_SPARSE_KEYS, "end")}
        return object_schema(report, {**absent, "code": type_schema(str)})


class TurnSkipped(TurnEnded):
    """A due agent took no turn."""

    def as_journal_json(self) -> Json:
        """Return the reason only: a skipped turn has nothing else to record, and a tick may have thousands."""
        recorded_keys = ("agent", "status", "reason", "error", "turn", "code")
        return {key: value for key, value in super().as_journal_json().items() if key in recorded_keys}

    @classmethod
    def json_schema(cls) -> Schema:
        """Return the schema of the record, without `type`, `epoch` and `check`."""
        properties = {**super().json_schema()["properties"], "status": type_schema(Literal["skipped"])}
        return {"type": "object", "properties": properties, "required": ["agent", "status"]}


class TurnCommitted(TurnEnded):
    """The turn's files are written."""

    @classmethod
    def json_schema(cls) -> Schema:
        """Return the schema of the record, without `type`, `epoch` and `check`."""
        schema = super().json_schema()
        schema["properties"]["state"] = type_schema(State)
        return schema


class EntriesExpired(Record):
    """Expired outbox entries are about to be removed."""

    files: list[EntryFile]
    unread: dict[AgentName, Count] = {}  # noqa: RUF012
    unread_in_all: dict[AgentName, Count] = {}  # noqa: RUF012


class TickCommitted(Record):
    """The end of the tick."""

    tick: Count
    advanced: bool
    totals: Annotated[Json, TotalsJson]


RECORDS: dict[str, type[Record]] = {
    kind.kind: kind
    for kind in (
        TickStarted, TurnStarted, TurnResumed, TurnStopped, ModelReserved, ModelStarted, ModelReplied, ModelFailed,
        ToolStarted, ToolFinished, GateAsked, TurnTold,
        TurnAnswered, TurnSkipped, TurnCommitted, EntriesExpired, TickCommitted,
    )
}  # fmt: skip
"""The engine's record classes by `type`; capabilities add others."""
