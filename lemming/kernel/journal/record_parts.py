"""The JSON objects nested in records: the keys a reader may rely on. Pure."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.turn_numbers import TURNS_PER_TICK
from lemming.kernel.files.field_types import PATH_PATTERN, AgentName, Amount, Count, Digest, Json, Price
from lemming.kernel.journal.turn_report import WriteOffJson

PREFIX_FIELDS = (
    "prompt", "schema", "resume", "model", "allocation", "max_steps", "repairs", "loops", "form",
)  # fmt: skip
"""Fields of a `TurnStarted` shared by all turns of an agent; of the prompt, all but its end."""
# In this form because some keys are keywords of Python.
SourceJson = TypedDict("SourceJson", {"is": str, "of": str})
GivenTrustJson = TypedDict(
    "GivenTrustJson",
    {
        "is": NotRequired[str],
        "from": NotRequired[list[SourceJson]],
        "bears": NotRequired[dict[str, SourceJson]],
        "marked": NotRequired[list[str]],
        "below": NotRequired[list[str]],
    },
)


class ReadMarkJson(TypedDict):
    """Read position of an agent: `lemming.kernel.journal.read_cursor`."""

    through: dict[str, int]
    also: list[str]
    unusable: NotRequired[list[str]]
    by_hand: NotRequired[list[str]]


class ResultJson(TypedDict):
    """A tool call and the result, as shown in a prompt."""

    tool: str
    args: Any
    success: bool
    output: str
    trust: NotRequired[str]
    unknown: NotRequired[str]


class InputsJson(TypedDict):
    """Digests of a turn's inputs other than the inbox."""

    resume: str
    memory: dict[str, str]
    context: dict[str, str]


class SubRequestJson(TypedDict):
    """A request sent to an agent: `lemming.kernel.journal.open_requests`."""

    request: str
    to: str
    until: NotRequired[Count]
    group: NotRequired[Count]
    call: NotRequired[Count]
    end: NotRequired[str]
    answer: NotRequired[str]
    held: NotRequired[dict[str, Json]]
    budget: NotRequired[Amount]


class DialogueJson(TypedDict):
    """Messages of a model and the tools for a request: `lemming.kernel.journal.open_requests`."""

    style: str
    messages: list[Json]
    calls: NotRequired[list[str]]
    hidden: NotRequired[list[str]]
    trust: NotRequired[str]


class OpenRequestJson(TypedDict):
    """A request that has had a turn and is still open."""

    request: str
    asked: NotRequired[list[SubRequestJson]]
    enough: NotRequired[list[Count]]
    results: NotRequired[list[ResultJson]]
    turns: Count
    failures: NotRequired[Count]
    spent: NotRequired[Amount]
    calls: NotRequired[Count]
    in_vain: NotRequired[dict[str, int]]
    stands_still: NotRequired[bool]
    dialogue: NotRequired[DialogueJson]


class TaskJson(TypedDict):
    """The request served by a turn: `lemming.kernel.turn.turn_values`."""

    request: str
    asker: str
    until: NotRequired[Count]
    conversation: NotRequired[str]
    reply_to: NotRequired[str]
    hops: NotRequired[Count]
    path: NotRequired[list[str]]
    budget: NotRequired[Amount]
    spent: NotRequired[Amount]
    allotted: NotRequired[Amount]
    unit: NotRequired[str]
    at: NotRequired[str]
    asked: NotRequired[Json]
    max_calls: NotRequired[Count]
    begun: OpenRequestJson


Read = Annotated[Json, ReadMarkJson]

Inputs = Annotated[Json, InputsJson]


class StateJson(TypedDict):
    """A line of an agent's ledger: `lemming.kernel.journal.ledger`."""

    tick: int
    status: str
    turns: Count
    credits: Amount
    cost_usd: Price
    unpriced_calls: Count
    input_tokens: Count
    output_tokens: Count
    soft_cap_warned: bool
    read: ReadMarkJson
    results: list[ResultJson]
    inputs: InputsJson | None
    passed_on: NotRequired[Amount]
    expired_unread: NotRequired[Count]
    serving: NotRequired[str]
    requests: NotRequired[list[OpenRequestJson]]
    end: NotRequired[str]
    aside: NotRequired[dict[str, Amount]]
    lost: NotRequired[WriteOffJson]
    failed: NotRequired[Count]
    in_vain: NotRequired[dict[str, int]]
    kept: NotRequired[dict[str, Json]]
    turn: NotRequired[Annotated[int, {"minimum": 0, "maximum": TURNS_PER_TICK - 1}]]
    loops: NotRequired[dict[str, int]]


State = Annotated[Json, StateJson]


class ResumeJson(TypedDict):
    """The part of a resume validated in a record; the rest is in `lemming.kernel.journal.journal_parser`."""

    name: AgentName
    turn: NotRequired[Json]


class ModelJson(TypedDict):
    """The part of an item of `config/models.json` validated in a record."""

    provider: str


class MessageJson(TypedDict):
    """A message of a prompt. `tools`: in the first message, the tools declared to the backend."""

    role: str
    content: str
    tools: NotRequired[list[Json]]


SaidBefore = Annotated[
    list[Json], {"description": "What was said for the same request in earlier turns: messages behind the prompt."}
]


class CallJson(TypedDict):
    """A tool call made by a model through the backend; `args` that are not valid JSON are text."""

    id: str
    tool: str
    args: Any


class FailedAttempt(TypedDict):
    """Reason of a failed attempt of a retried model call."""

    code: str
    error: str
    message: str


class EffectJson(TypedDict):
    """A file to be written or removed for a tool: `lemming.kernel.files.file_effects`."""

    root: Annotated[str, {"anyOf": [{"const": ""}, {"pattern": f"^(?=/){PATH_PATTERN[1:]}", "maxLength": 4096}]}]
    path: Annotated[str, {"pattern": f"^(?!/){PATH_PATTERN[1:]}", "maxLength": 4096}]
    text: str
    removes: NotRequired[list[Digest]]


class ToolEntryJson(TypedDict):
    """An entry from a tool for the outbox of the calling agent."""

    kind: MessageKind
    payload: Json
    tags: list[str]


class TotalsJson(TypedDict):
    """The sums over the turns of a tick."""

    done: Count
    waiting: Count
    skipped: Count
    failed: Count
    entries: Count
    calls: Count
    credits: Amount
    cost_usd: Price
    input_tokens: Count
    output_tokens: Count
