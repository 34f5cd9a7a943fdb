"""Questions to persons: about calls with their pending state, entries, and models whose limit is reached (docs/gates.md).

Nothing runs here that could not run again: for a plan-only tool the plan is made, to show the effects in the
request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

from lemming.capabilities.gates.gate_settings import find_approvers
from lemming.ext import (
    Allowed,
    AskModel,
    AskPerson,
    Deferred,
    LivePhase,
    NewEntry,
    Outcome,
    Rejected,
    RunTool,
    Suspended,
    ToolCall,
    TurnView,
    WriteEntry,
    list_grants,
)
from lemming.kernel.base.jsontext import dump_compact, is_equal_json
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.open_requests import PUBLISH, SPEND, iter_person_requests
from lemming.kernel.messages import ENTRY_LIMIT_BYTES
from lemming.kernel.obligations.grants import action_digest, find_changed_files, find_changes_after_decision
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.tools import Tool, ToolResult, get_toolset
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.tool_results import WAITS_ALREADY
from lemming.obligations.file_bindings import compute_binding, describe_changed_files
from lemming.obligations.pending_actions import PendingAction, too_many_message

Json = dict[str, Any]
MAX_REQUEST_BYTES = ENTRY_LIMIT_BYTES // 2


class CallApprovals:
    """Approvals of a turn's calls."""

    def __init__(self, phase: LivePhase) -> None:
        self._phase, self._inputs, self._finished = phase, phase.inputs, phase.results
        self._snapshot = phase.inputs.given[DECISION_RULES]

    def decide(self, question: AskPerson, effect: RunTool) -> Outcome:
        """Return the decision on a questioned call.

        `Allowed` with the grant as `{"approvals": grant}`, without an answer for a failing call, or with the
        result of a failing plan. Otherwise the outcome until a person decides.
        """
        call, context = effect.call, effect.context
        tool = _find_callable_tool(call, context)
        if tool is None:
            return Allowed(question)  # the call fails by itself and says why
        assert self._phase.plan_call, "calls are only decided in a turn that runs"
        planned = self._phase.plan_call(effect) if tool.is_plan_only else None
        # A call that would fail anyway is no question to a person.
        if planned is not None and not planned.success:
            return Allowed(question, planned)
        agent, files = context.agent, (context.staged, context.removed)
        # Refused, not cut: a person approves only what the request shows whole.
        if len(dump_compact(call.args)) > MAX_REQUEST_BYTES:
            return _argument_limit_error()
        binds, unbound = compute_binding(agent, context.base, tool.tool_class, call.args, *files)
        mail = self._phase.tick_context.mail
        people = find_approvers(mail.persons, mail.resumes, agent.name, question.persons)
        people = [name for name in people if question.may_decide(name)]
        first = self._phase.grants.get(DECISION_RULES, {})  # the answers to other questions about the call
        used = [item["entry"] for item in list_grants(first)] if first else []
        if grant := self._find_grant(call, binds, people, used, question.asked_by):
            grants = {**first, "grants": [*first.get("grants", ()), grant]} if first else grant
            return Allowed(question, {DECISION_RULES: grants})
        if not people:
            return Rejected(_no_approver_reason(sorted(mail.persons), agent.name, question))
        identity = (call.approved or {}).get("id") or context.call_id
        action = PendingAction(
            id=identity,
            tool=call.tool,
            args=call.args,
            gate=question.asked_by,
            reason=question.reason,
            binds=binds,
            unbound=unbound,
            grants=_list_valid_grants(call, binds),
        )
        for other in self._pending_calls():
            if (other["sha256"], other["binds"]) == (action.sha256, binds):
                return Deferred(f"WAITS: this very call waits for approval already ({other['id']}); it is made once")
        if call.approved is None and (reason := self._find_denial(action.sha256, binds)):
            return Rejected(reason)
        max_approvals = agent.turn.max_approvals
        # Deferred, not refused: the model may ask again later, and the repetition counts as no loop.
        if call.approved is None and self._count_new_requests() >= max_approvals:
            return Deferred(too_many_message(max_approvals))
        # An approved call is asked about again if its files changed: the request names them.
        changes = [] if call.approved is None else find_changed_files(binds, call.approved["binds"])
        return _request_approval(action, question, people, context, planned, changes)

    def _find_denial(self, sha256: str, binds: Json) -> str:
        """Return the refusal of a call that a person denied for the same request, or an empty text."""
        request = self._inputs.current_request.begun.request if self._inputs.current_request else ""
        for denial in self._snapshot.get("denied", ()) if request else ():
            if (denial["request"], denial["sha256"], denial["binds"]) == (request, sha256, binds):
                reason = f": {denial['reason']}" if denial["reason"] else ""
                return (
                    f"DENIED by {denial['by']}{reason} ({denial['id']}); this very call is not asked about again for "
                    "this request: do something else, or answer without it"
                )
        return ""

    def _count_new_requests(self) -> int:
        """Return the approximate number of calls about which this turn asks for the first time."""
        records = [record for record in self._finished.values() if record.entries_by == DECISION_RULES]
        calls = (record.entries[0]["payload"]["call"] for record in records)
        return sum(call["id"].startswith(f"{self._inputs.tick}/") for call in calls)

    def _pending_calls(self) -> Iterator[Mapping[str, Any]]:
        """Yield the pending calls of this turn, and of other requests."""
        request = self._inputs.current_request
        for open_request in self._inputs.state.requests:
            if request is None or open_request.key != request.begun.key:
                states = (part.held for part in open_request.open_sub_requests)
                yield from (state[DECISION_RULES] for state in states if DECISION_RULES in state)
        for record in self._finished.values():
            if record.entries_by == DECISION_RULES:
                yield from (entry["payload"]["call"] for entry in record.entries)

    def _find_grant(
        self, call: ToolCall, binds: Json, people: Collection[str], used: Collection[str], asked_by: str
    ) -> Json | None:
        """Return the grant for a call in the current form, or None if a person must be asked.

        `used`: entries whose approval answers another question about the call.
        """
        # Whoever decided must still be allowed to as the call is made: gates may have changed since.
        valid_grants = _list_valid_grants(call, binds)
        grants = [grant for grant in valid_grants if grant["entry"] not in used and grant["by"] in people]
        if grants:
            grant = min(grants, key=lambda item: item.get("gate") != asked_by)
            return {key: grant[key] for key in ("id", "by", "entry")}
        # A preapproval holds for one call.
        earlier_grants = [item.kept[DECISION_RULES] for item in self._finished.values() if DECISION_RULES in item.kept]
        used = {*used, *(item["entry"] for grant in earlier_grants for item in list_grants(grant))}
        for item in self._snapshot.get("ahead", ()):
            # Not by `==`: True equals 1 in Python, and the approval is for these values of these types.
            is_match = is_equal_json([item["tool"], item["args"]], [call.tool, call.args]) and item["entry"] not in used
            if is_match and item["by"] in people and (item.get("binds") is None or item["binds"] == binds):
                return {key: item[key] for key in ("id", "by", "entry")}
        return None


def _find_callable_tool(call: ToolCall, context: ToolContext) -> Tool | None:
    """Return the tool of a valid call, or None for an invalid call."""
    with suppress(*FILE_ERRORS):  # any other error must not let the call pass unasked
        tools = get_toolset(context.settings, context.org)
        tool = tools.require_allowed(call.tool, context.agent, context.settings)
        if isinstance(call.args, dict):
            tool.parse_arguments(call.args)
            return tool
    return None


def _no_approver_reason(people: Sequence[str], agent: str, question: AskPerson) -> str:
    """Return the refusal of a question that nobody can be asked."""
    lines = " and ".join((question.asked_by, *question.other_lines))
    needs = f"REFUSED: it needs approval ({lines})" + (f", because {question.reason}" if question.asker else "")
    if question.persons is not None and not question.persons:
        named = "named by all of these gates" if question.other_lines else "named"
        return f"{needs}, and no person is {named}"
    candidates = sorted(name for name in people if question.may_decide(name))
    if question.besides and not candidates:
        return f"{needs} by one more person, and {' and '.join(question.besides)} decided already"
    if question.persons is not None and not candidates:
        unknown = " and ".join(sorted(question.persons))
        return f"{needs}, and {unknown} is no person here; persons are {', '.join(sorted(people)) or 'none'}"
    if not candidates:
        return f"{needs}, and there is no person here who could approve it"
    return (
        f"{needs}, and {' and '.join(candidates)} cannot be asked: each of them "
        f"and {agent} must read the other (permissions.read_outboxes)"
    )


def _list_valid_grants(call: ToolCall, binds: Json) -> list[Json]:
    """Return the approvals of a call for its current form: an edit may have named other files."""
    if call.approved is None:
        return []
    first = {key: value for key, value in call.approved.items() if key != "grants"}
    digest = action_digest(call.tool, call.args)
    # A process that writes between this check and the call, microseconds later, is not caught.
    return [
        grant
        for grant in (first, *call.approved.get("grants", ()))
        if grant["sha256"] == digest and not find_changes_after_decision(grant, binds)
    ]


def _request_approval(
    action: PendingAction,
    question: AskPerson,
    people: list[str],
    context: ToolContext,
    planned: ToolResult | None,
    changed: list[str],
) -> Outcome:
    """Return the outcome of a waiting call, with the request to a person."""
    effects, suffix = planned.effects if planned else (), describe_changed_files(changed)
    diff = "\n".join(line for effect in effects for line in _diff_effect(context.base, effect, context.staged))
    payload = action.build_request(people, question.expires, context.now, diff=diff, suffix=suffix)
    if len(dump_compact(payload)) > MAX_REQUEST_BYTES:
        return _argument_limit_error()
    names = " or ".join(people)
    reason = f"WAITS: {names} is asked to approve it first; the result comes in a later turn"
    return Suspended(question, NewEntry("request", payload, []), reason, DECISION_RULES)


def _argument_limit_error() -> Rejected:
    return Rejected(
        f"REFUSED: it needs approval, and is longer than the {MAX_REQUEST_BYTES} bytes that can be asked for"
    )


def _diff_effect(base: Path, effect: FileEffect, staged: Mapping[str, bytes]) -> Iterator[str]:
    old_content = staged.get(effect.path_key)
    if old_content is None:
        root = Path(effect.root) if effect.root else base
        with suppress(OSError):
            old_content = fs.read_bytes(f"{root}/{effect.path}", ENTRY_LIMIT_BYTES)
    old = (old_content or b"").decode("utf-8", "replace").splitlines()
    new = effect.content.decode("utf-8", "replace").splitlines()  # empty for a removed file
    old_name = "/dev/null" if old_content is None else effect.path_key
    new_name = "/dev/null" if effect.removes else effect.path_key
    yield from unified_diff(old, new, old_name, new_name, lineterm="")


class EntryApprovals:
    """Questions of one turn. The snapshot holds the persons to ask: `askable` by gate, `spend` by limit."""

    def __init__(self, turn: TurnView) -> None:
        self._turn, self._snapshot = turn, turn.snapshot

    def decide(self, question: AskPerson) -> Outcome:
        """Return the outcome of a question: allowed if persons have approved, or suspended with a request to persons."""
        match question.subject:
            case WriteEntry() as entry:
                return self._ask_about_entry(question, entry)
            case AskModel() if "verdict" in question.facts:
                return self._ask_to_spend(question, question.facts["verdict"])
        return Rejected(f"{question.reason}: no person can be asked about this")

    def _ask_about_entry(self, question: AskPerson, entry: WriteEntry) -> Outcome:
        if answer := question.find_answer(entry.grant):
            return Allowed(question, {DECISION_RULES: {key: answer[key] for key in ("id", "by", "entry")}})
        askable, turn = self._snapshot.get("askable", {}), self._turn
        people = askable.get(question.asked_by, askable.get("", ()))
        people = [name for name in people if question.may_decide(name)]
        # The calls of this reply have their numbers already. A turn started by 0.2.0 keeps its numbering.
        number = turn.reserve_number() if self._snapshot.get("numbered") else len(turn.results)
        identity = f"{turn.tick}/{turn.agent.name}/{number}"
        new, gate, reason = entry.new._asdict(), question.asked_by, question.reason
        action = PendingAction(id=identity, tool=PUBLISH, args=new, gate=gate, reason=reason)
        if entry.grant:  # of another person, before
            keys = ("id", "by", "entry", "gate", "sha256", "binds")
            grants = [{key: item[key] for key in keys} for item in list_grants(entry.grant)]
            action = replace(action, grants=grants)
        if refusal := self._find_refusal(question, action, people):
            return refusal
        suffix = describe_changed_files(entry.facts.get("changed_files", ()))
        payload = action.build_request(people, question.expires, entry.at, suffix=suffix)
        reason = f"WAITS: {' or '.join(people)} is asked to approve it first; it is written in a later turn"
        return Suspended(question, NewEntry("request", payload, []), reason, DECISION_RULES)

    def _find_refusal(self, question: AskPerson, action: PendingAction, people: Sequence[str]) -> Suspended | None:
        """Return the outcome of an entry about which nobody is asked now, or None."""
        turn = self._turn
        if not people:
            askable = {name for names in self._snapshot.get("askable", {}).values() for name in names}
            reason = _no_approver_reason(sorted(askable), turn.agent.name, question)
            return Suspended(question, reason=reason, outcome="refused")
        # The request of the turn has the decisions since.
        open_requests = {item.key: item for item in turn.inputs.state.requests}
        if turn.request:
            open_requests[turn.request.begun.key] = turn.request.begun
        earlier = (item.held for request in open_requests.values() for item in request.open_sub_requests)
        states = turn.pending_states
        pending = [state[DECISION_RULES] for state in (*earlier, *states) if DECISION_RULES in state]
        if any(item["sha256"] == action.sha256 for item in pending):
            return Suspended(question, reason=WAITS_ALREADY)
        max_approvals = turn.agent.turn.max_approvals
        if sum(item[DECISION_RULES]["tool"] == PUBLISH for item in states) >= max_approvals:
            return Suspended(question, reason=too_many_message(max_approvals), outcome="deferred")
        return None

    def _ask_to_spend(self, question: AskPerson, verdict: Json) -> Outcome:
        """Return the request for a raise of a limit. Pending and denied raises are not asked again."""
        line, turn = verdict["line"], self._turn
        raised = self._snapshot.get("spend", {}).get(line)
        if not raised or not raised["people"]:
            return Suspended(question)
        args = {**raised["more"], "of": verdict["about"]}
        for sub_request in iter_person_requests({DECISION_RULES: self._snapshot}):
            call = sub_request.held[DECISION_RULES]
            if (call["tool"], call["gate"], call["args"]) == (SPEND, line, args) and sub_request.end != "approved":
                return Suspended(question)
        identity = f"{turn.tick}/{turn.agent.name}/{SPEND}"
        action = PendingAction(id=identity, tool=SPEND, args=args, gate=line, reason=verdict["why"])
        expires = (raised["expires"],) if "expires" in raised else ()
        at, amounts = self._snapshot["at"], verdict.get("amounts")
        payload = action.build_request(raised["people"], expires, at, amounts=amounts)
        return Suspended(question, NewEntry("request", payload, []))
