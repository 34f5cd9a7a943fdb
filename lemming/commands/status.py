"""`lemming status`: the status of the organisation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import typer

from lemming.commands.check import report_problem
from lemming.commands.command_context import CommandContext, describe_engine, option, parse_seconds
from lemming.commands.terminal import (
    describe_totals,
    format_count,
    join_names,
    one_line,
    print_data,
    print_notice,
    print_warning,
    style_text,
)
from lemming.kernel.base.errors import UsageError
from lemming.kernel.tick.firing_plan import format_pause
from lemming.obligations.waiting_items import summarize_inbox
from lemming.queries.checks.health_checks import group_issues
from lemming.queries.org_status import OrgStatus, load_org_status
from lemming.queries.pending_questions import describe_pending
from lemming.queries.screens.screen import ScreenResult
from lemming.queries.screens.status_screen import STATUS, status_to_json

_MAX_FACTS_SHOWN = 8
_MAX_AGE_HELP = "With --check: also fail when the last tick is older than this: 90 (seconds), 10m, 2h, 1d."


def status(
    context: CommandContext,
    check: Annotated[bool, option("--check", "Exit with 1 when something is wrong, for monitoring.")] = False,
    max_age: Annotated[float | None, option("--max-age DURATION", _MAX_AGE_HELP, parser=parse_seconds)] = None,
    limit: Annotated[int | None, option("--limit N", "Show at most N agents, failing agents first.", min=1)] = None,
    watch: Annotated[
        bool, option("--watch -w", "Show a live screen until `q`: what waits, agents, newest entries.")
    ] = False,
) -> None:
    """Show the status of the organisation and its agents: tick, engine, agents and problems.

    Problems are: an agent with failures, without credits or with a broken resume; a backend avoided after
    failures; an interrupted tick without a running engine; a full disk. With --check, the exit status is 1 if
    there are problems, else 0.

    \b
    Examples:
      lemming status
      lemming status --limit 20
      lemming status --watch
      lemming status --check --max-age 10m || mail -s "lemmings" me
      lemming status --json | jq '.agents[] | select(.problem != "")'
    """
    base = context.org
    if watch:
        from lemming.commands.watch import show_live_screen

        if check or max_age is not None or limit is not None:
            raise UsageError("--watch excludes the other options of status", hint="lemming status --watch")
        show_live_screen(context)
        return
    org_status = load_org_status(base, max_age_s=max_age)
    from lemming.queries.findings.finding_rules import count_findings  # with it comes much

    findings = count_findings(base, org_status.config) if org_status.last_commit else 0
    if limit is not None:
        lines = sorted(org_status.agent_statuses, key=lambda row: (not row.has_issue, not describe_pending(row.state)))
        org_status = replace(org_status, agent_statuses=[*context.limit_rows(lines, limit)])
    if not context.print_as_json("status", {**status_to_json(org_status), "findings": findings}):
        _print_status(context, org_status, summarize_inbox(org_status.waiting), findings)
        if check:
            problem_count = f"{format_count(len(org_status.issues), 'thing')} wrong"
            print_data(problem_count if org_status.issues else "all is well")
    raise typer.Exit(1 if check and org_status.issues else 0)


def group_facts(facts: Iterable[tuple[str, str]]) -> list[str]:
    """Group facts by text; each result names all subjects of one text.

    >>> group_facts([("ada", "is full"), ("bob", "is full"), ("cid", "has room")])
    ['ada, bob: is full', 'cid has room']
    """
    subjects_by_text: dict[str, list[str]] = {}
    for subject, text in facts:
        subjects_by_text.setdefault(text, []).append(subject)
    lines = []
    for text, names in subjects_by_text.items():
        subjects = f"{join_names(names, _MAX_FACTS_SHOWN)}:" if len(names) > 1 else names[0]
        lines.append(f"{subjects} {text}".strip())
    return lines


def _print_status(context: CommandContext, org_status: OrgStatus, waiting_line: str, findings: int | None) -> None:
    print_data(f"{style_text(str(org_status.base), 'bold')}")
    print_data(_format_tick_position(org_status))
    if paused := org_status.config.org.paused:
        print_data(f"{style_text(one_line(format_pause(paused), 400), 'yellow')}; `lemming unpause` ends it")
    for name, text in org_status.survey.paused_agents.items():
        print_data(f"{name} is {one_line(format_pause(text), 400)}; `lemming unpause {name}` ends it")
    if org_status.last_commit:
        print_data(f"tick {org_status.last_commit.tick}: {describe_totals(org_status.last_commit.totals)}")
    if waiting_line:
        print_data(style_text(one_line(waiting_line, 400), "yellow"))
    for name, facts in org_status.capability_status.items():
        grouped_facts = group_facts(facts)
        suffix = f"; and {len(grouped_facts) - _MAX_FACTS_SHOWN} more" if len(grouped_facts) > _MAX_FACTS_SHOWN else ""
        facts_text = "; ".join(grouped_facts[:_MAX_FACTS_SHOWN])
        print_data(f"{one_line(f'{name}: {facts_text}', 400)}{suffix}")
    if findings:
        print_data(style_text(f"{format_count(findings, 'finding')}; `lemming findings` lists them", "yellow"))
    if findings is None:
        print_data(style_text("findings are not counted in large journals; run `lemming findings`", "dim"))
    print_data()
    if org_status.agent_statuses:
        context.print_screen(STATUS, ScreenResult(org_status.agent_statuses))
    else:
        print_data(STATUS.empty)
    for issue in group_issues(org_status.issues):
        if issue.about == "tick" and org_status.is_interrupted:
            continue  # the first line says so, with more
        report_problem(context, issue, "issue")
    if warnings := len(org_status.survey.warnings):
        count = format_count(warnings, "warning")
        print_notice(f"{count} about resumes; `lemming validate` lists them", style="dim")
    for problem in org_status.misplaced:
        print_warning(one_line(str(problem), 400))


def _format_tick_position(status: OrgStatus) -> str:
    tick = status.tick
    if status.engine:
        return f"tick {tick}; running: {describe_engine(status.engine)}"
    if status.is_interrupted:
        answers = format_count(status.progress["answers_kept"], "answer")
        turns = format_count(len(status.progress["turns_left"]), "turn")
        return f"tick {tick} was interrupted: {answers} kept, {turns} left; `lemming run-once` continues it"
    return f"tick {tick} is next; no engine is running"
