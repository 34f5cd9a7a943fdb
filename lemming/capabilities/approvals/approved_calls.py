"""Calls that a person approved: made as the turn begins, before its model is asked. Pure.

Each is recorded as any call is: none is made twice. Which they are says `approvals.decided`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lemming.capabilities.approvals.entries import bind_entries, publish
from lemming.capabilities.approvals.waiting import PUBLISH, digest_of
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.report import End
from lemming.kernel.providers import Message
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.prompt import results_message

VALUES_LIMIT_BYTES = 64 << 20


def make_approved(draft: Draft, decided: Json, again: list[str]) -> End | None:
    """Make calls, and let the prompt show what they gave; return how the turn has to end.

    `again`: what changed of the files of an entry that is to be asked about again, while it is written.

    That is None where the model is to be asked. Where a call has to be asked about again, the turn waits,
    and keeps the results of its earlier calls.
    """
    draft.remarks += decided.get("remarks", ())
    numbers: dict[int, int] = {}
    for place, call in _approved(decided):
        numbers[place] = len(draft.results)
        if call.tool == PUBLISH:
            publish(draft, call, decided["at"], again)
            numbers[place] = len(draft.results) - 1  # behind what was found out for it
        else:
            draft.use(call, decided["at"])
        draft.untold.discard(numbers[place])
    bind_entries(draft, 0, decided["at"])
    if draft.asked and not draft.over:
        _keep_all(draft, decided["results"], numbers)
        return "waits"
    _show(draft, numbers)
    return draft.over or ("done" if draft.is_answered else None)


def _approved(decided: Mapping[str, Any]) -> Iterator[tuple[int, ToolCall]]:
    """Yield the calls that were approved, as they are to be made, each with its place among the results."""
    for each in decided.get("calls", ()):
        call = each["call"]
        args = each.get("args", call["args"])
        binds = each.get("binds", call["binds"])
        word = {"id": call["id"], "by": each["by"], "entry": each["entry"], "binds": binds}
        word |= {
            "sha256": digest_of(call["tool"], args),
            "is_edited": "args" in each and "binds" not in each,
        }
        yield each["place"], ToolCall(call["tool"], args, "", word)


def _keep_all(draft: Draft, before: Sequence[Json], numbers: Mapping[int, int]) -> None:
    """Put the results into their places among those of the earlier calls, which nobody was shown yet."""
    kept = [*before]
    asked = {number: entry for entry, number in draft.asked.items()}
    for place, number in numbers.items():
        kept[place] = draft.results[number]
        if number + 1 in asked:
            draft.asked[asked[number + 1]] = place + 1
    draft.results, draft.calls, draft.shown = kept, [""] * len(kept), 0


def _show(draft: Draft, numbers: Mapping[int, int]) -> None:
    """Put the results into the prompt, whatever is asked with it."""
    if not numbers:
        return
    prompt, made = draft.inputs.prompt, {*numbers.values()}
    if draft.inputs.model.prompt == "values":
        draft.show(_filled_in(prompt, {place: draft.results[number] for place, number in numbers.items()}))
    else:
        told = [it for number, it in enumerate(draft.results) if number in made or not it["success"]]
        draft.show([*prompt, results_message(told, prompt)])
    draft.shown = len(draft.results)


def _filled_in(prompt: Sequence[Message], results: Mapping[int, Mapping[str, Any]]) -> list[Message]:
    """Return a prompt that is the values of a turn, with results in the places that it keeps for them."""
    values = parse(prompt[-1]["content"], limit_bytes=VALUES_LIMIT_BYTES)
    for place, result in results.items():
        values["results"][place] = result
    return [*prompt[:-1], {**prompt[-1], "content": to_line(values)}]
