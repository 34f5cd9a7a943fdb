"""How a turn ends: what was staged, what it has cost and what is still open, added up. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lemming.kernel.base.errors import LemmingError, name_of
from lemming.kernel.files.effects import FileEffect, writes_first
from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.report import USUAL_ENDS, End, Status, TurnReport, VerdictJson
from lemming.kernel.llm.credits import has_reached_soft_cap
from lemming.kernel.messages import ENTRIES_PER_TURN, OutboxEntry, entry_effect
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.loop_breaker import (
    MISADDRESSED,
    REFUSED,
    REPEATED,
    Loop,
    count_loop,
    count_request,
    loop_of_failure,
    loop_of_requests,
    requests_in,
)
from lemming.kernel.turn.notices import without_notices
from lemming.kernel.turn.results import RESULTS_CHARS
from lemming.kernel.turn.values import Answer, TurnInputs, TurnOutcome

GOES_ROUND = "the same call was made again and again, and gave the same"


def is_applied(status: Status) -> bool:
    """Return whether the files of a turn with this status are written."""
    return status in ("done", "waiting")


def last_round(draft: Draft, end: End) -> End:
    """See to it that a turn which goes round is the last one that is taken for its results."""
    if draft.status_of(end) != "waiting" or draft.asked or not draft.repeats.is_round:
        return end
    draft.shown = len(draft.results)  # they are no news for its next turn
    draft.remarks.append(GOES_ROUND)
    return "repeats"


def add_up(draft: Draft, end: End, error: LemmingError | None = None) -> TurnOutcome:
    """Add everything up. A turn that failed writes nothing but what it spent and what it must be told."""
    if not draft.seams.concludes:
        end = last_round(draft, end)
    for concludes in draft.seams.concludes:
        end = concludes(end, error)
    status = draft.status_of(end)
    counts = is_applied(status)
    # Of a turn that failed too: its last words and what it leaves for the next bear their trust.
    for seals in draft.seams.seals:
        seals()
    entries = (*draft.entries,) if counts else (*draft.last_words,)
    if counts and draft.seams.parts:
        entries += (*draft.seams.adds(len(entries), ENTRIES_PER_TURN - len(entries)),)
    staged = writes_first(draft.staged.values()) if counts else []
    # Entries last: what they speak of is there before anybody can read them.
    effects = (*staged, *map(entry_effect, entries))
    used, (loops, stopped) = spending(draft.answers), _count_loops(draft, status, end, error)
    if stopped:
        draft.noted["stopped"] = stopped
        draft.remarks.append(f"paused: {stopped}")
    return TurnOutcome(
        report=_report(draft, status, end, error, entries, staged, effects, used),
        state=_state_after(draft, status, end, used, loops),
        # Worked out when needed: hardly ever are files not writable.
        state_if_unwritten=lambda: _state_after(
            draft, "failed", "failed", used, loops, is_maybe_written=True
        ),
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
        turn=draft.inputs.turn,
        verdicts=cast(list[VerdictJson], draft.verdicts),
        lost=draft.lost.as_json() if draft.lost.calls else None,
        **draft.noted,
        **used,
    )


def _model(draft: Draft) -> str:
    """Return the model that replied last."""
    # The model of the agent's own answers; capabilities may have asked another.
    if not draft.aside:
        return draft.answers[-1].model if draft.answers else ""
    aside = {id(answer) for answers in draft.aside.values() for answer in answers}
    return next((answer.model for answer in reversed(draft.answers) if id(answer) not in aside), "")


def _waiting_reason(draft: Draft) -> str:
    """Return what a turn that waits is waiting for."""
    for waits_for in draft.seams.waits_for:
        if why := waits_for():
            return why
    if draft.held_up or draft.left:
        return draft.held_up or draft.left
    if not draft.unshown:
        return "the request is not answered yet" if draft.task else "its credits are used up"
    if not (count := len(without_notices(draft.unshown))):
        return "its last reply was of no use"
    return f"{count} tool result{'s' if count > 1 else ''} for its next turn"


def _state_after(
    draft: Draft,
    status: Status,
    end: End,
    used: dict[str, Any],
    loops: dict[str, int],
    *,
    is_maybe_written: bool = False,
) -> AgentState:
    """Return the agent's state after the turn."""
    inputs, counts = draft.inputs, is_applied(status)
    holds_all = counts or is_maybe_written
    state = state_after_spending(inputs, draft.answers, used, status)
    state.loops = loops
    state.end = "" if end == USUAL_ENDS[status] else end
    if draft.lost.calls:
        state.lost = state.lost.plus(draft.lost)
    if draft.seams.parts:
        state.kept = draft.seams.kept_after(is_applied=counts, holds_all=holds_all)
    # Nothing was shown to anybody: it counts as no turn, and what is unread stays unread.
    if draft.only_asks:
        return state
    if counts:
        state.turns += 1
        state.read = inputs.read
        state.results = (*draft.unshown,)
        state.in_vain = {**draft.repeats.in_vain} if state.results else {}
        state.serving = ""
        state.inputs = _fingerprint_after(draft)
        state.expired_unread = 0
    else:  # what happened outside has happened: the next prompt must say so
        state.results = newest((*state.results, *draft.outside))
    for amends in draft.seams.amends:
        amends(state, status, end)
    # Kept whatever became of the turn: it was spent.
    if draft.aside:
        state.aside = _spent_aside(draft)
    if draft.passed_on:
        # What may have been written counts as given: an allowance is never there twice.
        gone = [it for place, it in draft.passed_on.items() if holds_all or place in draft.settled]
        state.passed_on = round(state.passed_on + sum(gone), 6)
    # Looked at again each time: after a raise of the cap the agent is warned anew.
    if state.soft_cap_warned or inputs.warned:
        state.soft_cap_warned = has_reached_soft_cap(inputs.allocation, state.credits)
    return state


def newest(results: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Return the newest results that a prompt has room for."""
    room = RESULTS_CHARS
    for kept, result in enumerate(reversed(results)):
        room -= len(result["output"])
        if room < 0:
            return results[len(results) - kept :]
    return results


def _spent_aside(draft: Draft) -> dict[str, float]:
    """Return what questions of capabilities have cost the agent in all, by their names."""
    spent = {**draft.inputs.state.aside}
    for name, answers in draft.aside.items():
        if credits := sum(answer.credits for answer in answers):
            spent[name] = round(spent.get(name, 0.0) + credits, 6)
    return spent


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


def _count_loops(
    draft: Draft, status: Status, end: End, error: LemmingError | None
) -> tuple[dict[str, int], str]:
    """Return the counts of turns that came no further, with this one, and why the agent is paused, if so.

    The counts are kept while turns cost nothing, and are empty once a turn has come further.
    """
    before, limits = draft.inputs.state.loops, draft.inputs.loops
    if limits is None or not draft.answers or draft.only_asks or end == "no_answer":
        return before, ""
    if loop := _detect_loop(draft, status, end, error):
        return count_loop(draft.inputs, loop)
    if draft.entries and draft.entries[0].kind != "request":  # as hardly any turn's are: it costs no call
        return {}, ""
    if not (before or draft.entries) or draft.has_answer or _came_further(draft):
        return {}, ""
    if not draft.entries or (draft.task and draft.task.request):
        return requests_in(before), ""  # it says nothing of what the agent asks on its own account
    asking = loop_of_requests(draft.entries)
    return count_request(draft.inputs, asking) if asking else ({}, "")


def _came_further(draft: Draft) -> bool:
    """Return whether a turn did anything that lasts, beside writing entries."""
    has_called = not all(draft.repeats.calls_of_turn.values())
    return bool(draft.settled) or draft.is_handed_on or draft.repeats.has_learned or has_called


def _detect_loop(draft: Draft, status: Status, end: End, error: LemmingError | None) -> Loop | None:
    """Return in what way a turn came no further; None if it came further."""
    if status == "failed":
        return loop_of_failure(name_of(error)) if error else None
    lost = draft.lost_entries
    if lost and lost.keys() == {entry.id for entry in draft.entries}:
        return Loop(MISADDRESSED, [[new.kind, new.payload] for new in lost.values()])
    if draft.asked or draft.entries or draft.settled or draft.is_handed_on or draft.repeats.has_learned:
        return None
    called = draft.repeats.calls_of_turn
    if end == "repeats":
        return Loop(REPEATED, sorted(called))
    return Loop(REFUSED, sorted(called)) if called and all(called.values()) else None


# --- what it has spent ------------------------------------------------------------------------


def spending(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return what answers used and cost, as keys of a `TurnReport`."""
    credits, tokens_in, tokens_out, took_ms = 0.0, 0, 0, 0
    dollars: float | None = 0.0 if answers else None
    for answer in answers:
        credits += answer.credits
        tokens_in += answer.input_tokens
        tokens_out += answer.output_tokens
        took_ms += answer.duration_ms
        if dollars is not None:
            dollars = None if answer.cost_usd is None else dollars + answer.cost_usd
    return {
        "calls": len(answers),
        "credits": credits,
        "cost_usd": dollars,
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "duration_ms": took_ms,
    }


def state_after_spending(
    inputs: TurnInputs, answers: Sequence[Answer], used: dict[str, Any], status: Status
) -> AgentState:
    """Return an agent's state with what this turn `used`, and nothing else that is new."""
    after, costs = inputs.state.copy(), [answer.cost_usd for answer in answers if answer.cost_usd is not None]
    after.tick, after.status, after.end, after.in_vain = inputs.tick, status, "", {}
    after.turn = inputs.turn
    # Bounded, as a ledger with more would be refused when it is read.
    after.credits = round(min(after.credits + used["credits"], LARGEST_AMOUNT), 6)
    if costs:
        after.cost_usd = min((after.cost_usd or 0.0) + sum(costs), LARGEST_AMOUNT)
    after.unpriced_calls += len(answers) - len(costs)
    after.input_tokens = min(after.input_tokens + used["input_tokens"], int(LARGEST_AMOUNT))
    after.output_tokens = min(after.output_tokens + used["output_tokens"], int(LARGEST_AMOUNT))
    after.failed += status == "failed"
    return after
