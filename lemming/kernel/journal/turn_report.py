"""Reports of a tick and its turns: plain values stored in the journal and printed by commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, dataclass_transform, get_args

from lemming.kernel.base.errors import Outcome, error_code
from lemming.kernel.files.field_types import AgentName, Amount, Count, Digest, EntryFile, FilePath, Json, Price

Status = Literal["done", "waiting", "skipped", "failed"]
STATUSES: tuple[Status, ...] = ("done", "waiting", "skipped", "failed")


End = Literal[
    "done", "handed_on", "repeats", "waits", "step_limit", "deadline", "unanswered", "out_of_credits",
    "paused", "skipped", "bad_reply", "cut_off", "no_answer", "failed",
]  # fmt: skip
"""Ends of a turn. Done: `done`, `handed_on` (its request), `repeats` (a call gave the same result again and
again). Waiting: `waits` (for other agents), `step_limit` (results remain for the next turn), `deadline`,
`unanswered` (its request), `out_of_credits`, `paused`. Skipped: `out_of_credits`, `paused`, `skipped`.
Failed: `bad_reply` (against the contract), `cut_off` (by the token limit), `no_answer` (of the model),
`failed` (any other reason)."""

ENDS = frozenset(get_args(End))

STATUS_OF: Mapping[End, Status] = {
    "done": "done", "handed_on": "done", "repeats": "done", "waits": "waiting", "step_limit": "waiting",
    "deadline": "waiting", "unanswered": "waiting", "out_of_credits": "waiting", "paused": "waiting",
    "skipped": "skipped", "bad_reply": "failed", "cut_off": "failed", "no_answer": "failed",
    "failed": "failed",
}  # fmt: skip
"""The status of each end; a turn out of credits before its first answer is skipped."""
USUAL_ENDS: Mapping[str, End] = {
    "done": "done", "waiting": "step_limit", "skipped": "skipped", "failed": "failed"
}  # fmt: skip
"""End of a turn whose record has none, by its status."""


def is_applied(status: Status) -> bool:
    """Return True if the files of a turn with this status are written."""
    return status in ("done", "waiting")


ReasonCode = Literal[
    "due", "news", "begun", "ended", "not_due", "person", "channel", "paused", "broken", "nothing_new",
    "out_of_credits", "failing",
]  # fmt: skip
"""Reasons for a turn in a tick: `due` (by schedule; the agent always wakes), `news` (something is new),
`begun` (the turn was interrupted). Reasons for none: `ended`, `not_due`, `person` or `channel`, `paused`,
`broken` (the resume), `nothing_new`, `out_of_credits`, `failing`."""


class EntryWritten(TypedDict):
    """An entry written by a turn."""

    id: str
    kind: str
    file: EntryFile


class ToolUseJson(TypedDict):
    """A tool called by a turn."""

    tool: str
    success: bool
    outcome: NotRequired[Outcome]
    code: NotRequired[str]


class FileWritten(TypedDict):
    """A file written by a turn."""

    path: FilePath
    sha256: Digest


class VerdictJson(TypedDict):
    """A gate's objection, and the configuration line of the gate: `config/org.json#/gates/2`."""

    line: str
    at: At
    then: Then
    about: str
    why: str


class JudgeVerdictJson(TypedDict):
    """A judge's verdict on one draft."""

    by: str
    passes: bool
    reason: str


class JudgingJson(TypedDict):
    """Verdicts on a turn's drafts, with their part of the turn's cost. `passed`: the final draft passed all judges."""

    passed: bool
    verdicts: list[JudgeVerdictJson]
    calls: Count
    credits: Amount
    cost_usd: Price


class WriteOffJson(TypedDict):
    """A write-off in records, reports and ledgers (`lemming.kernel.journal.write_offs`)."""

    calls: Count
    credits: Amount
    cost_usd: Price
    tokens: NotRequired[Count]


class BudgetJson(TypedDict):
    """Budget of the request a turn served. `of`: the amount in credits, or in tokens if `unit` says so.

    `charged`: amount spent after the turn, by the turns of the request and all the sub-requests; an open
    sub-request counts with its whole budget.
    """

    of: Amount
    charged: Amount
    unit: NotRequired[str]


SPARSE_KEYS = (
    "request", "budget", "removed", "trust", "verdicts", "judged", "lost", "turn", "stopped",
)  # fmt: skip
"""Keys of a report that are left out of JSON if empty."""
JOURNAL_SPARSE_KEYS = (
    "reason", "error", "model", "tools", "written_ahead", "remarks", "notes", "duration_ms", *SPARSE_KEYS,
)  # fmt: skip
"""Keys that a journal's line leaves out if empty or 0, as most are."""


@dataclass_transform(kw_only_default=True)
class _FieldBag:
    """Base for values stored as given keyword arguments, with class attributes as defaults."""

    def __init__(self, **fields: Any) -> None:  # a dataclass takes four times as long
        self.__dict__ = fields

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


class TurnReport(_FieldBag):
    """Result of an agent's turn in a tick.

    done: the turn's effects are on disk. waiting: the effects are on disk, and tool results wait for the
    agent's next turn. skipped: no model was called, `reason` tells the cause. failed: the turn wrote nothing,
    `reason` tells the cause. `written_ahead`: files written before a tool with side effects ran, for the tool
    to change; they stay, even if the turn fails. `removed`: files removed by the turn. `trust`: trust label
    of the written entries, and the sources. `cost_usd` is None if the price is unknown. `request`: the entry
    the turn served, as author/tick_id. `budget`: budget of the request. `verdicts`: verdicts of gates.
    `judged`: verdicts of judges on the turn's drafts. `lost`: write-off for unanswered calls. `stopped`: the
    reason the agent is paused from now on. All of these are left out of JSON if empty. Without an `end`, the
    usual end of the status applies. `turn`: number of the turn among the agent's turns in the tick; 0 is left
    out.
    """

    agent: AgentName
    status: Status
    end: Literal[End, ""] = ""
    reason: str = ""
    error: str = ""
    model: str = ""
    entries: list[EntryWritten] = []  # noqa: RUF012
    tools: list[ToolUseJson] = []  # noqa: RUF012
    memory: list[str] = []  # noqa: RUF012
    files: list[FileWritten] = []  # noqa: RUF012
    removed: list[FilePath] = []  # noqa: RUF012
    written_ahead: list[FilePath] = []  # noqa: RUF012
    remarks: list[str] = []  # noqa: RUF012
    notes: str = ""
    calls: Count = 0
    credits: Amount = 0.0
    cost_usd: Price = None
    input_tokens: Count = 0
    output_tokens: Count = 0
    duration_ms: int = 0
    request: str = ""
    trust: Json = {}  # noqa: RUF012
    verdicts: list[VerdictJson] = []  # noqa: RUF012
    judged: JudgingJson | None = None
    lost: WriteOffJson | None = None
    budget: BudgetJson | None = None
    stopped: str = ""
    turn: Count = 0

    @property
    def turn_key(self) -> str:
        """The key of the turn: `lemming.kernel.base.turn_numbers.turn_key`."""
        return f"{self.agent}#{self.turn}" if self.turn else self.agent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnReport) and other.as_json() == self.as_json()

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values, with the code of the error if there is one."""
        return self._to_sparse_json(SPARSE_KEYS)

    def as_journal_json(self) -> dict[str, Any]:
        """Return the report for a journal line, without empty or zero values."""
        return self._to_sparse_json(JOURNAL_SPARSE_KEYS)

    def _to_sparse_json(self, sparse_keys: tuple[str, ...]) -> dict[str, Any]:
        """Return JSON without the given keys if empty, and with the code of an error."""
        values = {**_DEFAULTS, **vars(self)}
        for key in sparse_keys:
            if not values[key]:
                del values[key]
        values["end"] = self.end or USUAL_ENDS[self.status]
        if self.error:
            values["code"] = error_code(self.error)
        return values

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> TurnReport:
        """Return the report described by a journal record; other keys of the record are ignored."""
        return cls(**{key: plain[key] for key in cls.__annotations__ if key in plain})


_DEFAULTS = {key: getattr(TurnReport, key, "") for key in TurnReport.__annotations__}


class TurnReason(NamedTuple):
    """Reason an agent takes a turn in a tick, or takes none: `code` for programs, `text` for people.

    `error`: the class of the error, if there was one.
    """

    code: ReasonCode
    text: str = ""
    error: str = ""

    @property
    def takes_turn(self) -> bool:
        """True if the agent takes a turn."""
        return self.code in ("due", "news", "begun")

    def to_report(self, agent: str) -> TurnReport:
        """Return the report of an agent without a turn for this reason."""
        status: Status = "failed" if self.code in ("broken", "failing") else "skipped"
        end: Literal[End, ""] = self.code if self.code in ("out_of_credits", "paused") else ""
        return TurnReport(agent=agent, status=status, end=end, reason=self.text, error=self.error)


@dataclass(frozen=True, kw_only=True)
class TickReport:
    """Result of a tick. `turns`: reports of all due agents in order, then of agents whose check failed.

    `not_due` counts the other agents. `is_quiet`: True if no agent took a turn, and only the tick counter was
    written. `is_complete` is False if the tick was stopped before the end; the next run continues it.
    """

    tick: int
    turns: tuple[TurnReport, ...]
    not_due: int = 0
    is_quiet: bool = False
    is_complete: bool = True
    was_recorded: bool = False
    duration_ms: int = 0

    def by_status(self, status: Status) -> list[TurnReport]:
        """Return the reports with a given status."""
        return [turn for turn in self.turns if turn.status == status]

    @property
    def totals(self) -> dict[str, Any]:
        """The sums over all turns. `cost_usd` is None if the price of any call is unknown."""
        called_turns = [turn for turn in self.turns if turn.calls]
        costs = [turn.cost_usd for turn in called_turns]
        known_costs = [cost for cost in costs if cost is not None]
        return {
            **{status: len(self.by_status(status)) for status in STATUSES},
            "entries": sum([len(turn.entries) for turn in self.turns]),
            "calls": sum([turn.calls for turn in self.turns]),
            "credits": sum([turn.credits for turn in self.turns]),
            "cost_usd": sum(known_costs) if len(known_costs) == len(costs) and costs else None,
            "input_tokens": sum([turn.input_tokens for turn in self.turns]),
            "output_tokens": sum([turn.output_tokens for turn in self.turns]),
        }

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "tick": self.tick,
            "is_quiet": self.is_quiet,
            "not_due": self.not_due,
            "is_complete": self.is_complete,
            "was_recorded": self.was_recorded,
            "duration_ms": self.duration_ms,
            "totals": self.totals,
            "turns": [turn.as_json() for turn in self.turns],
        }


At = Literal["in", "call", "result", "out", "spend"]
"""Stages of a gate. `in`: content shown to a turn. `call`: a tool call. `result`: its result, before
truncation. `out`: entries and memories. `spend`: a model call, before it is made."""

Then = Literal["pass", "warn", "rewrite", "block", "ask", "stop"]
"""Outcomes of a gate. `pass`, `block` and `stop` (the turn) are final. After `warn`, `rewrite` and `ask` the
next gate decides; a person is asked only about content that no later gate blocks."""


class GateVerdict(NamedTuple):
    """A gate's objection: the gate's line, its action (`then`), its subject and the reason.

    `amounts`: the numbers behind the reason of a limit, as `spent`, `limit` and `call` (the upper bound of
    the call's cost), each in `unit`; None for every other gate.
    """

    line: str
    at: At
    then: Then
    about: str
    why: str = ""
    amounts: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for the journal, without `amounts` if there are none."""
        values = self._asdict()
        if self.amounts is None:
            del values["amounts"]
        return values
