"""Calls that need approval: their pending state, and the request to a person (docs/gates.md).

Nothing runs here that could not run again: for a plan-only tool the plan is made, to show the effects in the
request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

from lemming.capabilities.gates.gate_settings import find_approvers
from lemming.ext import (
    Allowed,
    AskPerson,
    Deferred,
    LivePhase,
    NewEntry,
    Outcome,
    Rejected,
    RunTool,
    Suspended,
    ToolCall,
    list_grants,
)
from lemming.kernel.base.jsontext import dump_compact, is_equal_json
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.messages import ENTRY_LIMIT_BYTES
from lemming.kernel.obligations.grants import action_digest, find_changed_files, find_changes_after_decision
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.tools import Tool, ToolResult, get_toolset
from lemming.kernel.tools.tool_context import ToolContext
from lemming.obligations.file_bindings import compute_binding, describe_changed_files
from lemming.obligations.pending_approvals import PendingAction, too_many_message

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
        assert self._phase.plan_call, "a turn with a tick"
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
        first = self._phase.grants.get(DECISION_RULES, {})  # the answers to other questions about the call
        used = [item["entry"] for item in list_grants(first)] if first else []
        if grant := _find_grant(call, binds, people, self._unused_preapprovals(), used, question.asked_by):
            grants = {**first, "grants": [*first.get("grants", ()), grant]} if first else grant
            return Allowed(question, {DECISION_RULES: grants})
        if not people:
            return Rejected(_no_approver_reason(sorted(mail.persons), agent.name, question))
        identity = (call.approved or {}).get("id") or context.call_id
        action = PendingAction.from_call(identity, call, question.asked_by, question.reason, binds, unbound)
        action = replace(action, grants=_list_valid_grants(call, binds))
        for other in self._pending_calls():
            if (other["sha256"], other["binds"]) == (action.sha256, binds):
                return Deferred(f"WAITS: this very call waits for approval already ({other['id']}); it is made once")
        if call.approved is None and (denial := self._find_denial(action.sha256, binds)):
            return Rejected(_format_denial(denial))
        max_approvals = agent.turn.max_approvals
        # Deferred, not refused: the model may ask again later, and the repetition counts as no loop.
        if call.approved is None and self._count_new_requests() >= max_approvals:
            return Deferred(too_many_message(max_approvals))
        # An approved call is asked about again if its files changed: the request names them.
        changes = [] if call.approved is None else find_changed_files(binds, call.approved["binds"])
        return _request_approval(action, question, people, context, planned, changes)

    def _find_denial(self, sha256: str, binds: Json) -> Mapping[str, Any] | None:
        """Return the denial of the same call for the same request, or None."""
        request = self._inputs.task.begun.request if self._inputs.task else ""
        key = (request, sha256, binds)
        denials = self._snapshot.get("denied", ()) if request else ()
        return next(
            (denial for denial in denials if (denial["request"], denial["sha256"], denial["binds"]) == key), None
        )

    def _count_new_requests(self) -> int:
        """Return the approximate number of calls about which this turn asks for the first time."""
        prefix = f"{self._inputs.tick}/"
        calls = (
            record.entries[0]["payload"]["call"]
            for record in self._finished.values()
            if record.entries_by == DECISION_RULES
        )
        return sum(call["id"].startswith(prefix) for call in calls)

    def _pending_calls(self) -> Iterator[Mapping[str, Any]]:
        """Yield the pending calls of this turn, and of other requests."""
        task = self._inputs.task
        for open_request in self._inputs.state.requests:
            if task is None or open_request.key != task.begun.key:
                yield from (
                    sub_request.held[DECISION_RULES]
                    for sub_request in open_request.open_sub_requests
                    if DECISION_RULES in sub_request.held
                )
        for record in self._finished.values():
            if record.entries_by == DECISION_RULES:
                yield from (entry["payload"]["call"] for entry in record.entries)

    def _unused_preapprovals(self) -> Iterator[Mapping[str, Any]]:
        """Yield the preapprovals that no call of this turn has used."""
        used_grants = [item.kept[DECISION_RULES] for item in self._finished.values() if DECISION_RULES in item.kept]
        used_entries = {item["entry"] for grant in used_grants for item in list_grants(grant)}
        yield from (item for item in self._snapshot.get("ahead", ()) if item["entry"] not in used_entries)


def _find_callable_tool(call: ToolCall, context: ToolContext) -> Tool | None:
    """Return the tool of a valid call, or None for an invalid call."""
    with suppress(*FILE_ERRORS):  # any other error must not let the call pass unasked
        tools = get_toolset(context.settings, context.org)
        tool = tools.require_allowed(call.tool, context.agent, context.settings)
        if isinstance(call.args, dict):
            tool.parse_arguments(call.args)
            return tool
    return None


def _format_denial(denial: Mapping[str, Any]) -> str:
    reason = f": {denial['reason']}" if denial["reason"] else ""
    return (
        f"DENIED by {denial['by']}{reason} ({denial['id']}); this very call is not asked about again for this "
        "request: do something else, or answer without it"
    )


def _no_approver_reason(people: Sequence[str], agent: str, question: AskPerson) -> str:
    lines = " and ".join((question.asked_by, *question.other_lines))
    if question.persons is not None and not question.persons:
        return f"REFUSED: it needs approval ({lines}), and no person is named by all of these gates"
    candidates = sorted(name for name in question.persons or () if name in people) or sorted(people)
    if not candidates:
        return f"REFUSED: it needs approval ({lines}), and there is no person here who could approve it"
    return (
        f"REFUSED: it needs approval ({lines}), and {' and '.join(candidates)} cannot be asked: each of them "
        f"and {agent} must read the other (permissions.read_outboxes)"
    )


def _find_grant(
    call: ToolCall,
    binds: Json,
    people: Collection[str],
    preapprovals: Iterable[Mapping[str, Any]],
    used: Collection[str],
    asked_by: str,
) -> Json | None:
    """Return the grant for a call in the current form, or None if a person must be asked.

    `used`: entries whose approval answers another question about the call.
    """
    # Whoever decided must still be allowed to as the call is made: gates may have changed since.
    grants = [
        grant for grant in _list_valid_grants(call, binds) if grant["entry"] not in used and grant["by"] in people
    ]
    if grants:
        grant = min(grants, key=lambda item: item.get("gate") != asked_by)
        return {key: grant[key] for key in ("id", "by", "entry")}
    for item in preapprovals:
        # Not by `==`: True equals 1 in Python, and the approval is for these values of these types.
        is_match = is_equal_json([item["tool"], item["args"]], [call.tool, call.args]) and item["entry"] not in used
        if is_match and item["by"] in people and (item.get("binds") is None or item["binds"] == binds):
            return {key: item[key] for key in ("id", "by", "entry")}
    return None


def _list_valid_grants(call: ToolCall, binds: Json) -> list[Json]:
    """Return the approvals of a call for its current form."""
    if call.approved is None:
        return []
    grants = [{key: value for key, value in call.approved.items() if key != "grants"}]
    return [grant for grant in (*grants, *call.approved.get("grants", ())) if _is_covered(grant, call, binds)]


def _is_covered(grant: Mapping[str, Any], call: ToolCall, binds: Json) -> bool:
    """Return True if a grant covers a call in the current form. An edit may have named other files."""
    # A process that writes between this check and the call, microseconds later, is not caught.
    return grant["sha256"] == action_digest(call.tool, call.args) and not find_changes_after_decision(grant, binds)


def _request_approval(
    action: PendingAction,
    question: AskPerson,
    people: list[str],
    context: ToolContext,
    planned: ToolResult | None,
    changed: list[str],
) -> Outcome:
    """Return the outcome of a waiting call, with the request to a person."""
    diff = diff_effects(context.base, planned.effects, context.staged) if planned else ""
    payload = action.build_request(
        people, question.expires, context.now, diff=diff, suffix=describe_changed_files(changed)
    )
    if len(dump_compact(payload)) > MAX_REQUEST_BYTES:
        return _argument_limit_error()
    names = " or ".join(people)
    reason = f"WAITS: {names} is asked to approve it first; the result comes in a later turn"
    return Suspended(question, NewEntry("request", payload, []), reason, DECISION_RULES)


def _argument_limit_error() -> Rejected:
    return Rejected(
        f"REFUSED: it needs approval, and is longer than the {MAX_REQUEST_BYTES} bytes that can be asked for"
    )


def diff_effects(base: Path, effects: Iterable[FileEffect], staged: Mapping[str, bytes]) -> str:
    """Return a call's changes to files as a unified diff."""
    return "\n".join(line for effect in effects for line in _diff_effect(base, effect, staged))


def _diff_effect(base: Path, effect: FileEffect, staged: Mapping[str, bytes]) -> Iterator[str]:
    old_content = staged.get(effect.path_key)
    if old_content is None:
        root = Path(effect.root) if effect.root else base
        with suppress(OSError):
            old_content = fs.read_bytes(f"{root}/{effect.path}", ENTRY_LIMIT_BYTES)
    old = (old_content or b"").decode("utf-8", "replace").splitlines()
    new = effect.content.decode("utf-8", "replace").splitlines()  # empty for a removed file
    names = (
        "/dev/null" if old_content is None else effect.path_key,
        "/dev/null" if effect.removes else effect.path_key,
    )
    yield from unified_diff(old, new, *names, lineterm="")
