"""Judging of a turn's draft before publication: `verify` of a resume, a delegation or a plan's step.

A judge is one more model call of the turn, so a replayed turn gets the recorded verdict. A rejected draft
goes back with the reason: its entries and memories are withdrawn when the next draft is written, but effects
of its tools stay. Rules: docs/plans.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from lemming.capabilities.judges.judge_verdicts import NoVerdict, ask_judge, build_judge_prompt, build_program_input
from lemming.capabilities.judges.judges_settings import UNVERIFIED
from lemming.capabilities.judges.resolved_judges import ResolvedJudge, load_recorded_judge
from lemming.ext import PLAIN, CarriedOut, ContractError, RunTurn, Steps, TurnView
from lemming.kernel.base.errors import NotVerified, OutOfCredits, ProviderError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.untrusted_quoting import QUOTED_LINE_START, fence_text, make_marker, quote_text
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.turn_report import End
from lemming.kernel.memory import decode_memory
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Message
from lemming.kernel.turn.forms.form_user_message import describe_result
from lemming.kernel.turn.tool_results import without_notices
from lemming.kernel.turn.turn_values import Act
from lemming.queries.findings.neglected_work import UNPASSED_REMARKS

MAX_SHOWN_CHARS = 40_000
"""Maximum characters of the author's prompt, and of its tool results, in a judge's prompt."""
NO_REPLY_ERRORS = (OutOfCredits, ProviderError, ContractError)
"""Stand-in for a verdict or a draft that was never given."""


@dataclass
class _JudgeProgress:
    """Progress of one judge: number of judged drafts, and True for a rejection already handled."""

    judge: ResolvedJudge
    drafts: int = 0
    is_settled: bool = False


class _Rejection(NamedTuple):
    """Rejection of a draft. `can_retry`: another draft would be judged."""

    progress: _JudgeProgress
    reason: str
    can_retry: bool = False


class VerificationLoop:
    """Verification loop of a turn. The snapshot has the judges (`by`), and the task of the turn (`shown`)."""

    def __init__(self, turn: TurnView, draft_writes: DraftWrites, run: RunTurn) -> None:
        self._turn, self._writes, self._run = turn, draft_writes, run
        # A turn begun by 0.2.0 or earlier has no recorded subject: its judge is shown the prompt.
        snapshot = turn.snapshot
        self._task_text = snapshot["shown"] if "shown" in snapshot else turn.inputs.prompt[-1]["content"]
        self._progress = [_JudgeProgress(load_recorded_judge(plain)) for plain in snapshot["by"]]
        self._is_flagged = self._is_abandoned = False

    def run(self) -> End:
        """Run the turn, have its draft judged and rewritten until all judges pass it or their limits are reached.

        Raises: NotVerified if the turn must fail, and errors of the strategy.
        """
        try:
            end = self._run()
        except OutOfCredits as error:  # without a verdict the draft leaves by the `then` of its judges
            for progress in self._progress:
                if self._writes.has_content and self._applies_to_draft(progress):
                    self._apply_consequence(_Rejection(progress, f"it was not judged: {error}"))
            self._finish()
            raise
        while self._writes.has_content and self._turn.forced_end != "failed" and (rejection := self._find_rejection()):
            can_retry = rejection.can_retry and not self._turn.forced_end
            new_end = self._request_rewrite(rejection.reason) if can_retry else None
            if new_end is None:
                self._apply_consequence(rejection)
            else:
                end = new_end
        self._finish()
        return "done" if self._is_abandoned else end

    def _find_rejection(self) -> _Rejection | None:
        """Ask the judges in order, and return the first rejection."""
        for progress in self._progress:
            if progress.is_settled or not self._applies_to_draft(progress):
                continue
            if progress.drafts >= progress.judge.max:
                return _Rejection(progress, f"it has judged {progress.drafts} drafts")
            progress.drafts += 1
            try:
                passes, reason = ask_judge(self._turn, progress.judge, self._build_prompt(progress.judge))
            except NoVerdict as error:
                return _Rejection(progress, str(error))
            if not passes:
                # A program with values as prompt cannot revise its draft.
                can_revise = self._turn.inputs.model.prompt != "values"
                return _Rejection(progress, reason, can_retry=progress.drafts < progress.judge.max and can_revise)
        return None

    def _applies_to_draft(self, progress: _JudgeProgress) -> bool:
        """Return True if a judge checks this draft. A judge of the asker checks answers only."""
        request, entries = self._turn.request, self._turn.entries
        if not progress.judge.asker or request is None:
            return True
        return request.is_answered(entries) or not (request.is_in_progress(entries) or self._turn.is_handed_off)

    # --- asking ---------------------------------------------------------------------------------

    def _build_prompt(self, judge: ResolvedJudge) -> list[Message]:
        turn = self._turn
        task_text, memories = truncate_for_judge(self._task_text), {}
        for path in self._writes.memories:
            memories[get_memory_key(path)] = decode_memory(turn.get_memory_file(path).content, path)
        if judge.command:
            entries = [
                {"kind": entry.kind, "payload": entry.payload, "tags": entry.tags} for entry in self._own_entries
            ]
            draft_values = {"entries": entries, "memories": memories}
            return build_program_input(
                judge, turn.agent.name, turn.tick, task_text=task_text, draft_values=draft_values
            )
        memory_lines = [f"memory {key}: {to_line(value)}" for key, value in memories.items()]
        results = [describe_result(result, PLAIN) for result in without_notices(turn.results)]
        text = "\n".join([*map(describe_draft_entry, self._own_entries), *memory_lines])
        results_text = truncate_for_judge("\n".join(results))
        return build_judge_prompt(judge, task_text=task_text, results=results_text, draft_text=text)

    @property
    def _own_entries(self) -> list[OutboxEntry]:
        return [entry for entry in self._turn.entries if entry.identity in self._writes.entries]

    # --- writing again --------------------------------------------------------------------------

    def _request_rewrite(self, reason: str) -> End | None:
        """Send the draft back for a rewrite. Return the end of the turn with the new draft, or None without one."""
        turn, strategy_turn = self._turn, self._turn.strategy_turn
        messages = [*strategy_turn.conversation]
        if not messages:  # a strategy without model replies: its prompt and the draft
            draft_lines = "\n".join(to_line({"kind": entry.kind, **entry.payload}) for entry in self._own_entries)
            messages = [*strategy_turn.prompt, {"role": "assistant", "content": draft_lines}]
        messages += strategy_turn.append_new_results(messages)
        mark = make_marker([*(message["content"] for message in messages), reason])
        text = (
            f"Your reply has not left. It did not pass, for this reason:\n{fence_text(reason, mark)}\n"
            "Reply again, with all of it: of the reply before nothing leaves. What your tools did stands."
        )
        messages.append({"role": "user", "content": text})
        shown_count = turn.mark_results_shown()
        strategy_turn.replies_left = turn.inputs.max_steps
        self._writes.is_sent_back = True
        try:
            end = self._run(_rewrite(turn, self._writes, messages))
        except NO_REPLY_ERRORS as error:
            turn.remark(f"not written again: {error}")
            end = None
        if not self._writes.is_sent_back:
            return end or "done"
        self._writes.is_sent_back = False
        turn.mark_results_shown(shown_count)
        return None

    # --- end of the turn --------------------------------------------------------------------------

    def _apply_consequence(self, rejection: _Rejection) -> None:
        """Apply the consequence in the judge's `then` to a rejected draft."""
        turn, judge = self._turn, rejection.progress.judge
        rejection.progress.is_settled = True
        if judged := turn.get_report("judged"):
            turn.report("judged", {**judged, "passed": False})
        message = f"{judge.by} did not pass it: {rejection.reason}"
        if judge.then == "fail":
            self._writes.withdraw(turn)
            if turn.request is None or not turn.request.request:
                self._finish()
                raise NotVerified(message[:2000])
            if not turn.is_handed_off:
                turn.fail_request(message[:2000])
                self._is_abandoned = True
            return
        turn.remark(f"{UNPASSED_REMARKS[judge.then != 'flag']}{message}")
        self._is_flagged |= judge.then == "flag"

    def _finish(self) -> None:
        """Add the tag of unverified drafts."""
        if self._is_flagged:
            self._writes.tag_entries(self._turn, UNVERIFIED)


def _rewrite(turn: TurnView, draft_writes: DraftWrites, messages: list[Message]) -> Steps:
    """Request another reply and act on it. The earlier draft is withdrawn when a new reply arrives."""
    strategy_turn = turn.strategy_turn
    while True:
        reply = yield from strategy_turn.ask_reply(messages)
        says_anything = reply.outbox_entries or reply.memory_updates or not reply.tool_calls
        if draft_writes.is_sent_back and says_anything:
            draft_writes.withdraw(turn)
        yield Act(reply)
        if draft_writes.is_sent_back:
            continue
        if not strategy_turn.results or strategy_turn.is_finished:
            return "done"
        if strategy_turn.has_asked:
            return "waits"


_ID = re.compile(r"[a-z0-9_/-]{1,100}")
"""Keys of a payload that only locate an entry."""


def describe_draft_entry(entry: OutboxEntry) -> str:
    """Return an entry of a draft as text, in full: a judge would pass hidden content unchecked."""
    to = f" to {', '.join(sorted(entry.targets))}" if entry.targets else ""
    text, remaining = entry.payload.get("text"), dict(entry.payload)
    quoted_text = quote_text(remaining.pop("text")) if isinstance(text, str) else ""
    for key in ("target", "reply_to", "conversation"):
        if (to and key == "target") or _ID.fullmatch(str(remaining.get(key, ""))):
            remaining.pop(key, None)
    if entry.tags:
        nested = {"tags": entry.tags, "payload": remaining}
        remaining = nested if "tags" in remaining else {**remaining, "tags": entry.tags}
    line = f"{entry.kind}{to}:{quoted_text}"
    if quoted_text and not remaining:
        return line
    return f"{line}{QUOTED_LINE_START if QUOTED_LINE_START in quoted_text else ' '}{to_line(remaining)}"


def truncate_for_judge(text: str) -> str:
    """Return a text truncated to the limit for judges."""
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}\n[cut]"


def get_memory_key(path: str) -> str:
    """Return the key of a memory's file."""
    return path.rpartition("/")[2].removesuffix(".json")


@dataclass
class DraftWrites:
    """Writes of a draft's replies: entries by identity, and memories by path with the earlier staged effect.

    `is_sent_back`: the draft was rejected and is withdrawn with the next reply.
    """

    entries: set[str] = field(default_factory=set)
    memories: dict[str, FileEffect | None] = field(default_factory=dict)
    is_sent_back: bool = False

    @property
    def has_content(self) -> bool:
        """Return True if there is a draft to judge."""
        return bool(self.entries or self.memories)

    def record(self, reply: CarriedOut) -> None:
        """Record the writes of a reply."""
        self.entries.update(reply.reply_entries)
        for path, previous_file in reply.memories.items():
            self.memories.setdefault(path, previous_file)

    def withdraw(self, turn: TurnView) -> None:
        """Withdraw all writes. Files already on disk before a call with outside effects stay."""
        turn.withdraw({*self.entries}, {**self.memories})
        self.entries.clear()
        self.memories.clear()
        self.is_sent_back = False

    def tag_entries(self, turn: TurnView, tag: str) -> None:
        """Add a tag to the entries. Memories cannot have tags and are withdrawn."""
        turn.tag_entries(self.entries, tag)
        for path in self.memories:
            turn.remark(f"memory {get_memory_key(path)} was not kept: it is {tag}")
        if self.memories:
            turn.withdraw((), {**self.memories})
        self.memories.clear()
