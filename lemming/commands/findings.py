"""`lemming findings`: problems in the behaviour of agents."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from lemming.commands.command_context import AnyAgentName, CommandContext, Limit, option, require_agent_folder
from lemming.commands.problem_output import report_problem
from lemming.commands.terminal import format_count, print_notice
from lemming.journal_tools.tick_ranges import parse_tick_range
from lemming.kernel.base.entry_kinds import FindingKind
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.queries.findings.finding_rules import CHECKS, apply_rules
from lemming.queries.findings.finding_scan import FindingScan, scan_ticks

KINDS = get_args(FindingKind)
_CHECKS = {check.name: check for check in CHECKS}


def findings(
    context: CommandContext,
    agent: AnyAgentName = None,
    kind: Annotated[str | None, option("--kind KIND", f"Show findings of this kind only: {', '.join(KINDS)}.")] = None,
    ticks: Annotated[
        str | None, option("--ticks A..B", "Ticks to include: 7, 3..9, 3.. or ..9. Default: the newest.")
    ] = None,
    check: Annotated[bool, option("--check", "Exit with 1 when there are findings, for monitoring.")] = False,
    limit: Limit = None,
) -> None:
    """Show problems in agent behaviour: loops, dropped requests, false claims.

    Rules over journals and outboxes produce the findings; no model is called and nothing is written.
    docs/TROUBLESHOOTING.md explains each kind. "findings" in config/org.json sets the thresholds and turns kinds off.

    \b
    Examples:
      lemming findings
      lemming findings editor --kind repeats
      lemming findings --ticks 100..200 --json | jq -r '.kind + " " + .text'
      lemming findings --check || mail -s "lemmings" me
    """
    base = context.org
    if agent is not None:
        require_agent_folder(base, agent)
    if kind is not None and kind not in KINDS:
        raise UsageError(
            f'there is no finding kind "{kind}"', hint=did_you_mean(kind, KINDS) or f"use one of {', '.join(KINDS)}"
        )
    first, last = parse_tick_range(ticks) if ticks is not None else (None, None)
    scan = scan_ticks(base, first=first, last=last)
    matches = [
        candidate
        for candidate in apply_rules(scan)
        if kind in (None, candidate.kind) and (agent is None or agent in candidate.agents)
    ]
    for finding in context.limit_rows(matches, limit):
        report_problem(context, finding, "finding", _CHECKS[finding.kind])
    if not context.as_json:
        _print_scan_scope(scan, len(matches))
    raise typer.Exit(1 if check and matches else 0)


def _print_scan_scope(scan: FindingScan, count: int) -> None:
    summary = format_count(count, "finding") if count else "no findings"
    if scan.ticks:
        last = scan.ticks[-1].tick
        ticks = f"tick {last}" if last == scan.first_tick else f"ticks {scan.first_tick} to {last}"
        print_notice(f"{summary} in {ticks} ({format_count(len(scan.turns), 'turn')})")
    else:
        print_notice(f"{summary}: no turn ran in these ticks")
    if scan.damaged:
        print_notice(
            f"not read: {format_count(len(scan.damaged), 'journal')}; `lemming verify` says why", style="yellow"
        )
