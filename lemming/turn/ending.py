"""How a turn ends: what was staged, what it has cost and what is still open, added up. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from lemming.errors import LemmingError, name_of
from lemming.files.effects import FileEffect, writes_first
from lemming.journal.begun import Begun
from lemming.journal.ledger import AgentState
from lemming.llm.pricing import has_reached_soft_cap
from lemming.mail.references import named_in
from lemming.messages import ENTRIES_PER_TURN, OutboxEntry, entry_effect
from lemming.report import USUAL_ENDS, End, Judged, Status, TurnReport, VerdictJson
from lemming.tools import ToolResult
from lemming.turn.concluding import conclude
from lemming.turn.draft import Draft
from lemming.turn.results import as_shown, newest
from lemming.turn.serving import OWN_ACCOUNT
from lemming.turn.spending import spending, state_after_spending
from lemming.turn.values import TurnOutcome

APPLIED = ("done", "waiting")
"""The statuses of turns whose files are written."""


def add_up(draft: Draft, end: End, error: LemmingError | None = None) -> TurnOutcome:
    """Add everything up. A turn that failed writes nothing but what it spent and what it must be told."""
    end = conclude(draft, end, error)
    status = draft.status_of(end)
    is_applied = status in APPLIED
    if draft.tracked:
        draft.staged = draft.tracked.borne(draft.staged)
        draft.entries = [*map(draft.tracked.of_entry, draft.entries)]
        draft.last_words = [*map(draft.tracked.of_entry, draft.last_words)]
        draft.results = [*map(draft.tracked.kept, draft.results)]
        draft.outside = [*map(draft.tracked.kept, draft.outside)]
    if is_applied and draft.seams.parts:
        room = ENTRIES_PER_TURN - len(draft.entries)
        draft.standing = draft.seams.adds(len(draft.entries), room)
    entries = (*draft.entries, *draft.standing) if is_applied else (*draft.last_words,)
    staged = writes_first(draft.staged.values()) if is_applied else []
    effects = (*staged, *map(entry_effect, entries))
    used = spending(draft.answers)
    return TurnOutcome(
        report=_report(draft, status, end, error, entries, staged, effects, used),
        state=_state_after(draft, status, end, used),
        state_if_unwritten=lambda: _state_after(draft, "failed", "failed", used, is_maybe_written=True),
        entries=entries,
        effects=effects,
    )


def _report(
    draft: Draft,
    status: Status,
    end: End,
    error: LemmingError | None,
    entries: tuple[OutboxEntry, ...],
    staged: Sequence[FileEffect],
    effects: tuple[FileEffect, ...],
    used: dict[str, Any],
) -> TurnReport:
    """Return the report of the turn."""
    return TurnReport(
        agent=draft.inputs.agent.name,
        status=status,
        end=end,
        reason=str(error) if error else _waiting_reason(draft) if status == "waiting" else "",
        error=name_of(error) if error else "",
        model=_model(draft),
        entries=[{"id": entry.id, "kind": entry.kind, "file": entry.file} for entry in entries],
        tools=draft.used,
        memory=[
            place.rsplit("/", 1)[-1].removesuffix(".json")
            for place in draft.memory
            if staged or place in draft.settled
        ],
        files=[{"path": effect.place, "sha256": effect.digest} for effect in effects if not effect.removes],
        removed=[effect.place for effect in effects if effect.removes],
        written_ahead=sorted(draft.settled),
        remarks=draft.remarks,
        notes=draft.notes,
        request=draft.task.request if draft.task else "",
        trust=draft.tracked.as_json() if draft.tracked else {},
        verdicts=cast(list[VerdictJson], draft.verdicts),
        judged=_judged(draft),
        lost=draft.lost.as_json() if draft.lost.calls else None,
        **used,
    )


def _model(draft: Draft) -> str:
    """Return the model that answered last, but for judges."""
    if not draft.judging:
        return draft.answers[-1].model if draft.answers else ""
    judging = {id(answer) for answer in draft.judging}
    return next((answer.model for answer in reversed(draft.answers) if id(answer) not in judging), "")


def _judged(draft: Draft) -> Judged | None:
    """Return what judges said and cost; None where none was asked."""
    if not (draft.judgements or draft.judging):
        return None
    used = spending(draft.judging)
    return {
        "passed": draft.has_passed,
        "verdicts": draft.judgements,
        "calls": used["calls"],
        "credits": round(used["credits"], 6),
        "cost_usd": used["cost_usd"],
    }


def _waiting_reason(draft: Draft) -> str:
    """Return what a turn that waits is waiting for."""
    if draft.only_asks and draft.asks_persons:
        return draft.held_up
    if draft.only_asks:
        asked = sorted({name for entry in draft.standing for name in entry.targets})
        return f"nothing is shown before {' or '.join(asked)} decides"
    if open_asked := [asked for begun in _requests_after(draft, "done")[1][-1:] for asked in begun.open]:
        return f"waits for {', '.join(sorted({asked.to for asked in open_asked}))}"
    if draft.held_up or draft.left:
        return draft.held_up or draft.left
    if not draft.unshown:
        return "the request is not answered yet" if draft.task else "its credits are used up"
    count = len(draft.unshown)
    return f"{count} tool result{'s' if count > 1 else ''} for its next turn"


def _state_after(
    draft: Draft, status: Status, end: End, used: dict[str, Any], *, is_maybe_written: bool = False
) -> AgentState:
    """Return the agent's state after the turn."""
    inputs, is_applied = draft.inputs, status in APPLIED
    holds_all = is_applied or is_maybe_written
    passed_on = [draft.passed_on[place] for place in draft.passed_on if holds_all or place in draft.settled]
    state = state_after_spending(inputs, draft.answers, used, status)
    state.end = "" if end == USUAL_ENDS[status] else end
    if draft.lost.calls:
        state.lost = state.lost.plus(draft.lost)
    if draft.seams.closes:
        state.kept = draft.seams.kept_after(is_applied=is_applied, holds_all=holds_all)
    if draft.only_asks:
        return state
    if is_applied:
        state.turns += 1
        state.read = inputs.read
        state.results = () if draft.task or draft.asked else _untold(draft)
        state.in_vain = {**draft.repeats.in_vain} if state.results else {}
        state.serving, state.requests = _requests_after(draft, end)
        state.inputs = _fingerprint_after(draft)
        state.expired_unread = 0
    else:  # what happened outside has happened: the next prompt must say so
        state.results = newest((*state.results, *draft.outside))
        if draft.task and status == "failed":
            before, counts = inputs.state.requests, draft.gave_nothing
            state.requests = draft.task.after_failure(before, draft.cost, counts=counts)
            state.requests = draft.seams.after_failure(state.requests)
        if draft.task and draft.last_words:
            state.requests = tuple(it for it in state.requests if it.key != draft.task.begun.key)
    if draft.judging:
        state.judged = round(state.judged + spending(draft.judging)["credits"], 6)
    state.passed_on = round(state.passed_on + sum(passed_on), 6)
    if state.soft_cap_warned or inputs.warned:
        state.soft_cap_warned = has_reached_soft_cap(inputs.allocation, state.credits)
    return state


def _untold(draft: Draft) -> tuple[dict[str, Any], ...]:
    """Return the results that the agent's next turn is to be told of, with what a strategy leaves for it."""
    left = [as_shown("strategy", {}, ToolResult(True, draft.left))] if draft.left else []
    left = [*map(draft.tracked.kept, left)] if draft.tracked else left
    return (*draft.unshown, *left)


def _requests_after(draft: Draft, end: End) -> tuple[str, tuple[Begun, ...]]:
    """Return the request that the turn was for, and those that are begun and open after it."""
    before = draft.inputs.state.requests
    if draft.task is None and not draft.asked:
        return "", _still_open(draft, _moving(before))
    calls = _asked_now(draft)
    if draft.task is None:
        own = [entry for entry in draft.entries if entry.identity in calls]
        asked = (OWN_ACCOUNT.after(own, draft.unshown, calls, held=draft.held),) if own else ()
        return "", (*_still_open(draft, _moving(before)), *asked)
    task = draft.task
    others = tuple(begun for begun in before if begun.key != task.begun.key)
    is_over = draft.is_answered or draft.is_handed_on if task.request else not draft.unshown
    if is_over:
        own = [it for it in draft.entries if it.identity in draft.held and "parent" not in it.payload]
        kept = (OWN_ACCOUNT.after(own, draft.unshown, calls, held=draft.held),) if own else ()
        return task.request, (*others, *kept)
    after = task.after(
        draft.entries, draft.unshown_told, calls, draft.cost, draft.held, draft.repeats.in_vain
    )
    return task.request, (*others, replace(after, stands_still=_stands_still(draft, after, end)))


def _stands_still(draft: Draft, after: Begun, end: End) -> bool:
    """Return whether a turn for a request left nothing to go on with that there was not before it."""
    if end != "unanswered" or draft.may_rest or draft.left:
        return False
    return not (after.open or after.results or draft.repeats.has_learned)


def _moving(before: tuple[Begun, ...]) -> tuple[Begun, ...]:
    """Return what an agent has begun, once it was shown something else: there is something to go on with."""
    return tuple(replace(it, stands_still=False) if it.stands_still else it for it in before)


def _still_open(draft: Draft, before: tuple[Begun, ...]) -> tuple[Begun, ...]:
    """Return what an agent has begun, with the requests that this turn was shown and did not answer."""
    if not draft.inputs.open_requests:
        return before
    responses = (entry for entry in draft.entries if entry.kind == "response")
    answered = {name for entry in responses for name in named_in(entry.payload.get("reply_to"))}
    shown = (it for it in draft.inputs.open_requests if answered.isdisjoint((it, it.rpartition("_")[2])))
    begun = (it for it in before if it.says_anything)
    return (*begun, *(Begun(request=identity) for identity in shown))


def _asked_now(draft: Draft) -> dict[str, int]:
    """Return which of the results not shown yet, from 1, the answers to entries will be."""
    return {
        entry: sum(number < place for number in draft.unshown_places)
        for entry, place in draft.asked.items()
        if place > draft.shown
    }


def _fingerprint_after(draft: Draft) -> dict[str, Any] | None:
    """Return the fingerprint of what the agent's next turn would read if nobody else changed anything."""
    if draft.inputs.fingerprint is None:
        return None
    memory = dict(draft.inputs.fingerprint["memory"])
    prefix = f"agents/{draft.inputs.agent.name}/memory/"
    for place, effect in {**draft.settled, **draft.staged}.items():
        if place.startswith(prefix):
            memory[place.removeprefix(prefix).removesuffix(".json")] = effect.digest
    context = {
        place: draft.staged[place].digest if place in draft.staged else digest
        for place, digest in draft.inputs.fingerprint["context"].items()
    }
    return {**draft.inputs.fingerprint, "memory": dict(sorted(memory.items())), "context": context}
