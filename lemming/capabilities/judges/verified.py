"""A turn whose draft is judged before it leaves: `verify` of a resume, a delegation, a plan's step.

A judge is one more question of the turn, so a turn that is taken again gets the recorded verdict. A draft
that does not pass goes back with the reason: what it wrote and remembered is taken back as the next one is
written, what its tools did stands. Rules: docs/strategies.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lemming.capabilities.judges.judge import (
    Judge,
    NoVerdict,
    lines_of,
    question,
    question_for_command,
    recorded_judge,
    verdict_of,
)
from lemming.capabilities.judges.settings import LEFT_UNPASSED, UNVERIFIED
from lemming.capabilities.judges.withdrawing import Own
from lemming.capabilities.requests.capability import given_up, serving_in
from lemming.kernel.base.errors import ContractError, NotVerified, OutOfCredits, ProviderError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.payload_text import NEW_LINE, quote_text
from lemming.kernel.base.quoting import fenced, mark_for
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.report import End
from lemming.kernel.memory import decode_memory
from lemming.kernel.messages import REMINDERS_FROM, OutboxEntry, entry_id
from lemming.kernel.providers import Message
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.forms.situation import describe_result
from lemming.kernel.turn.labels import PLAIN
from lemming.kernel.turn.notices import without_notices
from lemming.kernel.turn.seams import Drive
from lemming.kernel.turn.strategy import Turn
from lemming.kernel.turn.values import Act, Steps

SHOWN_CHARS = 40_000
"""So much of what the author was shown, and of what its tools gave, a judge is shown of each."""
NOT_READ = (OutOfCredits, ProviderError, ContractError)
"""What stands in the place of a verdict, or of another draft, that nobody gave."""


@dataclass
class _Judging:
    """One judge, how many drafts it has judged, and whether what it said last is settled."""

    judge: Judge
    drafts: int = 0
    is_settled: bool = False


class _Rejected(Exception):
    """A draft did not pass. `may_be_better`: whether another one would be judged."""

    def __init__(self, by: _Judging, why: str, *, may_be_better: bool) -> None:
        super().__init__(why)
        self.by, self.why, self.may_be_better = by, why, may_be_better


def verified(draft: Draft, own: Own, given: Json, turn: Turn, drive: Drive, steps: Steps) -> End:
    """Drive a strategy to its end and have judged what it would publish; return how the turn ended then.

    `given`: who judges (`by`), and what the turn is about (`shown`). Raises `NotVerified` where the turn is
    to fail, and what a strategy lets through.
    """
    judged = _Verified(draft, own, given, turn, drive)
    try:
        end = drive(steps)
    except OutOfCredits as error:
        if own.says_anything:
            judged.leave_unjudged(str(error))
        raise
    return judged.until_it_passes(end)


class _Verified:
    """The judging of one turn."""

    def __init__(self, draft: Draft, own: Own, given: Json, turn: Turn, drive: Drive) -> None:
        self._draft, self._own, self._turn, self._drive = draft, own, turn, drive
        # A turn that was begun up to 0.2.0 does not say what it is about: its judge is shown the prompt.
        self._shown = given.get("shown", "") if "shown" in given else draft.inputs.prompt[-1]["content"]
        self._judging = [_Judging(recorded_judge(plain)) for plain in given["by"]]
        self._is_flagged = self._is_given_up = False

    def until_it_passes(self, end: End) -> End:
        """Have the draft judged, and written again, until all judges are content or have had their say."""
        draft = self._draft
        while self._own.says_anything and draft.over != "failed":
            try:
                self._judge()
                break
            except _Rejected as rejected:
                later = None
                if rejected.may_be_better and not draft.over:
                    later = self._written_again(rejected)
                if later is None:
                    self._settle(rejected)
                else:
                    end = later
        self._close()
        return "done" if self._is_given_up else end

    def leave_unjudged(self, why: str) -> None:
        """Let a draft go, by what the judges' `then` says, that nobody can be asked about any more."""
        for judging in self._judging:
            if self._own.says_anything and self._concerns(judging):
                self._settle(_Rejected(judging, f"it was not judged: {why}", may_be_better=False))
        self._close()

    def _judge(self) -> None:
        """Ask the judges in their order; raise `_Rejected` at the first that does not pass the draft."""
        draft = self._draft
        for judging in self._judging:
            if judging.is_settled or not self._concerns(judging):
                continue
            if judging.drafts >= judging.judge.max:
                why = f"it has judged {judging.drafts} drafts"
                raise _Rejected(judging, why, may_be_better=False)
            judging.drafts += 1
            try:
                passes, why = verdict_of(draft, judging.judge, self._question(judging.judge))
            except NoVerdict as error:
                raise _Rejected(judging, str(error), may_be_better=False) from error
            if not passes:
                may_be_better = judging.drafts < judging.judge.max and self._may_revise
                raise _Rejected(judging, why, may_be_better=may_be_better)

    @property
    def _may_revise(self) -> bool:
        """Whether the author can be told what was wrong: a program that reads values cannot."""
        return self._draft.inputs.model.prompt != "values"

    def _concerns(self, judging: _Judging) -> bool:
        """Return whether a judge is to see this draft: one of who asked sees answers only."""
        task, entries = serving_in(self._draft), self._draft.entries
        if not judging.judge.asker or task is None:
            return True
        return task.is_answered(entries) or not (task.is_at_work(entries) or self._draft.is_handed_on)

    # --- asking ---------------------------------------------------------------------------------

    def _question(self, judge: Judge) -> list[Message]:
        draft = self._draft
        shown, memories = cut_shown(self._shown), dict(self._memories())
        if judge.command:
            entries = [
                {"kind": entry.kind, "payload": entry.payload, "tags": entry.tags}
                for entry in self._own_entries
            ]
            said = {"entries": entries, "memories": memories}
            inputs = draft.inputs
            return question_for_command(judge, inputs.agent.name, inputs.tick, shown=shown, draft=said)
        kept = [f"memory {key}: {to_line(value)}" for key, value in memories.items()]
        results = [describe_result(it, PLAIN) for it in without_notices(draft.results)]
        text = "\n".join([*map(_describe_entry, self._own_entries), *kept])
        return question(judge, shown=shown, results=cut_shown("\n".join(results)), draft=text)

    @property
    def _own_entries(self) -> list[OutboxEntry]:
        return [entry for entry in self._draft.entries if entry.identity in self._own.entries]

    def _memories(self) -> Iterator[tuple[str, Any]]:
        """Yield what is to be remembered, by key."""
        for place in self._own.memories:
            key = place.rpartition("/")[2].removesuffix(".json")
            yield key, decode_memory(self._draft.memory[place].content, place)

    # --- writing again --------------------------------------------------------------------------

    def _written_again(self, rejected: _Rejected) -> End | None:
        """Send the draft back; return how the turn ended with another one, None where there is none."""
        draft, turn = self._draft, self._turn
        messages = [*turn.conversation] or self._conversation()
        if draft.has_results_to_tell:
            messages += turn.shown(messages)
        mark = mark_for([*(message["content"] for message in messages), rejected.why])
        text = (
            f"Your reply has not left. It did not pass, for this reason:\n{fenced(rejected.why, mark)}\n"
            "Reply again, with all of it: of the reply before nothing leaves. What your tools did stands."
        )
        messages.append({"role": "user", "content": text})
        shown, draft.shown = draft.shown, len(draft.results)
        turn.replies_left = draft.inputs.max_steps
        self._own.is_sent_back = True
        try:
            end = self._drive(_again(turn, draft, self._own, messages))
        except NOT_READ as error:
            draft.remarks.append(f"not written again: {error}"[:500])
            end = None
        if not self._own.is_sent_back:
            return end or "done"
        self._own.is_sent_back, draft.shown = False, shown
        return None

    def _conversation(self) -> list[Message]:
        """Return a conversation for a strategy that asked for no reply: its prompt, and what came of it."""
        said = lines_of({"kind": entry.kind, **entry.payload} for entry in self._own_entries)
        return [*self._turn.prompt, {"role": "assistant", "content": said}]

    # --- how it ends ----------------------------------------------------------------------------

    def _settle(self, rejected: _Rejected) -> None:
        """Do with a draft that did not pass what its judge's `then` says."""
        draft, judge = self._draft, rejected.by.judge
        rejected.by.is_settled = True
        if "judged" in draft.noted:
            draft.noted["judged"]["passed"] = False
        why = f"{judge.by} did not pass it: {rejected.why}"
        if judge.then == "fail":
            self._own.withdraw(draft)
            if draft.task is None or not draft.task.request:
                self._close()
                raise NotVerified(why[:2000])
            if not draft.is_handed_on:
                draft.entries, self._is_given_up = given_up(draft, why[:2000]), True
            return
        draft.remarks.append(f"{LEFT_UNPASSED[judge.then != 'flag']}{why}"[:500])
        self._is_flagged |= judge.then == "flag"

    def _close(self) -> None:
        """Put the tag where it belongs, the entries into their order, and what was judged into the report."""
        draft, own = self._draft, self._own
        if self._is_flagged:
            own.flag(draft, UNVERIFIED)
        if own.has_withdrawn:
            tick, name = draft.inputs.tick, draft.inputs.agent.name
            turn = draft.inputs.turn
            number_of = {entry_id(tick, name, number, turn): number for number in range(REMINDERS_FROM)}
            draft.entries.sort(key=lambda entry: number_of[entry.id])


def _again(turn: Turn, draft: Draft, own: Own, messages: list[Message]) -> Steps:
    """Ask for another reply, and act on it; what stood before is taken back as soon as there is one."""
    while True:
        reply = yield from turn.reply(messages)
        says_anything = reply.outbox_entries or reply.memory_updates or not reply.tool_calls
        if own.is_sent_back and says_anything:
            own.withdraw(draft)
        yield Act(reply)
        if own.is_sent_back:
            continue
        if not turn.results or turn.is_over:
            return "done"
        if turn.has_asked:
            return "waits"


_ID = re.compile(r"[a-z0-9_/-]{1,100}")
"""What says where an entry stands, and nothing else."""


def _describe_entry(entry: OutboxEntry) -> str:
    """Return an entry of a draft on one line, or on several: its kind, its readers, and all that it says.

    Nothing is left out, as in a prompt: what a judge does not see, it would pass.
    """
    to = f" to {', '.join(sorted(entry.targets))}" if entry.targets else ""
    text, rest = entry.payload.get("text"), dict(entry.payload)
    told = quote_text(rest.pop("text")) if isinstance(text, str) else ""
    for key in ("target", "reply_to", "conversation"):
        if (to and key == "target") or _ID.fullmatch(str(rest.get(key, ""))):
            rest.pop(key, None)
    if entry.tags:
        rest = {"tags": entry.tags, "payload": rest} if "tags" in rest else {**rest, "tags": entry.tags}
    line = f"{entry.kind}{to}:{told}"
    return f"{line}{NEW_LINE if NEW_LINE in told else ' '}{to_line(rest)}" if rest or not told else line


def cut_shown(text: str) -> str:
    """Return what a judge is shown of a text."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}\n[cut]"
