"""What a journal holds: a type for each kind of record. Pure.

Their fields are the table of the format: `lemming schema journal` prints it, and whoever reads a journal
checks by it before believing a line, since a file that anybody may have written is data, not code. A new kind
is a class, a new key a field. Keys that a type does not name are passed over, records of no type are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_origin, get_type_hints

from lemming.kernel.base.errors import Outcome
from lemming.kernel.base.kinds import OnError
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.files.fields import (
    AgentName,
    Amount,
    Count,
    EntryFile,
    Json,
    Price,
    Schema,
    object_of,
    schema_of,
)
from lemming.kernel.journal.events import Event
from lemming.kernel.journal.record_parts import (
    IN_THE_OPENING,
    CallJson,
    EffectJson,
    EmittedJson,
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
    TotalsJson,
)
from lemming.kernel.journal.report import NOT_IN_EVERY_LINE, LostJson, TurnReport, VerdictJson
from lemming.kernel.plugins.capabilities import record_class, why_missing
from lemming.kernel.plugins.shipped import RECORDED

TurnNumber = Annotated[Count, {"description": "Number of the agent's turn in the tick; left out for 0."}]


class Record(Event):
    """One record of a journal."""

    @property
    def sent_calls(self) -> Iterable[tuple[str, int]]:
        """The calls of agents' turns that somebody waits for from here on: they are not made again."""
        return ()

    def for_line(self) -> Json:
        """Return what its line holds, without `type`, `epoch` and `check`."""
        return self.as_json()

    @classmethod
    def from_json(cls, plain: Json) -> Self:
        """Return the record that a line holds, which is of this kind; other keys are passed over."""
        return cls(**{key: plain[key] for key in cls.__annotations__ if key in plain})

    def without_secrets(self) -> Self:
        """Return the record without secrets in its texts; its own names stay, for whoever reads it."""
        return self.from_json({key: redact_json(value) for key, value in self.as_json().items()})

    @classmethod
    def json_schema(cls) -> Schema:
        """Return the schema of such a record, without `type`, `epoch` and `check`."""
        schemas = {key: schema_of(hint) for key, hint in _hints_of(cls).items()}
        required = {key: schema for key, schema in schemas.items() if not hasattr(cls, key)}
        return object_of(required, {key: schema for key, schema in schemas.items() if key not in required})


def _hints_of(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields by name, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return {key: hint for key, hint in hints.items() if get_origin(hint) is not ClassVar and key != "kind"}


class TickStarted(Record):
    """The plan: who takes a turn, in what order, and why the others do not."""

    at: str
    boot: Annotated[str, {"description": "Which start of the machine it was."}] = ""
    after: Annotated[int | None, {"description": "The tick before it that has one."}] = None
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
    def servers(self) -> dict[str, Json]:
        """What servers had as the tick began, by the capability that looked."""
        return {"mcp": self.mcp} if self.mcp else {}


class TurnStarted(Record):
    """Everything a turn starts from, before the model is asked.

    Most of it may stand in journals of earlier ticks (`journal.prompts`). Then it is fetched when it
    is asked for, and `CorruptState` is raised where it is gone.
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
            if name in IN_THE_OPENING and self._is_fetched():
                return vars(self)[name]
            raise AttributeError(name)

    def as_json(self) -> Json:
        """Return the record as JSON values, without `type`, `epoch` and `check`."""
        self._is_fetched()
        return vars(self)

    @classmethod
    def from_json(cls, plain: Json, fetch: Callable[[], Json] | None = None) -> Self:
        """Return the record that a line holds, all of it or all but what `fetch` returns."""
        record = super().from_json(plain)
        object.__setattr__(record, "_fetch", fetch)
        return record

    def _is_fetched(self) -> bool:
        fetch = getattr(self, "_fetch", None)
        if fetch is not None:
            fields = vars(self) | fetch()
            vars(self).clear()
            vars(self).update({key: fields[key] for key in type(self).__annotations__ if key in fields})
            object.__setattr__(self, "_fetch", None)
        return fetch is not None


class TurnResumed(Record):
    """An interrupted turn goes on."""

    agent: AgentName
    turn: TurnNumber = 0


class TurnStopped(Record):
    """The operator stopped the engine during this turn."""

    agent: AgentName
    turn: TurnNumber = 0


class ModelReserved(Record):
    """The most that a call can cost that is about to be made, where limits hold."""

    agent: AgentName
    call: Count
    key: str
    credits: Amount
    cost_usd: Price
    tokens: Count = 0


class ModelReplied(Record):
    """A model's answer, before anything it causes."""

    agent: AgentName
    call: Count
    at: str
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
    lost: Annotated[Json, LostJson] = {}  # noqa: RUF012


class ModelFailed(Record):
    """A model call that gave no answer. `at`: when, where that fails the request which the turn is for."""

    agent: AgentName
    call: Count
    code: str = ""
    error: str
    message: str
    duration_ms: Count = 0
    attempts: Count = 1
    earlier: list[FailedAttempt] = []  # noqa: RUF012
    verdicts: Annotated[list[Json], list[VerdictJson]] = []  # noqa: RUF012
    at: str = ""
    lost: Annotated[Json, LostJson] = {}  # noqa: RUF012


class ToolStarted(Record):
    """A tool with an effect outside is about to run."""

    agent: AgentName
    index: Count
    tool: str
    args: Any
    kept: Annotated[Json, {"description": "What capabilities keep with it, by their names."}] = {}  # noqa: RUF012


class ToolFinished(Record):
    """A tool's result, and the files it wants written."""

    agent: AgentName
    index: Count
    tool: str
    success: bool
    outcome: Literal[Outcome, ""] = ""
    output: str
    effects: Annotated[list[Json], list[EffectJson]]
    duration_ms: Count = 0
    passed_on: Amount = 0.0
    entries: Annotated[list[Json], list[EmittedJson]] = []  # noqa: RUF012
    attempts: Annotated[int, {"minimum": 1}] = 1
    on_error: OnError = "return"
    trust: Annotated[Json, GivenTrustJson] = {}  # noqa: RUF012
    entries_by: Annotated[str, {"description": "The capability that wrote its entries, if not the tool."}] = (
        ""
    )
    kept: Annotated[Json, {"description": "As in tool_started."}] = {}  # noqa: RUF012
    verdicts: Annotated[list[Json], list[VerdictJson]] = []  # noqa: RUF012


class GateAsked(Record):
    """What a function said that a gate asked of an entry or a memory of the turn."""

    agent: AgentName
    number: Count
    function: str
    found: Json | None = None
    error: str = ""


class TurnAnswered(Record):
    """With durability "tick": the turn has all its answers, its files are still to be written."""

    agent: AgentName
    turn: TurnNumber = 0


class TurnEnded(Record):
    """How a turn ended: its report, and the state of an agent whose turn failed."""

    report: TurnReport
    state: Json | None = None

    @property
    def about(self) -> str:
        """The agent whose turn it was."""
        return self.report.agent

    @property
    def turn(self) -> int:
        """The number of the turn among the agent's in the tick."""
        return self.report.turn

    def as_json(self) -> Json:
        """Return the fields of the report, and the state if there is one."""
        return self._with_state(self.report.as_json())

    def for_line(self) -> Json:
        """Return the same without what says nothing."""
        return self._with_state(self.report.for_line())

    def _with_state(self, plain: Json) -> Json:
        return {**plain, "state": self.state} if self.state is not None else plain

    @classmethod
    def from_json(cls, plain: Json) -> Self:
        """Return the record that a line holds."""
        state = {"state": plain["state"]} if "state" in plain else {}
        return cls(report=TurnReport.from_json(plain), **state)

    @classmethod
    def json_schema(cls) -> Schema:
        """Return the schema of such a record, without `type`, `epoch` and `check`."""
        report = {key: schema_of(hint) for key, hint in _hints_of(TurnReport).items()}
        absent = {name: report.pop(name) for name in (*NOT_IN_EVERY_LINE, "end")}
        return object_of(report, {**absent, "code": schema_of(str)})


class TurnSkipped(TurnEnded):
    """The agent was due and took no turn."""

    def for_line(self) -> Json:
        """Return why: nothing else is to tell of a turn that was not taken, and a tick may have thousands."""
        kept = ("agent", "status", "reason", "error", "turn", "code")
        return {key: value for key, value in super().for_line().items() if key in kept}

    @classmethod
    def json_schema(cls) -> Schema:
        """Return the schema of such a record, without `type`, `epoch` and `check`."""
        properties = {**super().json_schema()["properties"], "status": schema_of(Literal["skipped"])}
        return {"type": "object", "properties": properties, "required": ["agent", "status"]}


class TurnCommitted(TurnEnded):
    """The turn's files are written."""

    @classmethod
    def json_schema(cls) -> Schema:
        """Return the schema of such a record, without `type`, `epoch` and `check`."""
        schema = super().json_schema()
        schema["properties"]["state"] = schema_of(State)
        return schema


class EntriesExpired(Record):
    """Outbox entries past their retention are about to be removed."""

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
        TickStarted, TurnStarted, TurnResumed, TurnStopped, ModelReserved, ModelReplied, ModelFailed,
        ToolStarted, ToolFinished, GateAsked,
        TurnAnswered, TurnSkipped, TurnCommitted, EntriesExpired, TickCommitted,
    )
}  # fmt: skip
"""The engine's own kinds by the `type` that their lines have; further ones are those of capabilities."""


def kind_of(name: str) -> type[Record] | None:
    """Return the kind of record by the `type` that its lines have; None for none that there is.

    Raises `ConfigError` for that of a capability that is not here.
    """
    return RECORDS.get(name) or record_class(name)


def all_kinds() -> dict[str, type[Record]]:
    """Return all kinds, those of capabilities that are here too, by the `type` that their lines have."""
    here = {name: record_class(name) for name, (by, _) in RECORDED.items() if not why_missing(by)}
    return RECORDS | here
