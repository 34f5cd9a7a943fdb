"""The end of a turn for a request with a goal: checks and judge decide if the answer leaves. Pure but for its questions.

An answer that has not reached the goal is withdrawn, and its request stays open: the reasons are what the agent's next
turn for it is shown. All questions are answered from the journal first.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from lemming.capabilities.goals.goal_checks import run_check, run_clone_check
from lemming.capabilities.goals.goal_settings import UNTIL, format_command
from lemming.capabilities.judges.judge_prompts import NoVerdict, ask_judge, build_judge_prompt, load_recorded_judge
from lemming.capabilities.judges.judged_turn import describe_draft_entry, truncate_for_judge
from lemming.ext import PLAIN, RunTurn, TurnView, find_fact
from lemming.kernel.base.errors import OutOfCredits
from lemming.kernel.base.payload_text import quote_lines
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.forms.form_user_message import describe_result
from lemming.kernel.turn.tool_results import without_notices

REASON_CHARS = 8000
_GIVEN_UP = ("failed", "refused")


class GoalLoop:
    """One turn for a request with a goal. The snapshot holds `turn` of `max_turns`, `checks`, `judge` and `shown`.

    `turns`: number of checked turns if the request stays open after this one, 0 if the turn checked nothing.
    """

    def __init__(self, turn: TurnView) -> None:
        self._turn, self._goal = turn, turn.snapshot
        self.turns, self.is_over = 0, False

    def run(self, run: RunTurn) -> End:
        """Run the turn, and let its answer leave only if the goal is reached."""
        if "blocked" in self._goal:
            self._turn.fail_request(self._goal["blocked"])
            self.is_over = True
            return "done"
        try:
            end = run()
        except OutOfCredits as error:
            if drafts := self._find_drafts(None):
                self._hold_back(drafts, f"It was not checked: {error}")
            raise
        drafts = self._find_drafts(end)
        return self._decide(drafts, end) if drafts else end

    def _find_drafts(self, end: End | None) -> list[OutboxEntry]:
        """Return the entries that would answer the request when the turn ends so."""
        turn, task = self._turn, self._turn.request
        if task is None or not task.request or turn.has_failed or turn.is_handed_off:
            return []
        answers = task.find_answers(turn.entries)
        if answers or end not in ("done", "repeats") or task.is_in_progress(turn.entries):
            return answers
        return task.find_answers(task.mark_answer([*turn.entries]) or [])  # a message counts if nothing else answers

    def _decide(self, drafts: list[OutboxEntry], end: End) -> End:
        number, limit = self._goal["turn"], self._goal["max_turns"]
        receipts: Json = {"turns": number, "max_turns": limit, "reached": False}
        self.is_over = True
        if any(draft.payload.get("status") in _GIVEN_UP for draft in drafts):
            self._add_receipts(receipts)
            return end
        receipts["checks"] = checks = [
            self._run_check(command, drafts[0].created_at) for command in self._goal["checks"]
        ]
        problems = [_describe_check(check) for check in checks if check["status"] != 0]
        if verdict := self._ask_judge(drafts, checks):
            receipts["judge"] = verdict
            problems += [] if verdict["passes"] else [f"{verdict['by']} says:\n{quote_lines(verdict['reason'])}"]
        if not problems:
            self._add_receipts({**receipts, "reached": True})
            return end
        reasons = "\n".join(problems)[:REASON_CHARS]
        if number < limit:
            self.is_over, self.turns = False, number
            self._hold_back(drafts, f"The goal is not reached (turn {number} of {limit}).\n{reasons}")
            return end
        self._turn.withdraw({draft.identity for draft in drafts})
        self._turn.fail_request(f"the goal was not reached in {limit} turns:\n{reasons}")
        self._add_receipts(receipts)
        return "done"

    def _hold_back(self, drafts: list[OutboxEntry], reason: str) -> None:
        """Withdraw the answer, and leave the reason for the next turn for the request."""
        turn = self._turn
        turn.withdraw({draft.identity for draft in drafts})
        turn.allow_silence()
        turn.leave_result(UNTIL, f"Your answer has not left. {reason}\nGo on, and answer again once it is reached.")
        turn.remark(f"the answer was held back: {reason}")

    def _add_receipts(self, receipts: Json) -> None:
        """Put the receipts into every answer of the turn, in place of what the agent wrote there itself."""
        task = self._turn.request
        assert task, "only a request has a goal"
        answers = task.find_answers(self._turn.entries) or self._find_drafts("done")
        self._turn.extend_payloads({answer.identity for answer in answers}, {UNTIL: receipts})

    def _run_check(self, command: list[str], at: str) -> Json:
        line = format_command(command)
        make_call = find_fact("workers.make_goal_check") if "workspace" in self._turn.agent.extensions else None
        if make_call is not None:
            return {"command": line, **run_clone_check(self._turn, make_call, command, at)}
        finding = self._turn.run_check(f"{UNTIL}: {line}"[:200], partial(run_check, command))
        return {"command": line, "ended": finding.why, **(finding.content or {"status": None, "tail": ""})}

    def _ask_judge(self, drafts: list[OutboxEntry], checks: list[Json]) -> dict[str, Any] | None:
        """Return the verdict of the judge, or None without a judge. Without a verdict the answer has not passed."""
        turn = self._turn
        if "judge" not in self._goal:
            return None
        judge = load_recorded_judge(self._goal["judge"])
        results = [describe_result(result, PLAIN) for result in without_notices(turn.results)]
        prompt = build_judge_prompt(
            judge,
            task_text=truncate_for_judge(self._goal.get("shown", "")),
            results=truncate_for_judge("\n".join([*map(_describe_check, checks), *results])),
            draft_text="\n".join(map(describe_draft_entry, drafts)),
        )
        try:
            passes, reason = ask_judge(turn, judge, prompt)
        except NoVerdict as error:
            passes, reason = False, str(error)
        if not passes and (judged := turn.get_report("judged")):
            turn.report("judged", {**judged, "passed": False})
        return {"by": judge.by, "passes": passes, "reason": reason}


def _describe_check(check: Json) -> str:
    tail = f"\n{quote_lines(check['tail'])}" if check["tail"] else ""
    return f"Check {check['command']}: {check['ended']}{tail}"
