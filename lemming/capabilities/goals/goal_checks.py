"""The programs that check a goal: the agreement that they need, and one run in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lemming.capabilities.goals.goal_settings import UNTIL, format_command, parse_goal
from lemming.ext import TurnView
from lemming.kernel.access.permission_bindings import digest_setting
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.redaction.secrets import redact_untrusted
from lemming.kernel.files.fast_decoder import TypeMismatch
from lemming.kernel.files.field_types import Json
from lemming.kernel.messages import read_outbox_entries
from lemming.kernel.org.config import OrgSettings, load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import find_people
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.guards import CheckFinding
from lemming.libraries.sandbox.sandbox_settings import get_shell_settings

MakeCall = Callable[[TurnView, list[str]], tuple[str, Json]]
"""Returns the tool, and its arguments, that checks what a worker's turn has left on its branch."""
TAIL_CHARS = 2000
"""So much of the end of a program's output is recorded."""


def make_permission(command: list[str], settings: OrgSettings) -> RequiredPermission:
    """Return the permission to run a program that a person's request names."""
    sandbox = "without a sandbox" if get_shell_settings(settings).sandbox == "none" else "in the sandbox"
    does = f"runs the program: {format_command(command)}, {sandbox}, to check what an agent did for a request"
    return RequiredPermission(does, digest_setting("until.checks", command), needs_agreement=True)


def list_check_permissions(base: OrgPath) -> list[RequiredPermission]:
    """Return the permissions that the requests of persons need, for `lemming trust`."""
    config = load_config(base)
    commands = {tuple(command): None for command in _iter_commands(base)}
    return [make_permission([*command], config.org) for command in commands]


def _iter_commands(base: OrgPath) -> Iterator[list[str]]:
    for person in find_people(survey_agents(base), load_config(base)):
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
        outcome = run_confined(format_command([*command]), context.base, workspace, settings)
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
    try:
        receipt = parse(result.output)
    except JsonProblem:
        return {"ended": "not run", "status": None, "tail": result.output[-TAIL_CHARS:]}
    status = None if "ended_by" in receipt else receipt["status"]
    ended = f"ended by {receipt['ended_by']}" if status is None else f"exit status {status}"
    return {"ended": ended, "status": status, "tail": receipt["tail"].rstrip()[-TAIL_CHARS:]}


def _make_finding(how: str, status: int | None, tail: str) -> CheckFinding:
    content: dict[str, Any] = {"status": status, "tail": tail}
    return CheckFinding(how[:TAIL_CHARS], content)
