"""What approvals do in a turn: make what was approved, ask about what a gate stops, keep what waits. Pure.

Which calls were approved says `approvals.decisions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lemming.capabilities.approvals.binding import changed_since, changed_text
from lemming.capabilities.approvals.journals import having_made
from lemming.capabilities.approvals.waiting import NAME, PUBLISH, SPEND, Waiting, call_in, digest_of, too_many
from lemming.capabilities.requests.deadlines import last_tick, not_after_in
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.base.kinds import MESSAGE_KINDS
from lemming.kernel.files.documents import value_of
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Asked
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.report import End, Status
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.dialogue import (
    CallResults,
    drop_unanswered,
    list_call_ids,
    pair_with_calls,
    tell_results,
)
from lemming.kernel.turn.notices import is_notice
from lemming.kernel.turn.places import Asking
from lemming.kernel.turn.results import OUTBOX_ENTRIES, WRITTEN
from lemming.kernel.turn.seams import TurnPart

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft

VALUES_LIMIT_BYTES = 64 << 20


class ApprovalsPart(TurnPart):
    """Approvals in one turn.

    `given`: what stands of what was asked beside calls (`asked`), whom to ask about what is new (`new`,
    `spend`, `askable`), what was decided about calls, and what was approved in advance.
    """

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        super().__init__(name, draft, given)
        self._used: list[tuple[Json, bool]] = []  # by whose word calls were made, and whether outside
        self._changed: list[str] = []  # of the files of an entry that was approved, as it is written
        self._more: list[Json] = []  # payloads of requests to spend more
        self._written: Sequence[OutboxEntry] = ()  # what it asked as the turn ended

    def opens(self) -> End | None:
        """Make the calls that were approved. Each is recorded as any call is: none is made twice."""
        if self.given.get("only"):
            self.draft.only_asks = True
            return "waits"
        decided = self.given.get("decided")
        return make_approved(self.draft, decided, self._changed) if decided else None

    def replied(self, first: int, written: int, before: Mapping[str, FileEffect], *, has_seen: bool) -> None:
        """Have entries that wait bound to what is in the files that go with them."""
        bind_entries(self.draft, first, self.draft.answers[-1].at)

    def after_call(self, index: int, call: ToolCall, result: ToolResult) -> None:
        """Note by whose word a call was made."""
        if NAME in result.kept:
            self._used.append((result.kept[NAME], self.draft.source.reached_outside(index)))

    def asks(self, new: NewEntry, asking: Asking, at: str) -> None:
        """Ask about an entry that a gate stops."""
        people = self.given.get("askable", {}).get(asking.line, [])
        draft = self.draft
        place = len(draft.results)
        # As calls of the same reply have their numbers already. A turn begun up to 0.2.0 goes on as it began.
        number = draft.numbers.take(place) if self.given.get("numbered") else place
        identity = f"{draft.inputs.tick}/{draft.inputs.agent.name}/{number}"
        ask_about_entry(draft, identity, new, asking, people, at, self._changed)

    def holds(self, new: NewEntry) -> Json:
        """Return what waits for the answer to a request of ours."""
        return call_in(new.payload)

    def stopped(self, verdict: Json) -> None:
        """Ask for more of a limit that stops a question; what waits or was denied is not asked again."""
        line, draft = verdict["line"], self.draft
        about = self.given.get("spend", {}).get(line)
        if not about or not about["people"]:
            return
        args = {**about["more"], "of": verdict["about"]}
        for asked in self._asked:
            call = asked.held[NAME]
            if (call["tool"], call["gate"], call["args"]) == (SPEND, line, args) and asked.end != "approved":
                return
        agent, tick = draft.inputs.agent.name, draft.inputs.tick
        held = Waiting.of_spending(tick, agent, args, line, verdict["why"])
        expires = (about["expires"],) if "expires" in about else ()
        amounts = verdict.get("amounts")
        self._more.append(held.request(about["people"], expires, self.given["at"], amounts=amounts))
        draft.asks_persons = True
        draft.only_asks = not (draft.answers or draft.results)

    @property
    def _asked(self) -> list[Asked]:
        return [value_of(Asked, plain) for plain in self.given.get("asked", ())]

    def adds(self) -> list[Json]:
        """Return the payloads of requests to persons, which stand after the turn's own entries."""
        return [*self.given.get("new", ()), *self._more]

    def added(self, entries: Sequence[OutboxEntry]) -> None:
        """Take note of the entries that these have become."""
        self._written = entries

    def waits_for(self) -> str:
        """Return who has to decide before anything is shown to anybody."""
        if not self.draft.only_asks:
            return ""
        if self.draft.asks_persons:
            return self.draft.held_up
        asked = sorted({name for entry in self._written for name in entry.targets})
        return f"nothing is shown before {' or '.join(asked)} decides"

    def amends(self, state: AgentState, status: Status, end: End) -> None:
        """Have what was made outside wait no more, though the turn failed."""
        if status == "failed":
            made = {word["id"] for word, is_outside in self._used if is_outside}
            state.requests = having_made(state.requests, made)

    def closes(self, *, is_applied: bool, holds_all: bool) -> Json:
        """Return what stands of what was asked beside calls, and which approvals in advance were used."""
        new = [
            Asked(
                request=entry.identity,
                to=to,
                until=last_tick(entry),
                held={NAME: call_in(entry.payload)},
                not_after=not_after_in(entry.payload),
            )
            for entry in (self._written if is_applied else ())
            for to in sorted(entry.targets)
        ]
        asked = [*self.given.get("asked", ()), *(it.as_json() for it in new)]
        # A word that was used outside, or for files that may be there, is used up though the turn failed.
        used = [word["entry"] for word, is_outside in self._used if holds_all or is_outside]
        used = [*self.given.get("used", ()), *used]
        kept = {"asked": asked, "used": used, "denied": self.given.get("denied", ())}
        return {key: value for key, value in kept.items() if value}


# --- calls that were approved ---------------------------------------------------------------------


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
    _show(draft, numbers, decided["results"])
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
    ids = list_call_ids(draft.task.begun) if draft.task else []
    draft.results, draft.shown = kept, 0
    draft.calls = [*[""] * (len(kept) - len(ids)), *ids]


def _show(draft: Draft, numbers: Mapping[int, int], before: Sequence[Json]) -> None:
    """Put the results into the prompt, whatever is asked with it; `before`: what the prompt was made of."""
    if not numbers:
        return
    inputs, made = draft.inputs, {*numbers.values()}
    if inputs.model.prompt == "values":
        shown = [
            place for place, it in enumerate(before) if not is_notice(it)
        ]  # notices have a key of their own
        found = {shown.index(place): draft.results[number] for place, number in numbers.items()}
        draft.show(_filled_in(inputs.prompt, found))
    else:
        failed = [it for number, it in enumerate(draft.results) if number not in made and not it["success"]]
        draft.continue_with(_continue_dialogue(draft, numbers, before, [(it, "") for it in failed]))
    draft.shown = len(draft.results)


def _continue_dialogue(
    draft: Draft, numbers: Mapping[int, int], before: Sequence[Json], failed: CallResults
) -> list[Message]:
    """Return the messages behind the turn's prompt, each call that waited with what it gave.

    `failed`: what else came of it that the model is to know.
    """
    inputs, said = draft.inputs, drop_unanswered(draft.inputs.dialogue)
    tell = partial(tell_results, inputs.model, inputs.form, [*inputs.prompt, *said])
    if not said:  # the turn begins anew, and its prompt shows all the others
        return tell([*((draft.results[number], "") for number in sorted(numbers.values())), *failed])
    recorded = tell(_list_waited(draft, {}, before))
    made = tell([*_list_waited(draft, numbers, before), *failed])
    return [*said, *made, *inputs.dialogue[len(said) + len(recorded) :]]


def _list_waited(draft: Draft, numbers: Mapping[int, int], before: Sequence[Json]) -> CallResults:
    """Return all results that waited, those of the calls just made in their places."""
    begun = draft.task.begun if draft.task else None
    dialogue = begun.dialogue if begun else None
    assert begun, "a turn that goes on is for something"
    assert dialogue, "it goes on with what was said"
    first = len(before) - len(begun.results)
    results = [
        _tell_made(before[it], draft.results[numbers[it]]) if it in numbers else before[it]
        for it in range(first, len(before))
    ]
    return pair_with_calls(begun, dialogue, [*map(draft.tell, results)])


def _tell_made(asked: Json, made: Json) -> Json:
    """Return what a call gave, with its arguments where a person changed them."""
    if made["args"] == asked["args"]:
        return made
    return {**made, "output": f"(made with other arguments: {to_line(made['args'])})\n{made['output']}"}


def _filled_in(prompt: Sequence[Message], results: Mapping[int, Mapping[str, Any]]) -> list[Message]:
    """Return a prompt that is the values of a turn, with results in the places that it keeps for them."""
    values = parse(prompt[-1]["content"], limit_bytes=VALUES_LIMIT_BYTES)
    for place, result in results.items():
        values["results"][place] = result
    return [*prompt[:-1], {**prompt[-1], "content": to_line(values)}]


# --- entries that wait ----------------------------------------------------------------------------


def ask_about_entry(
    draft: Draft,
    identity: str,
    new: NewEntry,
    asking: Asking,
    people: list[str],
    at: str,
    changed: Sequence[str] = (),
) -> None:
    """Ask these persons whether an entry may be written, and let the turn wait for the answer.

    `identity`: what people know it by while it waits. `changed`: the files of it that have changed since it
    was approved.
    """
    inputs, told = draft.inputs, _describe_entry(new)
    if not people:
        why = f"REFUSED: it needs approval ({asking.line}), and there is no person here who could approve it"
        draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, why, outcome="refused"))
        return
    held = Waiting.of_entry(identity, new, asking.line, asking.why)
    if _waits_already(draft, held):
        why = "WAITS: this very entry waits for approval already; it is written once"
        draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, why, outcome="pending"))
        return
    asked = sum(other[NAME]["tool"] == PUBLISH for other in draft.held.values())
    if asked >= (most := inputs.agent.turn.max_approvals):
        draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, too_many(most), outcome="deferred"))
        return
    payload = held.request(people, asking.expires, at, further=changed_text(changed))
    entry = draft.write(NewEntry("request", payload, []), at, by_engine=True)
    if entry is None:
        return  # why not is told
    why = f"WAITS: {' or '.join(people)} is asked to approve it first; it is written in a later turn"
    draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, why, outcome="pending", entries_by=NAME))
    draft.asked[entry.identity] = len(draft.results)
    draft.held[entry.identity] = {NAME: call_in(payload)}


def bind_entries(draft: Draft, first: int, at: str) -> None:
    """Bind entries that wait to what is in the files that go with them: of the draft's those from `first` on.

    As all calls are made, which may have written these files.
    """
    waiting = [
        place
        for place, entry in enumerate(draft.entries[first:], first)
        if draft.held.get(entry.identity, {}).get(NAME, {}).get("tool") == PUBLISH
    ]
    calls = [draft.entries[place].payload["call"] for place in waiting]
    found = draft.seams.carried([call["args"]["payload"] for call in calls], at) if waiting else ()
    for place, call, carried in zip(waiting, calls, found, strict=True):
        if carried.files:
            entry = draft.entries[place]
            payload = {**entry.payload, "call": {**call, "binds": {**carried.files}}}
            draft.entries[place] = replace(entry, payload=payload)
            draft.held[entry.identity] = {NAME: call_in(payload)}


def publish(draft: Draft, call: ToolCall, at: str, again: list[str]) -> None:
    """Write an entry that was approved; what blocks it by now holds all the same.

    One whose files have changed since is looked at as one that nobody approved: `again` names them then.
    """
    assert call.approved, "who approved it is known"
    try:
        new = NewEntry(**call.args)
        is_sound = new.kind in MESSAGE_KINDS and isinstance(new.payload, dict) and isinstance(new.tags, list)
        is_sound = is_sound and all(isinstance(tag, str) for tag in new.tags)
    except TypeError:
        is_sound = False
    if not is_sound:
        why = "not written: it needs a kind, a payload (an object) and tags (texts)"
        draft.add_result(OUTBOX_ENTRIES, {}, ToolResult(False, why, outcome="invalid_args"))
        return
    (carried,) = draft.seams.carried([new.payload], at)
    again[:] = changed_since(call.approved, carried.files)
    written = new if again else new._replace(payload=carried.payload)
    if entry := draft.write(written, at, is_approved=not again):
        if again:  # no gate asks any more
            (carried,) = draft.seams.carried([entry.payload], at)
            draft.entries[-1] = replace(entry, payload=carried.payload)
        told = {**_describe_entry(new), WRITTEN: entry.identity}
        draft.add_result(OUTBOX_ENTRIES, told, ToolResult(True, f"written: {entry.identity}"))
    again.clear()


def _describe_entry(new: NewEntry) -> Json:
    """Return a description of the entry that a result is about."""
    step = {"step": new.payload["step"]} if "step" in new.payload else {}
    return {"kind": new.kind, "target": new.payload.get("target"), **step}


def _waits_already(draft: Draft, held: Waiting) -> bool:
    begun = {it.key: it for it in draft.inputs.state.requests}
    begun |= {it.key: it for it in ([draft.task.begun] if draft.task else ())}  # with what was decided since
    before = [it.held for each in begun.values() for it in each.open if NAME in it.held]
    return any(other[NAME]["sha256"] == held.sha256 for other in (*before, *draft.held.values()))
