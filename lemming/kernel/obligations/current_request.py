"""The current request of a turn: complete the turn's entries, detect the answer, and carry state forward. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ContractError, LemmingError, ToolError, TurnTooLong
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.inboxes.answer_payload import ANSWER_KINDS
from lemming.kernel.journal.open_requests import Dialogue, OpenRequest, SubRequest
from lemming.kernel.journal.write_offs import NO_WRITE_OFF, WriteOff
from lemming.kernel.llm.call_cost import CostBound
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.request_payloads import (
    BudgetAmount,
    Unit,
    get_budget,
    get_count,
    get_last_tick,
    parse_deadline_time,
    parse_references,
    required_answers,
)

MAX_TURNS = 50
"""Maximum turns for one request, whatever they cost; then it has failed."""
MAX_FAILURES = 3
"""Maximum consecutive turns without a result for one request."""
TOLERANCE = 1e-6
"""Shares of a budget are rounded to so much."""
NOT_ANSWERED = "the request is not answered: write one entry of kind response"


def is_question(entry: OutboxEntry) -> bool:
    """Return True if an entry asks an agent or person and is not a handoff of a request."""
    return entry.kind == "request" and bool(entry.targets) and "hands_on" not in entry.payload


def find_sub_requests(
    entries: Sequence[OutboxEntry],
    calls: Mapping[str, int],
    pending_states: Mapping[str, dict[str, Any]],
    first_group: int,
) -> tuple[list[SubRequest], list[int]]:
    """Return the sub-requests of the entries, and the number of outcomes required by each group.

    An entry with several targets is a separate group; all entries with a single target form one group. `join`
    says how many outcomes of a group are enough: "all", "first" or a number. An entry with a pending state is
    also a separate group.
    """
    questions = [entry for entry in entries if is_question(entry)]
    separate = [entry for entry in questions if len(entry.targets) > 1 or entry.identity in pending_states]
    together = [entry for entry in questions if entry not in separate]
    sub_requests, required_counts = list[SubRequest](), list[int]()
    for group, members in enumerate([*([entry] for entry in separate), *([together] if together else [])], first_group):
        recipients = [(entry, to) for entry in members for to in sorted(entry.targets)]
        for entry, to in recipients:
            call, pending_state = calls.get(entry.identity, 0), pending_states.get(entry.identity, {})
            sub_requests.append(make_sub_request(entry, to, pending_state, group=group, call=call))
        payload = next((entry.payload for entry in members if "join" in entry.payload), {})
        required_counts.append(required_answers(payload, len(recipients)))
    return sub_requests, required_counts


def make_sub_request(
    entry: OutboxEntry, to: str, pending_state: dict[str, Any], *, group: int = 0, call: int = 0
) -> SubRequest:
    """Return the sub-request by which an entry asks an agent or person, with the pending state of capabilities."""
    until, not_after = get_last_tick(entry), parse_deadline_time(entry.payload)
    return SubRequest(
        request=entry.identity, to=to, until=until, group=group, call=call, held=pending_state, not_after=not_after
    )


class PricedAnswer(Protocol):
    """A model's answer with its cost, as a turn or a journal has it."""

    @property
    def input_tokens(self) -> int:
        """Number of input tokens."""

    @property
    def output_tokens(self) -> int:
        """Number of output tokens."""

    @property
    def credits(self) -> float:
        """Cost in credits."""


@dataclass(frozen=True, kw_only=True)
class CurrentRequest:
    """The current request of a turn. For the agent's own sub-requests, all fields except `begun` are empty.

    `request` is the identity of the entry, `begun` the state from earlier turns (`Task.open_request`), `until` the last
    tick and `not_after` the last time in which answers count. `reply_to`: the reference for the answer after a handoff.
    `hops`: the number of handoffs so far. `path`: the agents waiting for the request, the outermost first. `asked`: the
    payload, if the agent may hand the request off; the sub-requests are `begun.asked`. `budget`: the limit for the
    request and all sub-requests, in credits or in tokens (`unit`). `spent`: the amount charged before the turn (which
    begins at time `at`), including the budgets of open sub-requests. `allotted`: the part of `spent` reserved for open
    sub-requests, None in records of earlier versions. `max_calls`: the limit of model calls for the request, 0 without
    a limit.
    """

    request: str
    asker: str
    begun: OpenRequest
    until: int | None = None
    conversation: str = ""
    reply_to: str = ""
    hops: int = 0
    path: tuple[str, ...] = ()
    asked: dict[str, Any] | None = None
    budget: float | None = None
    spent: float = 0.0
    unit: Unit = "credits"
    at: str = ""
    not_after: str = ""
    max_calls: int = 0
    allotted: float | None = None

    @property
    def has_budget(self) -> bool:
        """True if the request has a budget."""
        return self.budget is not None

    @property
    def failure_reason(self) -> str:
        """The reason to abandon the request regardless of any reply: budget spent, or too many failed turns."""
        if self.budget is not None and self.spent >= self.budget:
            return f"its budget of {self.make_amount(self.budget)} is used up"
        if self.request and self.begun.failures >= MAX_FAILURES:
            return f"{MAX_FAILURES} turns came to nothing"
        return self.call_limit_reason(0)

    def call_limit_reason(self, turn_calls: int) -> str:
        """Return the reason to make no further model calls for the request, or an empty text."""
        if not self.max_calls or self.begun.calls + turn_calls < self.max_calls:
            return ""
        return f"no answer was given in {self.begun.calls + turn_calls} calls of models (loops.max_calls)"

    def make_amount(self, number: float) -> BudgetAmount:
        """Return a number as an amount in the unit of the budget."""
        return BudgetAmount(number, self.unit)

    def sum_costs(self, answers: Iterable[PricedAnswer], write_off: WriteOff = NO_WRITE_OFF) -> float:
        """Return the cost of answers and of unanswered calls, in the unit of the budget."""
        if self.unit == "tokens":
            return float(sum(answer.input_tokens + answer.output_tokens for answer in answers) + write_off.tokens)
        return sum(answer.credits for answer in answers) + write_off.credits

    def over_budget_reason(
        self, answers: Iterable[PricedAnswer], write_off: WriteOff, max_cost: CostBound | None = None
    ) -> str:
        """Return the reason to stop asking the model, or an empty text. The budget is never exceeded.

        A model call is made only if the remaining budget covers the highest possible cost.
        """
        if max_cost is None and self.max_calls and (reason := self.call_limit_reason(len([*answers]))):
            return reason
        if self.budget is None:
            return ""
        spent, budget = self.spent + self.sum_costs(answers, write_off), self.make_amount(self.budget)
        if max_cost is None:
            return f"the request's budget of {budget} is used up" if spent >= self.budget else ""
        highest_cost = float(max_cost.tokens if self.unit == "tokens" else max_cost.credits)
        if spent + highest_cost <= self.budget + TOLERANCE:
            return ""
        next_cost = self.make_amount(highest_cost).number_text
        return f"{self.make_amount(spent).number_text} of the request's {budget} are spent, and a call can cost {next_cost}"

    @property
    def answered_calls(self) -> tuple[tuple[str, str], ...]:
        """The answered sub-requests of the turn's tool calls, as pairs of identities: request and answer.

        Requests written by the model are excluded: an answer to such a request approves no call.
        """
        sub_requests = (item for item in self.begun.asked if item.call and item.end == "answered")
        return tuple((item.request, item.answer) for item in sub_requests)

    @property
    def reference(self) -> str:
        """The id of the request, as used by answers and sub-requests."""
        return self.reply_to or self.request.rpartition("_")[2]

    def as_json(self) -> dict[str, Any]:
        """Return the current request as stored in the journal."""
        fields: dict[str, Any] = {
            "until": self.until,
            **{key: getattr(self, key) or None for key in ("max_calls", "conversation", "reply_to", "hops")},
            "path": [*self.path] or None,
            "asked": self.asked or None,
            "not_after": self.not_after or None,
        }
        if self.budget is not None:
            fields |= {"budget": self.budget, "spent": self.spent, "at": self.at}
            fields |= {"unit": None if self.unit == "credits" else self.unit, "allotted": self.allotted}
        present = {key: value for key, value in fields.items() if value is not None}
        return {"request": self.request, "asker": self.asker, **present, "begun": self.begun.as_json()}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> CurrentRequest:
        """Return the current request from the output of `as_json`. Raise `ValueError` for other input."""
        return to_value(CurrentRequest, raw)  # type: ignore[no-any-return]

    def sub_request_blocker(self, agent: str, targets: Iterable[str]) -> str:
        """Return the reason an agent cannot ask these targets (a target waits for it), or an empty text."""
        ancestors = (*self.path, agent)
        repeated = next((name for name in sorted(targets) if name in ancestors), None)
        if repeated is None:
            return ""
        return f"refused: it would go round in a circle: {' asks '.join((*ancestors, repeated))}"

    def make_handoff(self, message: str, target: str, tick: int) -> NewEntry:
        """Return the entry for a handoff of the request to another agent, which then owes the answer."""
        payload: dict[str, Any] = {"text": message, "target": target, "hands_on": self.reference, "owed_to": self.asker}
        optional = {
            "conversation": self.conversation or None,
            "deadline": None if self.until is None else self.until - tick,
            "not_after": self.not_after or None,
            "path": [*self.path] or None,
        }
        payload |= {key: value for key, value in optional.items() if value is not None}
        earlier = {key: value for key, value in (self.asked or {}).items() if key not in payload or key == "text"}
        return NewEntry("request", {**payload, "hops": self.hops + 1, "asked": earlier}, [])

    def complete_entry(self, new_entry: NewEntry, tick: int, agent: str) -> NewEntry:
        """Return an entry with the fields known to the engine: the request answered, or the parent request."""
        if not self.request:
            return new_entry
        payload = {key: value for key, value in new_entry.payload.items() if value is not None}
        match new_entry.kind:
            case "response" | "status":
                payload = {"reply_to": self.reference, **payload}
            case "request" if payload.get("target"):
                payload = {**payload, "parent": self.reference, "path": [*self.path, agent]}
                if self.until is not None:
                    # a sub-request never outlasts the request itself
                    own_deadline, ticks_left = get_count(payload, "deadline"), max(0, self.until - tick)
                    payload["deadline"] = min(ticks_left, ticks_left if own_deadline is None else own_deadline)
                if self.not_after:
                    payload["not_after"] = min(parse_deadline_time(payload) or self.not_after, self.not_after)
        return new_entry._replace(payload=self._address_to_asker(payload))

    def _address_to_asker(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return a payload about the request, addressed to the asker."""
        if not self._refers_to_request(payload):
            return payload
        conversation_field = {"conversation": self.conversation} if self.conversation else {}
        return {**conversation_field, **payload, "target": self.asker}

    def is_answered(self, entries: Sequence[OutboxEntry]) -> bool:
        """Return True if one of the entries answers the request."""
        return bool(self.find_answers(entries))

    def find_answers(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Return the entries that answer the request."""
        return [entry for entry in entries if self.is_about_request(entry, "response")]

    def is_in_progress(self, entries: Sequence[OutboxEntry]) -> bool:
        """Return True if an answer is still to come: the entries ask a sub-request or report a status."""
        return any(self.is_about_request(entry, "status") or is_question(entry) for entry in entries)

    def find_sub_requests(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Return the entries asking a sub-request of this request. They end together with the request."""
        return [entry for entry in entries if is_question(entry) and "parent" in entry.payload]

    def is_about_request(self, entry: OutboxEntry, kind: MessageKind) -> bool:
        """Return True if an entry of this kind answers the request or reports on the request."""
        return entry.kind == kind and self._refers_to_request(entry.payload)

    def _refers_to_request(self, payload: Mapping[str, Any]) -> bool:
        """Return True if a payload answers the request or reports on the request."""
        return any(name in (self.reference, self.request) for name in parse_references(payload.get("reply_to")))

    def mark_answer(self, entries: list[OutboxEntry]) -> list[OutboxEntry] | None:
        """Return the entries with the last suitable entry turned into the answer, or None without such an entry."""
        for index in reversed(range(len(entries))):
            entry = entries[index]
            if entry.kind in ANSWER_KINDS and entry.targets <= {self.asker}:
                payload = self._address_to_asker({"reply_to": self.reference, **entry.payload})
                answer = replace(entry, kind="response", payload=payload)
                return [*entries[:index], answer, *entries[index + 1 :]]
        return None

    def make_failure(self, reason: str) -> NewEntry:
        """Return the answer of a failed request."""
        payload = {"reply_to": self.reference, "status": "failed", "text": reason}
        return NewEntry("response", self._address_to_asker(payload), [])

    @property
    def counts_open_budgets(self) -> bool:
        """True if open sub-requests count with their whole budget, unlike in records of earlier versions."""
        return self.allotted is not None

    def get_allotted(self, entry: OutboxEntry) -> float:
        """Return the budget of a question in the unit of this request, 0 without one."""
        budget = get_budget(entry.payload)
        return budget.number if budget is not None and budget.unit == self.unit else 0.0

    def state_after_failure(
        self, open_requests: Sequence[OpenRequest], cost: float, *, counts: bool, calls: int = 0
    ) -> tuple[OpenRequest, ...]:
        """Return the agent's open requests after a failed turn.

        `counts`: True for a useless model reply, False if no model could be asked. `calls`: the number of
        model calls in the turn.
        """
        other_requests = [item for item in open_requests if item.key != self.begun.key]
        matches = (item for item in open_requests if item.key == self.begun.key)
        open_request = next(matches, OpenRequest(request=self.request))
        spent = round(open_request.spent + cost, 6) if self.budget is not None else 0.0
        total_calls = open_request.calls + calls if self.max_calls else 0
        failed = replace(open_request, failures=open_request.failures + counts, spent=spent, calls=total_calls)
        return (*other_requests, failed) if failed.is_worth_recording else tuple(open_requests)

    def state_after_turn(
        self,
        entries: Sequence[OutboxEntry],
        results: Sequence[dict[str, Any]],
        *,
        calls: Mapping[str, int],
        pending_states: Mapping[str, dict[str, Any]],
        keep_dialogue: Callable[[], Dialogue | None],
        cost: float = 0.0,
        failed_attempts: Mapping[str, int] | None = None,
        model_calls: int = 0,
    ) -> OpenRequest:
        """Return the open request after a turn without an answer.

        `calls`: the index (from 1) of the result awaiting each entry's answer, by the entry's identity.
        `pending_states`: the pending state of capabilities, by the same identity. `keep_dialogue`: returns
        the dialogue of the turn.
        """
        sub_requests, enough = find_sub_requests(entries, calls, pending_states, first_group=len(self.begun.enough))
        if self.counts_open_budgets:
            parts = {item.identity: self.get_allotted(item) / max(len(item.targets), 1) for item in entries}
            sub_requests = [replace(item, budget=parts[item.request]) for item in sub_requests]
        earlier_sub_requests = (item for item in self.begun.asked if not item.held or not self.request)
        sub_requests = [*(replace(item, call=0) for item in earlier_sub_requests), *sub_requests]
        has_pending = bool(results) or any(not item.end for item in sub_requests)
        return OpenRequest(
            request=self.request,
            asked=tuple(sub_requests),
            enough=(*self.begun.enough, *enough),
            results=tuple(results),
            turns=self.begun.turns + 1,
            spent=round(self.begun.spent + cost, 6) if self.budget is not None else 0.0,
            calls=self.begun.calls + model_calls if self.max_calls else 0,
            in_vain={**(failed_attempts or {})},
            dialogue=keep_dialogue() if has_pending else None,
        )


OWN_REQUESTS = CurrentRequest(request="", asker="", begun=OpenRequest(request=""))
"""Requests that an agent makes in a turn without a request."""


def has_handoff(entries: Iterable[OutboxEntry]) -> bool:
    """Return True if an entry hands a request to another agent."""
    return any(entry.kind == "request" and "hands_on" in entry.payload for entry in entries)


def is_fruitless(current_request: CurrentRequest, error: LemmingError | None, answer_count: int) -> bool:
    """Return True if a failed turn counts as a failure of its request: for its answers, or for its time."""
    had_useless_reply = isinstance(error, (ContractError, ToolError)) and answer_count > 0
    return bool(current_request.request) and (had_useless_reply or isinstance(error, TurnTooLong))
