"""A turn for one request: what is filled in on its entries, which is the answer, how it goes on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Any

from lemming.capabilities.requests.asking_entries import asks, find_asked
from lemming.capabilities.requests.budgets import BudgetAmount, Unit, budget_in
from lemming.capabilities.requests.deadlines import last_tick, not_after_in
from lemming.capabilities.requests.payloads import count_in
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.files.documents import value_of
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.dialogue import Dialogue
from lemming.kernel.journal.lost_calls import NONE_LOST, Lost
from lemming.kernel.llm.credits import Most
from lemming.kernel.mail.answers import MAY_ANSWER
from lemming.kernel.mail.references import name_in, named_in
from lemming.kernel.mail.task import Task
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.values import Paid

MOST_TURNS = 50
"""So many turns are taken for one request, whatever they cost; then it has failed."""
MOST_FAILURES = 3
"""So many turns in a row may come to nothing for it."""
NO_CALLS: Mapping[str, int] = {}
NONE_HELD: Mapping[str, dict[str, Any]] = {}
TOLERANCE = 1e-6
"""Shares of a budget are rounded to so much."""
NOT_ANSWERED = "the request is not answered: write one entry of kind response"


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The request that a turn is for. All but `begun` is empty for what the agent asked on its own account.

    `request` is the entry's identity, `until` the last tick whose answer counts, `not_after` the last moment.
    `reply_to`: what the answer
    is to, where the request was handed on, `hops` times so far. `path`: the agents that wait for it, the
    outermost first. `asked`: the payload, where it may be handed on. `budget`: how many credits, or
    tokens as its `unit` says, may be spent on it and on all that is asked for it; `spent`: what was, before a
    turn that begins `at` a moment, with what may be on what is open: that part of it is `allotted`, which
    earlier versions did not count. `max_calls`: how often its turns may ask a model; 0: nobody says.
    """

    request: str
    asker: str
    begun: Begun
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
        """Whether what may be spent on it is limited."""
        return self.budget is not None

    @property
    def why_given_up(self) -> str:
        """Why the request has failed, whatever a model would say: all is spent, or its turns break."""
        if self.budget is not None and self.spent >= self.budget:
            return f"its budget of {self.amount(self.budget)} is used up"
        if self.request and self.begun.failures >= MOST_FAILURES:
            return f"{MOST_FAILURES} turns came to nothing"
        return self.why_no_more_calls(0)

    def why_no_more_calls(self, asked: int) -> str:
        """Return the reason to ask no model any more for the request; empty if there is none."""
        if not self.max_calls or self.begun.calls + asked < self.max_calls:
            return ""
        return f"no answer was given in {self.begun.calls + asked} calls of models (loops.max_calls)"

    def amount(self, number: float) -> BudgetAmount:
        """Return so much in the unit of its budget."""
        return BudgetAmount(number, self.unit)

    def cost_of(self, answers: Iterable[Paid], lost: Lost = NONE_LOST) -> float:
        """Return the cost of answers, and of calls whose answers never came, in the unit of the budget."""
        if self.unit == "tokens":
            return float(sum(it.input_tokens + it.output_tokens for it in answers) + lost.tokens)
        return sum(it.credits for it in answers) + lost.credits

    def why_unpaid(self, answers: Iterable[Paid], lost: Lost, worst: Most | None = None) -> str:
        """Return why nothing more is asked after these answers: what it may cost is never exceeded.

        A question is asked if the most that it can cost is left.
        """
        if worst is None and self.max_calls and (why := self.why_no_more_calls(len([*answers]))):
            return why
        if self.budget is None:
            return ""
        spent, budget = self.spent + self.cost_of(answers, lost), self.amount(self.budget)
        if worst is None:
            return f"the request's budget of {budget} is used up" if spent >= self.budget else ""
        most = float(worst.tokens if self.unit == "tokens" else worst.credits)
        if spent + most <= self.budget + TOLERANCE:
            return ""
        paid, next_one = self.amount(spent).digits, self.amount(most).digits
        return f"{paid} of the request's {budget} are spent, and a call can cost {next_one}"

    @property
    def answered(self) -> tuple[tuple[str, str], ...]:
        """What calls asked for what the turn is about, and has an answer: both entries, by identity.

        A request that the model wrote is none of them: nobody has said yes to a call by answering it.
        """
        asked = (it for it in self.begun.asked if it.call and it.end == "answered")
        return tuple((it.request, it.answer) for it in asked)

    @property
    def id(self) -> str:
        """The request's id, to which answers and what is asked for it refer."""
        return self.reply_to or self.request.rpartition("_")[2]

    def as_json(self) -> dict[str, Any]:
        """Return it as a journal holds it."""
        plain: dict[str, Any] = {"request": self.request, "asker": self.asker}
        if self.until is not None:
            plain["until"] = self.until
        if self.max_calls:
            plain["max_calls"] = self.max_calls
        further = {
            key: getattr(self, key)
            for key in ("conversation", "reply_to", "hops", "path", "asked", "not_after")
        }
        plain |= {key: value for key, value in further.items() if value}
        if self.path:
            plain["path"] = [*self.path]
        if self.budget is not None:
            plain |= {"budget": self.budget, "spent": self.spent, "at": self.at}
            plain |= {"unit": self.unit} if self.unit != "credits" else {}
            plain |= {} if self.allotted is None else {"allotted": self.allotted}
        return {**plain, "begun": self.begun.as_json()}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Serving:
        """Return what `as_json` described; raise `ValueError` for what it did not."""
        serving: Serving = value_of(Serving, plain)
        return serving

    def why_not(self, agent: str, targets: Iterable[str]) -> str:
        """Return why an agent may not ask these for the request: they wait for it; empty when it may."""
        above = (*self.path, agent)
        again = next((name for name in sorted(targets) if name in above), None)
        if again is None:
            return ""
        return f"refused: it would go round in a circle: {' asks '.join((*above, again))}"

    def hand_on(self, message: str, target: str, tick: int) -> NewEntry:
        """Return the entry by which the request moves to another agent, who owes the answer then."""
        payload: dict[str, Any] = {
            "text": message,
            "target": target,
            "hands_on": self.id,
            "owed_to": self.asker,
        }
        if self.conversation:
            payload["conversation"] = self.conversation
        if self.until is not None:
            payload["deadline"] = self.until - tick
        if self.not_after:
            payload["not_after"] = self.not_after
        if self.path:
            payload["path"] = [*self.path]
        asked = {
            key: value for key, value in (self.asked or {}).items() if key not in payload or key == "text"
        }
        return NewEntry("request", {**payload, "hops": self.hops + 1, "asked": asked}, [])

    def fill_in(self, new: NewEntry, tick: int, agent: str) -> NewEntry:
        """Return an entry with what the engine knows of it: what it answers, or what it is asked for."""
        if not self.request:
            return new
        payload = {key: value for key, value in new.payload.items() if value is not None}
        match new.kind:
            case "response":
                payload = {"reply_to": self.id, **payload}
            case "request" if payload.get("target"):
                payload = {**payload, "parent": self.id, "path": [*self.path, agent]}
                if self.until is not None:
                    # what is asked for a request is waited for no longer than the request itself
                    given, left = count_in(payload, "deadline"), max(0, self.until - tick)
                    payload["deadline"] = left if given is None else min(given, left)
                if self.not_after:
                    payload["not_after"] = min(not_after_in(payload) or self.not_after, self.not_after)
            case "status":
                payload = {"reply_to": self.id, **payload}
        return new._replace(payload=self._addressed(payload))

    def _addressed(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the payload of what concerns the request, addressed to whom the answer is owed."""
        if not self._is_meant(payload):
            return payload
        of_it = {"conversation": self.conversation} if self.conversation else {}
        return {**of_it, **payload, "target": self.asker}

    def is_answered(self, entries: Sequence[OutboxEntry]) -> bool:
        """Return whether one of the entries is the answer."""
        return any(self._concerns(entry, "response") for entry in entries)

    def is_at_work(self, entries: Sequence[OutboxEntry]) -> bool:
        """Return whether the answer is to come: something was asked for it, or a status told."""
        return any(self._concerns(entry, "status") or asks(entry) for entry in entries)

    def asked_in(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Return those of the entries that ask something for the request; with it, they are over."""
        return [entry for entry in entries if asks(entry) and "parent" in entry.payload]

    def _concerns(self, entry: OutboxEntry, kind: MessageKind) -> bool:
        return entry.kind == kind and self._is_meant(entry.payload)

    def _is_meant(self, payload: Mapping[str, Any]) -> bool:
        """Return whether a payload is an answer to the request, or tells of it."""
        return any(name in (self.id, self.request) for name in named_in(payload.get("reply_to")))

    def with_answer(self, entries: list[OutboxEntry]) -> list[OutboxEntry] | None:
        """Return the entries, the last one that may be meant so made the answer; None: there is none."""
        for place in reversed(range(len(entries))):
            entry = entries[place]
            if entry.kind in MAY_ANSWER and entry.targets <= {self.asker}:
                payload = self._addressed({"reply_to": self.id, **entry.payload})
                answer = replace(entry, kind="response", payload=payload)
                return [*entries[:place], answer, *entries[place + 1 :]]
        return None

    def failed(self, why: str) -> NewEntry:
        """Return the answer of an agent that gives none."""
        payload = {"reply_to": self.id, "status": "failed", "text": why}
        return NewEntry("response", self._addressed(payload), [])

    def with_amounts(self, entries: list[OutboxEntry], cost: float) -> list[OutboxEntry]:
        """Return a turn's entries with what may be spent on what they ask, and what was on what they answer.

        `cost` is that of the turn. What is left is shared out evenly among all who are asked, one part being
        kept for the answer. Who the request is handed on to may spend what none of these may.
        """
        if self.budget is None:
            return entries
        parts = sum(len(entry.targets) if self.counts_open else 1 for entry in entries if asks(entry))
        left = self.amount(max(round(self.budget - self.spent - cost, 6), 0.0))
        share = (
            left.split_budget(parts + 1).number if self.counts_open else self._old_share(left.number, parts)
        )
        entries = [self._with_share(entry, share) if asks(entry) else entry for entry in entries]
        charged = self.charged(entries, cost)
        return [self._with_rest(entry, charged) for entry in entries]

    def _old_share(self, left: float, parts: int) -> float:
        """Return a share as it was rounded in the records of earlier versions."""
        share = round(left / (parts + 1), 6)
        return float(floor(share)) if self.unit == "tokens" else share

    @property
    def counts_open(self) -> bool:
        """Whether what is asked and open counts with all that it may spend; earlier versions did not."""
        return self.allotted is not None

    def charged(self, entries: Sequence[OutboxEntry], cost: float) -> float:
        """Return the charge to the budget after a turn with these entries, and the shares of the entries."""
        given = (self._sum_allotted(entry) for entry in entries if asks(entry) and self.counts_open)
        return round(self.spent + cost + sum(given), 6)

    def _sum_allotted(self, entry: OutboxEntry) -> float:
        given = budget_in(entry.payload)
        return given.number if given is not None and given.unit == self.unit else 0.0

    def _with_share(self, entry: OutboxEntry, share: float) -> OutboxEntry:
        if self.counts_open:  # those whom an entry asks share what it may cost
            share = self.amount(share * len(entry.targets)).split_budget(1).number
        given = budget_in(entry.payload)
        if given is not None and given.unit == self.unit:
            share = min(given.number, share)
        return replace(entry, payload={**entry.payload, "budget": self.amount(share).plain})

    def _with_rest(self, entry: OutboxEntry, charged: float) -> OutboxEntry:
        if self._concerns(entry, "response"):
            return replace(entry, payload={**entry.payload, "spent": self.amount(charged).plain})
        if "hands_on" in entry.payload:
            left = max(round((self.budget or 0.0) - charged, 6), 0.0)
            return replace(entry, payload={**entry.payload, "budget": self.amount(left).plain})
        return entry

    def after_failure(
        self, before: Sequence[Begun], cost: float, *, counts: bool, asked: int = 0
    ) -> tuple[Begun, ...]:
        """Return what an agent has begun after a turn that came to nothing.

        `counts`: the model answered, and it was of no use; else nobody could be asked. `asked`: how often.
        """
        others = [begun for begun in before if begun.key != self.begun.key]
        kept = next((begun for begun in before if begun.key == self.begun.key), Begun(request=self.request))
        spent = round(kept.spent + cost, 6) if self.budget is not None else 0.0
        calls = kept.calls + asked if self.max_calls else 0
        failed = replace(kept, failures=kept.failures + counts, spent=spent, calls=calls)
        return (*others, failed) if failed.says_anything else tuple(before)

    def after(
        self,
        entries: Sequence[OutboxEntry],
        results: Sequence[dict[str, Any]],
        calls: Mapping[str, int] = NO_CALLS,
        cost: float = 0.0,
        held: Mapping[str, dict[str, Any]] = NONE_HELD,
        in_vain: Mapping[str, int] = NO_CALLS,
        asked_models: int = 0,
        keep_dialogue: Callable[[], Dialogue | None] | None = None,
    ) -> Begun:
        """Return how the request stands after a turn that did not answer it.

        `calls`: which of the results, from 1, the answer to an entry is, by the entry's identity; `held`:
        what capabilities keep until then, likewise. `keep_dialogue`: returns what was said.
        """
        asked, enough = find_asked(entries, calls, held, first_group=len(self.begun.enough))
        if self.counts_open:
            parts = {it.identity: self._sum_allotted(it) / max(len(it.targets), 1) for it in entries}
            asked = [replace(it, budget=parts[it.request]) for it in asked]
        before = (it for it in self.begun.asked if not it.held or not self.request)
        asked = [*(replace(it, call=0) for it in before), *asked]
        waits = bool(results) or any(not it.end for it in asked)
        return Begun(
            request=self.request,
            asked=tuple(asked),
            enough=(*self.begun.enough, *enough),
            results=tuple(results),
            turns=self.begun.turns + 1,
            spent=round(self.begun.spent + cost, 6) if self.budget is not None else 0.0,
            calls=self.begun.calls + asked_models if self.max_calls else 0,
            in_vain={**in_vain},
            dialogue=keep_dialogue() if waits and keep_dialogue else None,
        )


def serving_of(
    task: Task,
    *,
    at: str,
    may_hand_on: bool,
    max_calls: int = 0,
    budget: BudgetAmount | None = None,
    charged: float = 0.0,
    allotted: float = 0.0,
) -> Serving:
    """Return the facts of its request that a turn needs; the payload only if it may be handed on.

    `budget`: what its agent may spend; `charged`: what counts as spent for what was asked for it, of which
    `allotted` is for what is open.
    """
    request, begun = task.request, task.begun
    if request is None:
        return replace(OWN_ACCOUNT, begun=begun)
    payload, conversation = request.payload, request.payload.get("conversation")
    is_handed_on = "hands_on" in payload
    return Serving(
        request=begun.request,
        asker=name_in(payload.get("owed_to")) if is_handed_on else request.agent,
        begun=begun,
        until=last_tick(request),
        not_after=not_after_in(payload),
        conversation=conversation if isinstance(conversation, str) else "",
        reply_to=name_in(payload["hands_on"]) if is_handed_on else "",
        hops=count_in(payload, "hops") or 1 if is_handed_on else 0,
        path=tuple(task.path),
        asked=payload if may_hand_on else None,
        budget=budget.number if budget else None,
        unit=budget.unit if budget else "credits",
        spent=round(begun.spent + charged, 6),
        allotted=round(allotted, 6) if budget else None,
        at=at,
        max_calls=max_calls,
    )


OWN_ACCOUNT = Serving(request="", asker="", begun=Begun(request=""))
"""What an agent asks in a turn that is for no request."""
