"""What a turn for a request comes to: an answer, something to wait for, or a failure. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemming.errors import ContractError, LemmingError, ToolError, is_final, name_of
from lemming.report import End
from lemming.turn.serving import LEAST_TURNS, MOST_FAILURES, MOST_TURNS

if TYPE_CHECKING:
    from lemming.turn.draft import Draft

GOES_ROUND = "the same call was made again and again, and gave the same"


def conclude(draft: Draft, end: End, error: LemmingError | None) -> End:
    """See to it that a turn for a request answers it, unless there is something to wait for."""
    task = draft.task
    if task is None or not task.request:
        return _without_a_request(draft, end)
    status = draft.status_of(end)
    if error and is_final(error) and not (status == "waiting" or draft.asks_persons or draft.may_rest):
        draft.entries, draft.staged, draft.memory = [], {}, {}
        said = task.with_amounts(draft.given_up(f"{name_of(error)}: {error}", error.at), draft.cost)
        if status == "failed":  # and is told of as that, by who operates it
            draft.last_words = said
            return end
        draft.entries = said
        return "done"
    if status == "skipped":
        return end
    if status == "failed":
        draft.gave_nothing = isinstance(error, (ContractError, ToolError)) and bool(draft.answers)
        if not (draft.gave_nothing and task.begun.failures + 1 >= MOST_FAILURES):
            return end
        draft.staged, draft.memory = {}, {}
        draft.entries = draft.given_up(f"{MOST_FAILURES} turns came to nothing: {error}")
    if draft.misfit and not (draft.is_handed_on or draft.is_answered or task.is_at_work(draft.entries)):
        draft.entries = draft.given_up(f"the answer is not what was asked for: {draft.misfit}")
    if not (draft.is_handed_on or draft.may_rest):
        if not draft.is_answered and status == "done" and not task.is_at_work(draft.entries):
            why = GOES_ROUND if draft.repeats.is_round or end == "repeats" else "no answer was given"
            draft.entries = task.with_answer(draft.entries) or draft.given_up(why)
        if draft.repeats.is_round and not (draft.is_answered or draft.asked):
            draft.entries = draft.given_up(GOES_ROUND)
        most = _most_turns(draft) if end == "step_limit" else MOST_TURNS
        if not draft.is_answered and task.begun.turns + 1 >= most:
            steps = f" of {draft.inputs.max_steps} steps" if most < MOST_TURNS else ""
            draft.entries = draft.given_up(f"no answer was given in {most} turns{steps}")
    draft.entries = task.with_amounts(draft.entries, draft.cost)
    if draft.is_handed_on:
        return "handed_on"
    if draft.is_answered:
        in_vain = task.asked_in(draft.entries)
        draft.remarks += [f"{it.id}: asked in vain, for this turn answers" for it in in_vain]
        return end if status == "done" else "done"
    return end if status == "waiting" else "unanswered"


def _most_turns(draft: Draft) -> int:
    """Return how many turns may use up their steps for a request: fifty calls or so, in three turns or more.

    A strategy goes by a plan of its own.
    """
    is_named = bool(draft.inputs.agent.turn.strategy)
    return MOST_TURNS if is_named else max(MOST_TURNS // draft.inputs.max_steps, LEAST_TURNS)


def _without_a_request(draft: Draft, end: End) -> End:
    """See to it that a turn which goes round is the last one that is taken for its results."""
    if draft.status_of(end) != "waiting" or draft.asked or not draft.repeats.is_round:
        return end
    draft.shown = len(draft.results)  # they are no news for its next turn
    draft.remarks.append(GOES_ROUND)
    return "repeats"
