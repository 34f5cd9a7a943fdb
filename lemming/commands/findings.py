"""`lemming findings`: problems in the behaviour of agents."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from lemming.commands.command_context import AnyAgentName, CommandContext, Limit, option
from lemming.commands.problem_output import report_problem
from lemming.queries.screens.findings_screen import CHECKS_BY_KIND, FINDINGS, KINDS, list_findings


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
    result = list_findings(context.org, agent, kind, ticks)
    for finding in context.limit_rows(result.rows, limit):
        report_problem(context, finding, "finding", CHECKS_BY_KIND[finding.kind])
    context.print_screen(FINDINGS, replace(result, rows=()))
    raise typer.Exit(1 if check and result.rows else 0)
