"""Calls that waited for leave and have it: made as the turn begins, before its model is asked. Pure."""

from __future__ import annotations

from dataclasses import replace

from lemming.leave import PUBLISH
from lemming.report import End
from lemming.turn.decided import calls_with_leave, prompt_with
from lemming.turn.draft import Draft
from lemming.turn.prompt import results_message
from lemming.turn.published import publish


def make_calls(draft: Draft) -> End | None:
    """Make the calls that have leave, and let the prompt show what they gave; return how the turn has to end.

    That is None where the model is to be asked. Where leave has to be asked for again, the turn waits, and
    keeps the results of its earlier calls.
    """
    decided = draft.inputs.decided
    draft.remarks += decided.get("remarks", ())
    numbers: dict[int, int] = {}
    for place, call in calls_with_leave(decided):
        numbers[place] = len(draft.results)
        (publish if call.tool == PUBLISH else Draft.use)(draft, call, decided["at"])
        draft.untold.discard(numbers[place])
    if draft.asked and not draft.over:
        _keep_all(draft, numbers)
        return "waits"
    _show(draft, numbers)
    return draft.over or ("done" if draft.is_answered else None)


def _keep_all(draft: Draft, numbers: dict[int, int]) -> None:
    """Put the results into their places among those of the earlier calls, which nobody was shown either."""
    kept = [*draft.inputs.decided["results"]]
    asked = {number: entry for entry, number in draft.asked.items()}
    for place, number in numbers.items():
        kept[place] = draft.results[number]
        if number + 1 in asked:
            draft.asked[asked[number + 1]] = place + 1
    draft.results, draft.calls = kept, [""] * len(kept)


def _show(draft: Draft, numbers: dict[int, int]) -> None:
    """Put the results into the prompt, whatever is asked with it."""
    inputs = draft.inputs
    if not numbers:
        return
    if inputs.model.prompt == "values":
        results = {place: draft.results[number] for place, number in numbers.items()}
        prompt = prompt_with(inputs.prompt, results)
    else:
        prompt = [*inputs.prompt, results_message(draft.results, inputs.prompt)]
    draft.inputs, draft.shown = replace(inputs, prompt=prompt), len(draft.results)
