"""The objects that records have in them: what a reader may rely on, key by key. Pure."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.files.fields import PATH_PATTERN, AgentName, Amount, Count, Digest, Json, Price
from lemming.kernel.journal.report import LostJson

IN_THE_OPENING = (
    "prompt", "schema", "resume", "model", "allocation", "max_steps", "repairs", "loops", "form",
)  # fmt: skip
"""The fields of a `TurnStarted` that all turns of an agent begin with; of the prompt all but its end."""
# Written so because of keys that are words of Python's own.
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
    """What an agent has been shown: `lemming.kernel.journal.read_mark`."""

    through: dict[str, int]
    also: list[str]
    unusable: NotRequired[list[str]]
    by_hand: NotRequired[list[str]]


class ResultJson(TypedDict):
    """A tool call and its result, as a prompt shows them."""

    tool: str
    args: Any
    success: bool
    output: str
    trust: NotRequired[str]
    unknown: NotRequired[str]


class InputsJson(TypedDict):
    """The digests of what a turn reads beside its inbox."""

    resume: str
    memory: dict[str, str]
    context: dict[str, str]


class AskedJson(TypedDict):
    """Something asked of one agent: `lemming.kernel.journal.begun`."""

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
    """What a model and its tools said for a request: `lemming.kernel.journal.dialogue`."""

    style: str
    messages: list[Json]
    calls: NotRequired[list[str]]
    hidden: NotRequired[list[str]]
    trust: NotRequired[str]


class BegunJson(TypedDict):
    """A request that a turn was taken for, and that is still open."""

    request: str
    asked: NotRequired[list[AskedJson]]
    enough: NotRequired[list[Count]]
    results: NotRequired[list[ResultJson]]
    turns: Count
    failures: NotRequired[Count]
    spent: NotRequired[Amount]
    calls: NotRequired[Count]
    dialogue: NotRequired[DialogueJson]


class TaskJson(TypedDict):
    """The request that a turn is for: `lemming.kernel.turn.values`."""

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
    begun: BegunJson


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
    requests: NotRequired[list[BegunJson]]
    end: NotRequired[str]
    aside: NotRequired[dict[str, Amount]]
    lost: NotRequired[LostJson]
    kept: NotRequired[dict[str, Json]]


State = Annotated[Json, StateJson]


class ResumeJson(TypedDict):
    """A resume, as far as a record is checked; the rest is `lemming.kernel.journal.turn_start`."""

    name: AgentName
    turn: NotRequired[Json]


class ModelJson(TypedDict):
    """A line of `config/models.json`, likewise."""

    provider: str


class MessageJson(TypedDict):
    """A message of a prompt. `tools`: those that the backend itself is told of, in the first."""

    role: str
    content: str
    tools: NotRequired[list[Json]]


SaidBefore = Annotated[
    list[Json],
    {"description": "What was said for the same request in earlier turns: messages behind the prompt."},
]


class CallJson(TypedDict):
    """A tool call that a model made by its backend's own tool calls; `args` that are no JSON are text."""

    id: str
    tool: str
    args: Any


class FailedAttempt(TypedDict):
    """Why a model that was asked again had not answered before."""

    code: str
    error: str
    message: str


class EffectJson(TypedDict):
    """A file that a tool wants written, or taken away: `lemming.kernel.files.effects`."""

    root: Annotated[
        str, {"anyOf": [{"const": ""}, {"pattern": f"^(?=/){PATH_PATTERN[1:]}", "maxLength": 4096}]}
    ]
    path: Annotated[str, {"pattern": f"^(?!/){PATH_PATTERN[1:]}", "maxLength": 4096}]
    text: str
    removes: NotRequired[list[Digest]]


class EmittedJson(TypedDict):
    """An entry that a tool wants written into the outbox of its caller."""

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
