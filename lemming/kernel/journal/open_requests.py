"""Requests an agent has started and not finished, with the sub-requests sent to other agents for them.

They are stored in the agent's ledger, because the entries themselves do not hold these facts. Format:
docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.plugins.capability_table import DECISION_RULES


class _SparseJson:
    """Base for values whose empty fields are left out of JSON, except for those in `ALWAYS`."""

    ALWAYS: ClassVar[tuple[str, ...]] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the value as JSON; empty optional keys are left out."""
        values = {field.name: _to_plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        # False is 0 here, and is left out with it.
        empty: tuple[Any, ...] = (None, "", 0, [], {})
        return {key: value for key, value in values.items() if key in self.ALWAYS or value not in empty}


def _to_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [*map(_to_plain, value)]
    return value.as_json() if isinstance(value, _SparseJson) else value


@dataclass(frozen=True, kw_only=True)
class SubRequest(_SparseJson):
    """A request sent to an agent. `request` and `answer` are entries, by `EntryName.identity`.

    `until` is the last tick in which an answer counts, `not_after` the last time. `group`: number of the
    group of requests the agent waits for together. `call`: index of the asking tool call, among the stored
    results, plus 1. `end` is empty while the request is open. `held`: pending state, by the storing
    capability. `budget`: the share of the parent request's budget available for this request.
    """

    request: str
    to: str
    until: int | None = None
    group: int = 0
    call: int = 0
    end: str = ""
    answer: str = ""
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    not_after: str = ""
    budget: float | None = field(default=None, metadata={"ge": 0, "le": MAX_AMOUNT})

    @property
    def key(self) -> tuple[str, str]:
        """Key of the sub-request. One entry may ask several agents."""
        return self.request, self.to


@accept_old_names
@dataclass(frozen=True, kw_only=True)
class OpenRequest(_SparseJson):
    """A request that has had a turn and is still open.

    `request` is the entry's identity, empty for requests the agent sent on its own account. `asked`: the
    sub-requests, in order. `enough`: for each group, the number of outcomes to wait for. `results`: results
    of tool calls not yet shown in any turn. `turns`: number of turns taken. `failures`: number of consecutive
    turns without a usable result. `spent`: cost of the agent's own turns for the request, if the request has
    a budget. `calls`: number of model calls in these turns. `in_vain`: number of repeated results per call
    key. `stands_still`: True if the latest turn made no progress: no answer, and nothing asked, called or
    learned. `dialogue`: messages of the model and the tools, while results of the model's calls are pending.
    """

    ALWAYS = ("request", "turns")
    request: str
    asked: tuple[SubRequest, ...] = ()
    enough: tuple[int, ...] = ()
    results: tuple[dict[str, Any], ...] = ()
    turns: int = 0
    failures: int = 0
    spent: float = 0.0
    calls: int = 0
    in_vain: dict[str, int] = field(default_factory=dict)
    stands_still: bool = False
    dialogue: Dialogue | None = None

    @property
    def is_untouched(self) -> bool:
        """True if no turn has made progress on the request: shown in an inbox only, or all turns failed."""
        return not (self.asked or self.results or self.turns)

    @property
    def is_worth_recording(self) -> bool:
        """True if the value holds more than the fact of an open request, which the entries already show."""
        return bool(not self.is_untouched or self.failures or self.spent or self.calls)

    @property
    def key(self) -> str:
        """Key among the agent's open requests: the request, or the first sub-request if there is none."""
        return self.request or (self.asked[0].request if self.asked else "")

    @property
    def open_sub_requests(self) -> list[SubRequest]:
        """The sub-requests without an answer."""
        return [sub_request for sub_request in self.asked if not sub_request.end]

    @property
    def can_continue(self) -> bool:
        """True if enough sub-requests have ended for the request to continue."""
        ended_groups = [sub_request.group for sub_request in self.asked if sub_request.end]
        open_groups = {sub_request.group for sub_request in self.asked if not sub_request.end}
        return all(ended_groups.count(group) >= self.enough[group] for group in open_groups)

    @property
    def next_wake_tick(self) -> int | None:
        """The first tick in which an open sub-request has expired, or None."""
        ticks = [sub_request.until + 1 for sub_request in self.open_sub_requests if sub_request.until is not None]
        return min(ticks, default=None)

    @property
    def has_deadline(self) -> bool:
        """True if an open sub-request has a deadline, in ticks or by the clock."""
        return any(sub_request.until is not None or sub_request.not_after for sub_request in self.open_sub_requests)

    def with_outcomes(self, outcomes: Mapping[tuple[str, str], tuple[str, str]]) -> OpenRequest:
        """Return the open request with the given outcomes of open sub-requests: end and answer, by key."""
        sub_requests = tuple(
            replace(sub_request, end=outcomes[sub_request.key][0], answer=outcomes[sub_request.key][1])
            if sub_request.key in outcomes
            else sub_request
            for sub_request in self.asked
        )
        return replace(self, asked=sub_requests)


def with_more_spent(requests: Sequence[OpenRequest], other_requests: Sequence[OpenRequest]) -> tuple[OpenRequest, ...]:
    """Return `requests`, each with the larger `spent` of the two sequences."""
    spent = {request.key: request.spent for request in other_requests if request.spent}
    updated_requests = [replace(request, spent=max(request.spent, spent.pop(request.key, 0.0))) for request in requests]
    return (*updated_requests, *(OpenRequest(request=key, spent=amount) for key, amount in spent.items()))


def iter_person_requests(states: Mapping[str, Json]) -> Iterator[SubRequest]:
    """Yield an agent's requests to persons outside of calls. `states`: the state of capabilities in its ledger."""
    for raw in states.get(DECISION_RULES, {}).get("asked", ()):
        yield to_value(SubRequest, raw)


ROLES = ("assistant", "user", "tool")


@dataclass(frozen=True, kw_only=True)
class Dialogue(_SparseJson):
    """The messages after the prompt, up to the model's latest answer, whose calls are pending.

    `style`: message format of the backend. `calls`: for each of the request's `results`, the id of the
    model's own call, empty for any other result. `hidden`: ids of calls whose results are not shown to the
    model. `trust`: trust label of the turn after all messages were shown, or an empty string if untracked.
    """

    ALWAYS = ("style", "messages")
    style: str
    messages: tuple[dict[str, Any], ...]
    calls: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    trust: str = ""

    def __post_init__(self) -> None:
        for number, message in enumerate(self.messages):
            if not _is_message(message):
                raise ValueError(f"dialogue/messages/{number} must be a message of a user, a model or a tool")


def _is_message(message: Mapping[str, Any]) -> bool:
    """Return True if a value from a ledger is a message a backend accepts."""
    role = message.get("role")
    if role not in ROLES or not isinstance(message.get("content"), str):
        return False
    if not all(
        map(is_found_tool, found_tools if isinstance(found_tools := message.get("found", []), list) else [found_tools])
    ):
        return False
    if role == "tool":
        return all(isinstance(message.get(key), str) for key in ("call", "tool"))
    calls = message.get("calls", [])
    return isinstance(calls, list) and all(map(_is_call, calls))


def is_found_tool(tool: object) -> bool:
    """Return True if a value describes a tool returned by a tool search."""
    if not isinstance(tool, dict) or not isinstance(tool.get("parameters"), dict):
        return False
    return all(isinstance(tool.get(key), str) for key in ("name", "description"))


def _is_call(call: object) -> bool:
    is_named = isinstance(call, dict) and all(isinstance(call.get(key), str) for key in ("id", "tool"))
    return is_named and isinstance(call, dict) and "args" in call


SHOW, SPEND, PUBLISH = "show", "spend", "publish"
"""Names in place of a tool: showing an entry, spending more, writing an entry."""


def validate_decisions(states: Mapping[str, Json]) -> None:
    """Raise `ValueError` for invalid state about decisions: used, pending and denied ones."""
    state = states.get(DECISION_RULES)
    if state is None:
        return
    used = state.get("used", [])
    if not (isinstance(used, list) and all(isinstance(item, str) for item in used)):
        raise ValueError("kept/approvals/used must be a list of entries")
    if not isinstance(state.get("asked", []), list):
        raise ValueError("kept/approvals/asked must be a list")
    denied, texts = state.get("denied", []), ("request", "id", "sha256", "by", "reason")
    if not isinstance(denied, list) or not all(_is_denial(item, texts) for item in denied):
        raise ValueError("kept/approvals/denied must be a list of denied calls")
    for sub_request in iter_person_requests(states):
        validate_pending_action(sub_request.held.get(DECISION_RULES, {}))


def _is_denial(raw: object, texts: Iterable[str]) -> bool:
    is_sound = isinstance(raw, dict) and isinstance(raw.get("binds"), dict)
    return is_sound and isinstance(raw, dict) and all(isinstance(raw.get(key), str) for key in texts)


def validate_pending_action(raw: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a pending action that the engine did not write."""
    args, texts = raw.get("args"), ("id", "tool", "sha256", "gate", "why")
    is_sound = isinstance(args, dict) and isinstance(raw.get("binds"), dict)
    if not is_sound or not all(isinstance(raw.get(key), str) for key in texts):
        raise ValueError("approvals: a pending call must have id, tool, args, sha256, binds, gate and why")
    grants = raw.get("grants", [])
    if not isinstance(grants, list) or not all(_is_grant(grant) for grant in grants):
        raise ValueError("approvals: the grants of a pending call must have id, by, entry, sha256 and binds")
    assert isinstance(args, dict), "checked above"
    if raw["tool"] == SHOW and not isinstance(args.get("entry"), str):
        raise ValueError("approvals: a pending entry must name its entry")
    amounts = [value for key, value in args.items() if key != "of"]
    if raw["tool"] == SPEND and not ("of" in args and all(type(amount) in (int, float) for amount in amounts)):
        raise ValueError("approvals: a pending expense must name its amount")


def _is_grant(raw: Any) -> bool:
    is_sound = isinstance(raw, dict) and isinstance(raw.get("binds"), dict)
    return is_sound and all(isinstance(raw.get(key), str) for key in ("id", "by", "entry", "sha256"))
