"""Capability of goals: the key `until` of a request holds its answer back until the goal is reached."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lemming.capabilities.goals.goal_settings import GOAL_POLICY, UNTIL, parse_goal, require_judge
from lemming.capabilities.judges.judge_verdicts import NoVerdict, ask_judge, build_judge_prompt
from lemming.capabilities.judges.judged_turn import describe_draft_entry, truncate_for_judge
from lemming.capabilities.judges.resolved_judges import iter_judge_files, load_recorded_judge, resolve_judge
from lemming.capabilities.requests.team_tools import build_team_tools
from lemming.ext import (
    PLAIN,
    BuildPrompt,
    CallTool,
    Capability,
    ConfigError,
    Effect,
    EffectPerformed,
    EndTurn,
    Event,
    Interception,
    LemmingError,
    Preparation,
    Rejected,
    RunTurn,
    ShowEntry,
    TurnView,
    describe_task,
    find_fact,
)
from lemming.kernel.access.workspace_trust import RequiredPermission, WorkspaceTrust
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import OutOfCredits, ToolError
from lemming.kernel.base.redaction.secrets import redact_untrusted
from lemming.kernel.base.untrusted_quoting import quote_lines
from lemming.kernel.files.fast_decoder import TypeMismatch
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.messages import OutboxEntry, parse_identities
from lemming.kernel.org.config import OrgSettings, load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.forms.form_user_message import describe_result
from lemming.kernel.turn.tool_results import without_notices
from lemming.kernel.turn.turn_values import CheckFinding
from lemming.libraries.lenient_json import parse_or_default
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.libraries.permission_bindings import digest_setting
from lemming.libraries.sandbox.sandbox_settings import get_shell_settings


class GoalsCapability(Capability):
    """Goals of requests: the asker's key `until`, and nothing else, says what must hold."""

    name = "goals"
    handles = (ShowEntry, BuildPrompt, CallTool, EndTurn)

    def prepare(self, turn: Preparation) -> Json:
        """Return the goal of the turn's request with the number of the turn, or why the request must fail."""
        return turn.get_cache(TurnGoal).snapshot

    def intercept(self, effect: Effect, turn: Preparation | TurnView) -> Interception:
        """Refuse to hand the request on, as the next assignee would answer unchecked, and add receipts to the answers."""
        if isinstance(turn, Preparation):
            return turn.get_cache(TurnGoal).intercept(effect)
        if isinstance(effect, EndTurn):
            return turn.get_cache(GoalLoop).add_receipts(effect)
        if isinstance(effect, CallTool) and "turn" in turn.snapshot:
            tool = build_team_tools(turn.agent).get(effect.tool)
            if tool is not None and tool.is_handoff:
                return Rejected("refused: your answer is checked; answer it yourself")
        return None

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Hold the answer back until the goal is reached."""
        return run() if "ended" in turn.snapshot else turn.get_cache(GoalLoop).run(run)

    def reduce(self, state: Json, event: Event, turn: TurnView) -> Json:
        """Return the number of checked turns of each open request, by its identity."""
        if not (isinstance(event, EffectPerformed) and isinstance(event.effect, EndTurn)):
            return state
        current, loop = turn.request.request if turn.request else "", turn.get_cache(GoalLoop)
        open_requests = {current, *(item.request for item in turn.inputs.state.requests)}
        counts = {identity: count for identity, count in state.items() if identity in open_requests}
        if loop.is_over:
            counts.pop(current, None)
        return {**counts, current: loop.turns} if loop.turns else counts


class TurnGoal:
    """The goal of a turn's request, from the asker's entry."""

    def __init__(self, turn: Preparation) -> None:
        self._turn = turn
        self.snapshot: Json = {}

    def intercept(self, effect: Effect) -> Interception:
        """Resolve the goal. In an inbox, where no answer is checked, leave out a request with one."""
        match effect:
            case ShowEntry(part="unread" | "inbox-request", entry=OutboxEntry(kind="request") as entry):
                if UNTIL in entry.payload and self._turn.agent.name in entry.targets:
                    return Rejected("until: requests that are taken with the inbox are not checked")
            case BuildPrompt():
                return self._resolve(effect)
        return None

    def _resolve(self, effect: BuildPrompt) -> Interception:
        turn, task = self._turn, effect.selected.task
        identity = task.open_request.request if task else ""
        request = self._read_request(identity)
        if request is None or task is None:
            is_stale = turn.state.keys() - {item.request for item in turn.context.state.requests}
            self.snapshot = {"ended": True} if is_stale else {}
            return None
        try:
            self.snapshot, files = self._make_snapshot(effect, request, turn.state.get(identity, 0) + 1)
        except (LemmingError, TypeMismatch) as error:
            hint = getattr(error, "hint", "")
            self.snapshot, files = {"blocked": f"{error}{f' ({hint})' if hint and hint not in str(error) else ''}"}, []
        return (yield effect.change(source_paths=[*effect.prompt.source_paths, *files]))

    def _read_request(self, identity: str) -> OutboxEntry | None:
        """Return the unfiltered entry of a request with a goal."""
        name = next(iter(parse_identities([identity])), None) if identity else None
        entry = self._turn.context.tick_context.mail.read(name) if name else None
        if not isinstance(entry, OutboxEntry):
            return None
        original = entry.payload.get("asked") if "hands_on" in entry.payload else entry.payload
        return replace(entry, payload=original) if isinstance(original, dict) and UNTIL in original else None

    def _make_snapshot(self, effect: BuildPrompt, request: OutboxEntry, number: int) -> tuple[Json, list[str]]:
        """Return the record of the goal, and the files of its judge.

        Raises: TypeMismatch for an invalid goal, LemmingError for a missing judge or agreement.
        """
        turn, goal, context = self._turn, parse_goal(request.payload[UNTIL]), self._turn.context
        tick_context, is_person = context.tick_context, request.agent in context.tick_context.mail.persons
        if goal.checks and not is_person:
            raise ConfigError(f"until.checks: only a person's request may name programs, not one of {request.agent}")
        for command in goal.checks:
            if not turn.org.get_cache(WorkspaceTrust).is_granted(make_permission(command, tick_context.config.org)):
                hint = "agree with `lemming trust --yes`, and ask again"
                raise ConfigError(f"until.checks: nobody has agreed to run {shlex.join(command)}", hint=hint)
        require_judge(goal, tick_context.mail.resumes, tick_context.config.models)
        record: Json = {"turn": number, "max_turns": goal.max_turns, "checks": goal.checks}
        if (settings := goal.judge_settings) is None:
            return record, []
        owner = None if is_person else tick_context.mail.resumes.get(request.agent)
        judge = resolve_judge(tick_context, context.agent, settings, owner, context.unwritten_files, location=UNTIL)
        if not (judge.get("policy") or judge.get("instructions")):
            judge["policy"] = GOAL_POLICY
        rules = filter(None, (judge.get("policy"), judge.get("instructions")))
        shown = describe_task(effect.prompt, rules, effect.selected.pending_indexes)
        return {**record, "judge": judge, "shown": shown[:40_000]}, [*iter_judge_files(tick_context, settings, owner)]


# --- the end of a turn for a request with a goal -------------------------------------------------
# An answer that has not reached the goal is withdrawn, and its request stays open: the reasons are what the agent's next
# turn for it is shown. All questions are answered from the journal first.

REASON_CHARS = 8000
_GIVEN_UP = ("failed", "refused")


class GoalLoop:
    """One turn for a request with a goal. The snapshot holds `turn` of `max_turns`, `checks`, `judge` and `shown`.

    `turns`: number of checked turns if the request stays open after this one, 0 if the turn checked nothing.
    """

    def __init__(self, turn: TurnView) -> None:
        self._turn, self._goal = turn, turn.snapshot
        self.turns, self.is_over = 0, False
        self._receipts: tuple[Json, Collection[str]] = {}, ()

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
        turn, request = self._turn, self._turn.request
        if request is None or not request.request or turn.forced_end == "failed" or turn.is_handed_off:
            return []
        answers = request.find_answers(turn.entries)
        if answers or end not in ("done", "repeats") or request.is_in_progress(turn.entries):
            return answers
        marked_entries = request.mark_answer([*turn.entries])  # a message counts if nothing else answers
        return request.find_answers(marked_entries or [])

    def _decide(self, drafts: list[OutboxEntry], end: End) -> End:
        number, limit = self._goal["turn"], self._goal["max_turns"]
        receipts: Json = {"turns": number, "max_turns": limit, "reached": False}
        self.is_over = True
        if any(draft.payload.get("status") in _GIVEN_UP for draft in drafts):
            self._set_receipts(receipts)
            return end
        at, commands = drafts[0].created_at, self._goal["checks"]
        receipts["checks"] = checks = [self._run_check(command, at) for command in commands]
        problems = [_describe_check(check) for check in checks if check["status"] != 0]
        if verdict := self._ask_judge(drafts, checks):
            receipts["judge"] = verdict
            problems += [] if verdict["passes"] else [f"{verdict['by']} says:\n{quote_lines(verdict['reason'])}"]
        if not problems:
            self._set_receipts({**receipts, "reached": True})
            return end
        reasons = "\n".join(problems)[:REASON_CHARS]
        if number < limit:
            self.is_over, self.turns = False, number
            self._hold_back(drafts, f"The goal is not reached (turn {number} of {limit}).\n{reasons}")
            return end
        self._turn.withdraw({draft.identity for draft in drafts})
        self._turn.fail_request(f"the goal was not reached in {limit} turns:\n{reasons}")
        self._set_receipts(receipts)
        return "done"

    def _hold_back(self, drafts: list[OutboxEntry], reason: str) -> None:
        """Withdraw the answer, and leave the reason for the next turn for the request."""
        turn = self._turn
        turn.withdraw({draft.identity for draft in drafts})
        turn.allow_silence()
        turn.leave_result(UNTIL, f"Your answer has not left. {reason}\nGo on, and answer again once it is reached.")
        turn.remark(f"the answer was held back: {reason}")

    def _set_receipts(self, receipts: Json) -> None:
        """Keep the receipts for every answer of the turn."""
        request = self._turn.request
        assert request, "only a request has a goal"
        answers = request.find_answers(self._turn.entries) or self._find_drafts("done")
        self._receipts = receipts, {answer.identity for answer in answers}

    def add_receipts(self, effect: EndTurn) -> Interception:
        """Pass on the end with the receipts in the answers, in place of what the agent wrote there itself."""
        receipts, identities = self._receipts
        entries = tuple(
            replace(entry, payload={**entry.payload, UNTIL: receipts}) if entry.identity in identities else entry
            for entry in effect.entries
        )
        return (yield replace(effect, entries=entries) if identities else effect)

    def _run_check(self, command: list[str], at: str) -> Json:
        line = shlex.join(command)
        make_call = find_fact("workers.make_goal_check") if "workspace" in self._turn.agent.extensions else None
        if make_call is not None:
            return {"command": line, **run_clone_check(self._turn, make_call, command, at)}
        finding = self._turn.run_check(f"{UNTIL}: {line}"[:200], partial(run_check, command), needs_files=True)
        finding = finding or CheckFinding("it gave no result")
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


MakeCall = Callable[[TurnView, list[str]], tuple[str, Json]]
"""Returns the tool, and its arguments, that checks what a worker's turn has left on its branch."""
TAIL_CHARS = 2000
"""So much of the end of a program's output is recorded."""


def make_permission(command: list[str], settings: OrgSettings) -> RequiredPermission:
    """Return the permission to run a program that a person's request names."""
    sandbox = "without a sandbox" if get_shell_settings(settings).sandbox == "none" else "in the sandbox"
    does = f"runs the program: {shlex.join(command)}, {sandbox}, to check what an agent did for a request"
    return RequiredPermission(does, digest_setting("until.checks", command), needs_agreement=True)


def list_check_permissions(base: OrgPath) -> list[RequiredPermission]:
    """Return the permissions that the requests of persons need, for `lemming trust`."""
    config = load_config(base)
    commands = {tuple(command): None for command in _iter_commands(base)}
    return [make_permission([*command], config.org) for command in commands]


def _iter_commands(base: OrgPath) -> Iterator[list[str]]:
    for person in survey_agents(base).find_people(load_config(base)):
        for entry in read_outbox_entries(base, person):
            if entry.kind == "request" and UNTIL in entry.payload:
                try:
                    yield from parse_goal(entry.payload[UNTIL]).checks
                except TypeMismatch:
                    continue  # the request is refused when its turn comes, with the reason


def run_check(command: Sequence[str], context: ToolContext) -> CheckFinding:
    """Run a program in the agent's workspace. The finding is how it ended, with exit status and end of the output."""
    from lemming.libraries.sandbox.sandbox_runner import run_confined  # slow to import, and most turns check nothing

    shell_settings = get_shell_settings(context.settings)
    limit_s = min(shell_settings.timeout_s, context.limit_s)
    if limit_s <= 0:
        return _make_finding("not run: the turn's time is over", None, "")
    extensions = {**context.settings.extensions, "shell": replace(shell_settings, timeout_s=limit_s)}
    settings, workspace = replace(context.settings, extensions=extensions), paths.workspace_folder(context.agent.name)
    try:
        outcome = run_confined(shlex.join(command), context.base, workspace, settings)
    except ToolError as error:
        return _make_finding(f"not run: {error}", None, "")
    verdict, text = outcome.verdict, redact_untrusted(outcome.output.decode("utf-8", "replace"))
    ends = {"exit": f"exit status {verdict.status}", "timeout": f"killed after {limit_s:g} s"}
    how = ends.get(verdict.ended, f"killed: {verdict.ended}")
    return _make_finding(how, verdict.status if verdict.ended == "exit" else None, text.rstrip()[-TAIL_CHARS:])


def run_clone_check(turn: TurnView, make_call: MakeCall, command: list[str], at: str) -> Json:
    """Return the receipt of a program that ran in a clone of a worker's branch: `ended`, `status` and `tail`."""
    tool, arguments = make_call(turn, command)
    result = turn.call_tool(tool, arguments, at)
    turn.mark_results_shown()  # the loop says itself what failed
    receipt = parse_or_default(result.output, None)
    if receipt is None:
        return {"ended": "not run", "status": None, "tail": result.output[-TAIL_CHARS:]}
    status = None if "ended_by" in receipt else receipt["status"]
    ended = f"ended by {receipt['ended_by']}" if status is None else f"exit status {status}"
    return {"ended": ended, "status": status, "tail": receipt["tail"].rstrip()[-TAIL_CHARS:]}


def _make_finding(how: str, status: int | None, tail: str) -> CheckFinding:
    content: dict[str, Any] = {"status": status, "tail": tail}
    return CheckFinding(how[:TAIL_CHARS], content)
