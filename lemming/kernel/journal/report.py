"""What a tick did, agent by agent: plain values that the journal holds and the commands print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, dataclass_transform, get_args

from lemming.kernel.base.errors import Outcome, code_of
from lemming.kernel.files.fields import AgentName, Amount, Count, Digest, EntryFile, Json, Place, Price
from lemming.kernel.journal.verdicts import At, Then

Status = Literal["done", "waiting", "skipped", "failed"]
STATUSES: tuple[Status, ...] = ("done", "waiting", "skipped", "failed")


End = Literal[
    "done", "handed_on", "repeats", "waits", "step_limit", "deadline", "unanswered", "out_of_credits",
    "paused", "skipped", "bad_reply", "cut_off", "no_answer", "failed",
]  # fmt: skip
"""How a turn ends. Done: `done`, `handed_on` (its request), `repeats` (a call gave the same again and again).
Waiting: `waits` (others were asked), `step_limit` (results are left for its next turn), `deadline` (its time
was over), `unanswered` (its request is), `out_of_credits`, `paused`. Skipped: `out_of_credits`, `paused`,
`skipped`. Failed: `bad_reply` (no reply was the contract), `cut_off` (it was cut at its limit of tokens),
`no_answer` (of the model), `failed` (else)."""

ENDS = frozenset(get_args(End))

STATUS_OF: Mapping[End, Status] = {
    "done": "done", "handed_on": "done", "repeats": "done", "waits": "waiting", "step_limit": "waiting",
    "deadline": "waiting", "unanswered": "waiting", "out_of_credits": "waiting", "paused": "waiting",
    "skipped": "skipped", "bad_reply": "failed", "cut_off": "failed", "no_answer": "failed",
    "failed": "failed",
}  # fmt: skip
"""The status that an end makes a turn have; one whose credits end before its first answer is skipped."""
USUAL_ENDS: Mapping[str, End] = {
    "done": "done", "waiting": "step_limit", "skipped": "skipped", "failed": "failed"
}  # fmt: skip
"""The end of a turn that says none, by its status."""


Why = Literal[
    "due", "news", "begun", "ended", "not_due", "person", "channel", "paused", "broken", "nothing_new",
    "out_of_credits", "failing",
]  # fmt: skip
"""Why an agent takes a turn in a tick: `due` (its schedule says so, and it always wakes), `news` (so it does,
and something is new to it), `begun` (it was interrupted). Why it takes none: `ended` (it is over), `not_due`,
`person` or `channel` (one speaks for it), `paused`, `broken` (its resume), `nothing_new`, `out_of_credits`,
`failing` (it would)."""


class EntryWritten(TypedDict):
    """An entry that a turn wrote."""

    id: str
    kind: str
    file: EntryFile


class ToolUsed(TypedDict):
    """A tool that a turn called."""

    tool: str
    success: bool
    outcome: NotRequired[Outcome]
    code: NotRequired[str]


class FileWritten(TypedDict):
    """A file that a turn wrote."""

    path: Place
    sha256: Digest


class VerdictJson(TypedDict):
    """What a gate said that was not to pass, and the line that says so: `config/org.json#/gates/2`."""

    line: str
    at: At
    then: Then
    about: str
    why: str


class Judgement(TypedDict):
    """What a judge said of one draft."""

    by: str
    passes: bool
    reason: str


class Judged(TypedDict):
    """How a turn's drafts were judged, and what that cost: it is part of what the turn cost.

    `passed`: whether what left passed all its judges.
    """

    passed: bool
    verdicts: list[Judgement]
    calls: Count
    credits: Amount
    cost_usd: Price


class LostJson(TypedDict):
    """What is lost, as records, reports and ledgers have it (`lemming.kernel.journal.lost_calls`)."""

    calls: Count
    credits: Amount
    cost_usd: Price
    tokens: NotRequired[Count]


class BudgetJson(TypedDict):
    """The budget of the request that a turn was for: `of` so many credits, or tokens as its `unit` says.

    `charged`: what counts as spent of it after the turn, by its turns and by all that was asked for it; what
    is still open counts with all that it may spend.
    """

    of: Amount
    charged: Amount
    unit: NotRequired[str]


MAY_SAY_NOTHING = (
    "request", "budget", "removed", "trust", "verdicts", "judged", "lost", "turn", "stopped",
)  # fmt: skip
"""Keys of a report that are left out of JSON where they are empty."""
NOT_IN_EVERY_LINE = (
    "reason", "error", "model", "tools", "written_ahead", "remarks", "notes", "duration_ms", *MAY_SAY_NOTHING,
)  # fmt: skip
"""Those that are left out of a journal's line where they are empty or 0, as mostly all of them are."""


@dataclass_transform(kw_only_default=True)
class _Facts:
    """A value that holds what it was made of. A field that was left out is as its class has it."""

    def __init__(self, **fields: Any) -> None:  # a dataclass takes four times as long
        self.__dict__ = fields

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


class TurnReport(_Facts):
    """What became of one agent in one tick.

    done: the turn's effects are on disk. waiting: they are, and tool results wait for the agent's next
    turn. skipped: no model was asked, `reason` says why. failed: the turn wrote nothing, `reason` says why.
    `written_ahead` are files that were written before a tool that reaches outside ran, and were its to
    change; they stay, also when the turn fails.
    `removed` are files that it took away; it is left out of JSON where there are none.
    `trust`: how far what it wrote is trusted, and what made it so; left out of JSON where nobody tracks that.
    `cost_usd` is None when the price is not known. `request` is the entry, as author/tick_id, that the turn
    was for; it is left out of JSON where it was for none, and so are `budget`, that of the request,
    `verdicts`, of gates, `judged`, what judges said of its drafts, `lost`, calls whose answers never came,
    and `stopped`, why the agent is paused from now on. Without an
    `end` it is the usual one of the status. `turn`: its number among the agent's in the tick; 0 is left out.
    """

    agent: AgentName
    status: Status
    end: Literal[End, ""] = ""
    reason: str = ""
    error: str = ""
    model: str = ""
    entries: list[EntryWritten] = []  # noqa: RUF012
    tools: list[ToolUsed] = []  # noqa: RUF012
    memory: list[str] = []  # noqa: RUF012
    files: list[FileWritten] = []  # noqa: RUF012
    removed: list[Place] = []  # noqa: RUF012
    written_ahead: list[Place] = []  # noqa: RUF012
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
    judged: Judged | None = None
    lost: LostJson | None = None
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
        return self._without(MAY_SAY_NOTHING)

    def for_line(self) -> dict[str, Any]:
        """Return what a journal's line holds of the report: without what is empty or 0."""
        return self._without(NOT_IN_EVERY_LINE)

    def _without(self, where_empty: tuple[str, ...]) -> dict[str, Any]:
        """Return JSON without those of these keys that say nothing, and with the code of an error."""
        plain = {**_LEFT_OUT, **vars(self)}
        for key in where_empty:
            if not plain[key]:
                del plain[key]
        plain["end"] = self.end or USUAL_ENDS[self.status]
        if self.error:
            plain["code"] = code_of(self.error)
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> TurnReport:
        """Return the report that a journal record describes; other keys of the record are passed over."""
        return cls(**{key: plain[key] for key in cls.__annotations__ if key in plain})


_LEFT_OUT = {key: getattr(TurnReport, key, "") for key in TurnReport.__annotations__}


class Reason(NamedTuple):
    """Why an agent takes a turn in a tick, or takes none: `why` for programs, `text` for people.

    `error` is the class of what went wrong, if something did.
    """

    why: Why
    text: str = ""
    error: str = ""

    @property
    def takes_turn(self) -> bool:
        """Whether the agent takes a turn."""
        return self.why in ("due", "news", "begun")

    def report(self, agent: str) -> TurnReport:
        """Return the report of an agent that took no turn for this reason."""
        status: Status = "failed" if self.why in ("broken", "failing") else "skipped"
        end: Literal[End, ""] = self.why if self.why in ("out_of_credits", "paused") else ""
        return TurnReport(agent=agent, status=status, end=end, reason=self.text, error=self.error)


@dataclass(frozen=True, kw_only=True)
class TickReport:
    """What one tick did. `turns` holds a report for every agent that was due, in their order, then for those
    that could not be asked. `not_due` counts the others.

    `is_quiet`: nobody took a turn, so nothing was written but the tick counter. `is_complete` is false when
    the tick was stopped half-way; the next run continues it.
    """

    tick: int
    turns: tuple[TurnReport, ...]
    not_due: int = 0
    is_quiet: bool = False
    is_complete: bool = True
    was_recorded: bool = False
    duration_ms: int = 0
    base: str = field(default="", compare=False, repr=False)
    """The organisation's folder, for who shows what was written; empty where nobody said."""

    def by_status(self, status: Status) -> list[TurnReport]:
        """Return the reports with this status."""
        return [turn for turn in self.turns if turn.status == status]

    @property
    def totals(self) -> dict[str, Any]:
        """The sums over all turns. `cost_usd` is None as soon as one call's price is not known."""
        asked = [turn for turn in self.turns if turn.calls]
        costs = [turn.cost_usd for turn in asked]
        known = [cost for cost in costs if cost is not None]
        return {
            **{status: len(self.by_status(status)) for status in STATUSES},
            "entries": sum([len(turn.entries) for turn in self.turns]),
            "calls": sum([turn.calls for turn in self.turns]),
            "credits": sum([turn.credits for turn in self.turns]),
            "cost_usd": sum(known) if len(known) == len(costs) and costs else None,
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

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it: what each agent did."""
        from lemming.kernel.journal.notebook import tick_as_html

        return tick_as_html(self.as_json(), self.base)
