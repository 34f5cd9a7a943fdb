"""Problems on the terminal and as JSON: all commands print them by one function, in the form of their selection."""

from __future__ import annotations

import sys

from lemming.commands.command_context import CommandContext
from lemming.commands.error_reporting import print_problem
from lemming.commands.terminal import one_line, print_data, print_notice, style_text
from lemming.kernel.base.errors import NotAnOrg, Problem
from lemming.kernel.tick.validation.checks import Check
from lemming.queries.screens.checks_screen import DOCTOR, CheckedRow


def report_problem(
    context: CommandContext, problem: Problem, form: str, check: Check | None = None, label: str = ""
) -> None:
    """Print a problem found by a check; with --json, as an object with the check's `label`.

    `form`: the form in `SELECTIONS` of `lemming.queries.checks.check_registry`, or "issue" for `lemming status`.
    """
    kind = "problem" if form == "problem" else "finding"
    if form in ("mismatch", "finding") and not problem.kind:  # an error that ended the check
        form = "problem"
    row = CheckedRow(check, problem)
    facts = DOCTOR.to_json(row) if form == "level" else problem.as_json(form)
    if context.print_as_json(kind, {**({"check": label} if label else {}), **facts}):
        return
    if form == "level":
        context.print_lines(DOCTOR, [row])
    elif form == "mismatch":
        difference = style_text(problem.kind, "red" if problem.is_error else "yellow")
        location = f"{'error' if problem.is_error else 'note'}: tick {problem.tick}: {difference}: {problem.file}"
        print_data(f"{location}: {one_line(problem.message, 400)}")
    elif form == "finding":
        headline = style_text(check.title if check else problem.kind, "yellow")
        print_data(f"{headline}  {', '.join(problem.agents)}  since tick {problem.tick}")
        print_data(f"  {one_line(problem.message, 400)}")
        print_data(style_text(f"  see  {one_line(' '.join(problem.evidence), 1000)}", "dim"))
        print_data(f"  fix  {one_line(problem.hint, 400)}")
    elif form == "issue":
        print_notice(f"{style_text(problem.about, 'red', sys.stderr)}: {one_line(problem.message, 600)}")
        if problem.hint:
            print_notice(f"  fix: {one_line(problem.hint, 400)}")
    else:
        try:
            print_problem(problem, context.org)
        except NotAnOrg:
            print_problem(problem, None)
