"""`lemming findings`: problems in the behaviour of agents."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from lemming.commands.command_context import CommandContext, Limit, option, with_parameters_of
from lemming.commands.problem_output import report_problem
from lemming.queries.screens.findings_screen import CHECKS_BY_KIND, FINDINGS


@with_parameters_of(FINDINGS)
def findings(
    context: CommandContext,
    check: Annotated[bool, option("--check", "Exit with 1 when there are findings, for monitoring.")] = False,
    limit: Limit = None,
    **values: Any,
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
    result = FINDINGS.load(context.org, values)
    for finding in context.limit_rows(result.rows, limit):
        report_problem(context, finding, "finding", CHECKS_BY_KIND[finding.kind])
    context.print_screen(FINDINGS, replace(result, rows=()))
    raise typer.Exit(1 if check and result.rows else 0)
