"""`lemming check` and its parts, `validate`, `doctor` and `verify`, and `lemming findings`: docs/TROUBLESHOOTING.md."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from lemming.commands.command_context import (
    AnyAgentName,
    CommandContext,
    Limit,
    Newest,
    Quiet,
    argument,
    describe_engine,
    find_running_engine,
    option,
    require_agent_folder,
    with_parameters_of,
)
from lemming.commands.error_reporting import print_problem
from lemming.commands.terminal import (
    format_count,
    one_line,
    print_data,
    print_json,
    print_notice,
    show_progress_bar,
    style_text,
)
from lemming.commands.trust import load_settings
from lemming.kernel.base.errors import ConfigError, CorruptState, NotAnOrg, Problem
from lemming.kernel.tick.validation.checks import Check
from lemming.queries.checks.check_registry import (
    SELECTIONS,
    CheckRun,
    list_checks,
    map_all_checks,
    run_checks,
    select_checks,
)
from lemming.queries.screens.checks_screen import CHECKS, DOCTOR, CheckedRow, check_machine
from lemming.queries.screens.findings_screen import CHECKS_BY_KIND, FINDINGS
from lemming.queries.screens.screen import ScreenResult

if TYPE_CHECKING:
    from lemming.journal_tools.verify.file_verification import Verification


def check(
    context: CommandContext,
    names: Annotated[list[str] | None, argument("NAME...", "Names of checks to run. Default: all.")] = None,
    listed: Annotated[bool, option("--list", "List all checks with their cost, scope and command.")] = False,
    every: Annotated[bool, option("--all", "Check all entries and journals.")] = False,
    newest: Newest = None,
    quiet: Quiet = False,
) -> None:
    """Run all checks: validate, doctor and verify.

    The checks cover hand-written files, the machine, and every file against the journals. Only problems are
    shown, with a summary line per command. No model is called and nothing is written. With names, only the
    named checks run, from any command; docs/TROUBLESHOOTING.md tells when to use each.

    Exit status: 0 without errors (warnings do not count); otherwise the worst of: 7 errors of verify, 3
    errors of validate, 1 other errors.

    \b
    Examples:
      lemming check
      lemming check --newest 100
      lemming check --quiet && lemming run-once
      lemming check resumes gates
      lemming check --list
      lemming check --json | jq 'select(.type == "checked")'
    """
    if listed:
        return context.print_screen(CHECKS, ScreenResult([*map_all_checks(_make_run(context)).items()]))
    with show_progress_bar("checking") as steps:
        run = CheckRun(context.org, load_settings, every=every, newest=newest, uses_all_cores=True, steps=steps)
        results = _run_named_checks(names, run) if names else _run_all_checks(run)
    for label, rows in results.items():
        for row in rows:
            if context.as_json or names or row.problem.severity != "note":
                report_problem(context, row.problem, SELECTIONS[row.command].form, row.check, label)
    counts = {label: _count_problems(label, rows, run) for label, rows in results.items()}
    print_json("checked", counts)
    if not quiet:
        for label, summary in counts.items():
            text = _join_counts(**{kind: summary.get(f"{kind}s", 0) for kind in ("error", "warning", "note")})
            level = style_text("fail", "red") if summary["errors"] else style_text("ok  ", "green")
            root = f"; state root {summary['root']}" if summary.get("root") else ""
            print_data(f"{level}  {label:<8}  {text or 'all is well'}{root}")
        _print_unchecked_count(run)
    failing_commands = (row.command for rows in results.values() for row in rows if row.problem.is_error)
    raise typer.Exit(max((SELECTIONS[command].exit_status for command in failing_commands), default=0))


class _ReportedProblem(NamedTuple):
    """A problem with the reporting check and the command that determines the format."""

    command: str
    check: Check | None
    problem: Problem


def _make_run(context: CommandContext, *, connect: bool = False) -> CheckRun:
    """Return the run of the checks; without an organisation, the machine only."""
    try:
        return CheckRun(context.org, load_settings, connect=connect)
    except NotAnOrg as error:
        return CheckRun(error)


def _run_named_checks(names: list[str], run: CheckRun) -> dict[str, list[_ReportedProblem]]:
    """Run checks by name; problems are formatted as by the first command of each check."""
    chosen, results = select_checks(names, run), dict[str, list[_ReportedProblem]]()
    for check_item, problems in run_checks(chosen, run, errors_as_problems=True):
        results.setdefault(check_item.name, []).extend(
            _ReportedProblem(chosen[check_item][0], check_item, problem) for problem in problems
        )
    return results


def _run_all_checks(run: CheckRun) -> dict[str, list[_ReportedProblem]]:
    """Run validate, doctor without the checks of validate, and verify."""
    files, remaining = _find_file_problems(run), list_checks("doctor", run)
    if run.config is None:  # told by now, and doctor ends with it
        remaining = remaining[: [check_item.name for check_item in remaining].index("config")]
    remaining = [check_item for check_item in remaining if check_item.name not in ("files", "config")]
    return {
        "validate": files,
        "doctor": [
            _ReportedProblem("doctor", check_item, problem)
            for check_item, problems in run_checks(remaining, run, errors_as_problems=True)
            for problem in problems
        ],
        "verify": [_ReportedProblem("verify", None, problem) for problem in _run_verification(run).findings],
    }


def _count_problems(label: str, rows: list[_ReportedProblem], run: CheckRun) -> dict[str, Any]:
    levels = [row.problem.severity for row in rows]
    other_levels = {"validate": ["warning"], "doctor": ["warning"], "verify": ["note"]}
    shown_levels = ("error", *other_levels.get(label, ["warning", "note"]))
    counts: dict[str, Any] = {f"{level}s": levels.count(level) for level in shown_levels}
    if label == "doctor":
        counts["checks"] = len(rows)
    if label == "verify":
        counts |= {"ticks": len(run.records.journal_facts.ticks), "root": run.records.state_root}
    return counts


def validate(
    context: CommandContext,
    agent: AnyAgentName = None,
    every: Annotated[bool, option("--all", "Check every entry.")] = False,
    newest: Newest = None,
) -> None:
    """Validate resumes, settings, entries, memories and evals.

    Opens the newest 3,000 entries, spread evenly over the outboxes and never fewer than 3 of each. If entries
    remain, the last line gives their number. For open requests, validate reports missing permissions on the
    way to the assignee and back. Exit status 3: there are errors; 0: no errors (warnings do not count).

    \b
    Examples:
      lemming validate
      lemming validate editor
      lemming validate --all
      lemming validate --json | jq -r '.file + ":" + (.line | tostring)'
    """
    base = context.org
    if agent is not None:
        require_agent_folder(base, agent)
    with show_progress_bar("validating") as steps:
        run = CheckRun(base, load_settings, agent=agent, newest=newest, every=every, steps=steps)
        reports = _find_file_problems(run)
    for report in reports:
        report_problem(context, report.problem, "problem")
    errors = sum(report.problem.is_error for report in reports)
    print_notice(_join_counts(error=errors, warning=len(reports) - errors) or "no problems")
    _print_unchecked_count(run)
    print_notice("next: fix these, then run `lemming validate` again" if errors else "next: `lemming run-once`")
    if errors:
        raise typer.Exit(ConfigError.exit_status)


def _find_file_problems(run: CheckRun) -> list[_ReportedProblem]:
    """Find problems in hand-written files: settings first, then each agent's files."""
    results = run_checks(list_checks("validate", run), run)
    reports = [_ReportedProblem("validate", None, problem) for _, problems in results for problem in problems]
    return sorted(reports, key=lambda row: row.problem.file.partition("agents/")[2].partition("/")[0])


def _join_counts(**counts: int) -> str:
    return ", ".join(format_count(number, noun) for noun, number in counts.items() if number)


def _print_unchecked_count(run: CheckRun) -> None:
    """Print the number of unopened entries and the option to open all entries."""
    if run.unopened_entries:
        count_text = format_count(run.unopened_entries, "older entry", "older entries")
        omission = f"all but the newest {run.entries_per_outbox} of each outbox"
        print_notice(f"not checked: {count_text} ({omission}); --all checks them")


def doctor(
    context: CommandContext,
    connect: Annotated[
        bool, option("--connect", "Connect to the cluster at executor_address, which may run code here.")
    ] = False,
) -> None:
    """Check this machine and installation, and suggest fixes.

    No model is called, nothing is repaired, no secret is printed, and no connection is made without
    --connect. Exit status 1:
    a check failed.

    \b
    Example:
      lemming doctor --json | jq -r 'select(.level != "ok") | .about + ": " + .fix'
    """
    levels = []
    for row in check_machine(_make_run(context, connect=connect), is_grouped=not context.as_json):
        levels.append(row.problem.severity)
        context.print_lines(DOCTOR, [row])
    failed = levels.count("error")
    warned = format_count(levels.count("warning"), "warning")
    print_data(f"{format_count(len(levels), 'check')}: {failed} failed, {warned}")
    if failed:
        raise typer.Exit(1)


def verify(
    context: CommandContext,
    ticks: Annotated[
        str | None, argument("TICKS", "Verify only files written in these ticks: 7 or 3..9. Default: all.")
    ] = None,
    every: Annotated[bool, option("--all", "Parse every journal in full.")] = False,
    newest: Newest = None,
    quiet: Quiet = False,
) -> None:
    """Verify every file against the journals and print the state root.

    Verifies the journals' own checksums, each file against the last turn that wrote the file, the outboxes,
    the ledgers and the tick counter. The newest 100 journals are also parsed record by record; --all parses
    every journal and takes half as long again. Use --newest in an organisation with many ticks: only the
    newest N journals and the files of their turns are verified, and no root is printed.

    Problems come first, oldest tick first. A memory, a resume or a workspace file edited by a person is a
    note; a damaged, missing or unexplained file is an error.

    The state root is one SHA-256 over the organisation's files, without logs: two organisations with the same
    root have the same content.

    Exit status 7: there are errors.

    \b
    Examples:
      lemming verify
      lemming verify 3..9
      lemming verify --newest 100
      lemming verify --json | jq -r 'select(.type == "finding") | .file'
    """
    from lemming.journal_tools.tick_ranges import select_ticks
    from lemming.kernel.journal.journal_file import journal_ticks

    base = context.org
    selected_ticks = None if ticks is None else select_ticks(ticks, journal_ticks(base))
    if engine := find_running_engine(base):
        print_notice(f"running: {describe_engine(engine)}; files that it is writing now are skipped", style="dim")
    with show_progress_bar("verifying") as steps:
        run = CheckRun(base, every=every, newest=newest, uses_all_cores=True, steps=steps)
        result = _run_verification(run, selected_ticks)
    for finding in result.findings:
        if context.as_json or finding.is_error or not quiet:
            report_problem(context, finding, "mismatch")
    errors = len(result.errors)
    notes = len(result.findings) - errors
    counts = {"ticks": result.ticks, "turns": result.turns, "files": result.files}
    print_json("verified", {**counts, "errors": errors, "notes": notes, "root": result.root})
    if result.root:
        print_data(result.root)
    counted = ((result.ticks, "tick"), (result.turns, "turn"), (result.files, "file"))
    checked = ", ".join(format_count(number, noun) for number, noun in counted)
    print_notice(f"{checked}: {_join_counts(error=errors, note=notes) or 'all files match the journals'}")
    if result.skimmed:
        journal_count = format_count(result.skimmed, "older journal")
        print_notice(f"{journal_count}: only checksums and written files were checked; --all checks each record")
    if result.errors:
        raise typer.Exit(CorruptState.exit_status)


def _run_verification(run: CheckRun, ticks: list[int] | None = None) -> Verification:
    """Run the checks of `verify` on the given ticks (default: all)."""
    mismatches = (problem for _, problems in run_checks(list_checks("verify", run), run) for problem in problems)
    return run.records.build_report(mismatches, ticks)


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
