"""`lemming check` and its parts: `validate`, `doctor` and `verify`. See docs/TROUBLESHOOTING.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from lemming.commands.command_context import (
    AnyAgentName,
    CommandContext,
    Newest,
    Quiet,
    argument,
    describe_engine,
    find_running_engine,
    option,
    require_agent_folder,
)
from lemming.commands.error_reporting import print_problem
from lemming.commands.terminal import (
    Style,
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
from lemming.queries.checks.check_registry import (
    EXIT_STATUS,
    CheckScope,
    list_checks,
    map_all_checks,
    run_checks,
    select_checks,
)
from lemming.queries.checks.health_checks import HealthIssue

if TYPE_CHECKING:
    from lemming.journal_tools.verify.journal_facts import Mismatch
    from lemming.journal_tools.verify.verification_inputs import Verification

Counts = dict[str, Any]
LEVELS = {"note": "ok", "warning": "warn", "error": "fail"}
_COLOURS: dict[str, Style] = {"note": "green", "warning": "yellow", "error": "red"}


def check(
    context: CommandContext,
    names: Annotated[list[str] | None, argument("NAME...", "Names of checks to run. Default: all.")] = None,
    listed: Annotated[bool, option("--list", "List all checks with their cost and command.")] = False,
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
        return context.print_list("check", [*_list_checks(context)], COLUMNS)
    with show_progress_bar("checking") as steps:
        scope = CheckScope(context.org, load_settings, every=every, newest=newest, steps=steps)
        results = _run_named_checks(names, scope) if names else _run_all_checks(scope)
    for label, rows in results.items():
        for row in rows:
            if context.as_json or names or row.problem.severity != "note":
                _print_problem(context, row, scope, label)
    counts = {label: _count_problems(label, rows, scope) for label, rows in results.items()}
    if context.as_json:
        print_json("checked", counts)
    elif not quiet:
        for label, summary in counts.items():
            _print_summary(label, summary)
        _print_unchecked_count(scope)
    failing_commands = (row.command for rows in results.values() for row in rows if row.problem.severity == "error")
    raise typer.Exit(max((EXIT_STATUS[command] for command in failing_commands), default=0))


class _ReportedProblem(NamedTuple):
    """A problem with the reporting check and the command that determines the format."""

    command: str
    check: str
    problem: Problem


COLUMNS = {
    "CHECK": "name", "READS": "cost", "COMMANDS": lambda check_row: ", ".join(check_row["commands"]), "CHECKS": "looks_at"
}  # fmt: skip


def _list_checks(context: CommandContext) -> Iterator[dict[str, Any]]:
    """Yield all checks; checks of capabilities appear only inside an organisation."""
    for check_row, commands in map_all_checks(_build_scope(context)).items():
        yield {"name": check_row.name, "cost": check_row.cost, "looks_at": check_row.description, "commands": commands}


def _build_scope(context: CommandContext, *, connect: bool = False) -> CheckScope:
    """Return the scope of the checks; without an organisation, the machine only."""
    try:
        return CheckScope(context.org, load_settings, connect=connect)
    except NotAnOrg as error:
        return CheckScope(error)


def _run_named_checks(names: list[str], scope: CheckScope) -> dict[str, list[_ReportedProblem]]:
    """Run checks by name; problems are formatted as by the first command of each check."""
    chosen, results = select_checks(names, scope), dict[str, list[_ReportedProblem]]()
    for check_row, problems in run_checks(chosen, scope, errors_as_problems=True):
        results.setdefault(check_row.name, []).extend(
            _ReportedProblem(chosen[check_row][0], check_row.name, problem) for problem in problems
        )
    return results


def _run_all_checks(scope: CheckScope) -> dict[str, list[_ReportedProblem]]:
    """Run validate, doctor without the checks of validate, and verify."""
    files, remaining = _find_file_problems(scope), list_checks("doctor", scope)
    if scope.config is None:  # told by now, and doctor ends with it
        remaining = remaining[: [check_row.name for check_row in remaining].index("config")]
    remaining = [check_row for check_row in remaining if check_row.name not in ("files", "config")]
    return {
        "validate": files,
        "doctor": [
            _ReportedProblem("doctor", check_row.name, problem)
            for check_row, problems in run_checks(remaining, scope, errors_as_problems=True)
            for problem in problems
        ],
        "verify": [_ReportedProblem("verify", "", problem) for problem in _run_verification(scope).findings],
    }


def _print_problem(context: CommandContext, report: _ReportedProblem, scope: CheckScope, label: str = "") -> None:
    """Print a problem in the format of the command; with --json, add the check's name."""
    problem, label_facts = report.problem, {"check": label} if label else {}
    if report.command in ("doctor", "status"):
        subject = f"{problem.about}: " if isinstance(problem, HealthIssue) and problem.about != report.check else ""
        level, text = LEVELS[problem.severity], f"{subject}{problem.message}"
        facts = {"level": level, "about": report.check, "text": text, "fix": problem.hint if level != "ok" else ""}
        if context.print_as_json("finding", {**label_facts, **facts}):
            return
        print_data(f"{style_text(f'{level:<4}', _COLOURS[problem.severity])}  {report.check:<11} {one_line(text, 400)}")
        if problem.hint and problem.severity != "note":
            print_data(f"{'':<17} fix: {one_line(problem.hint, 400)}")
    elif context.print_as_json(
        "problem" if report.command == "validate" else "finding", {**label_facts, **problem.as_json()}
    ):
        return
    elif report.command == "verify" and isinstance(problem, _import_mismatch_type()):
        kind = style_text(problem.kind, "red" if problem.is_error else "yellow")
        location = f"{'error' if problem.is_error else 'note'}: tick {problem.tick}: {kind}: {problem.file}"
        print_data(f"{location}: {one_line(problem.message, 400)}")
    else:
        print_problem(problem, scope.org)


def _import_mismatch_type() -> type[Mismatch]:
    """Import `Mismatch` on demand: its module loads the turn machinery."""
    from lemming.journal_tools.verify.journal_facts import Mismatch  # with it comes all that takes turns

    return Mismatch


def _count_problems(label: str, rows: list[_ReportedProblem], scope: CheckScope) -> Counts:
    """Count the problems of a command by severity."""
    levels = [row.problem.severity for row in rows]
    other_levels = {"validate": ["warning"], "doctor": ["warning"], "verify": ["note"]}
    counts: Counts = {
        f"{level}s": levels.count(level) for level in ("error", *other_levels.get(label, ["warning", "note"]))
    }
    if label == "doctor":
        counts["checks"] = len(rows)
    if label == "verify":
        counts |= {"ticks": len(scope.records.journal_facts.ticks), "root": scope.records.state_root}
    return counts


def _print_summary(name: str, counts: Counts) -> None:
    """Print the summary line of a command."""
    parts = [format_count(counts[f"{kind}s"], kind) for kind in ("error", "warning", "note") if counts.get(f"{kind}s")]
    level = style_text("fail", "red") if counts["errors"] else style_text("ok  ", "green")
    root = f"; state root {counts['root']}" if counts.get("root") else ""
    print_data(f"{level}  {name:<8}  {', '.join(parts) or 'all is well'}{root}")


def validate(
    context: CommandContext,
    agent: AnyAgentName = None,
    every: Annotated[bool, option("--all", "Check every entry.")] = False,
    newest: Newest = None,
) -> None:
    """Validate resumes, settings, entries, memories and evals.

    Opens the newest 3,000 entries, spread evenly over the outboxes and never fewer than 3 of each. If entries
    remain, the last line gives their number. For open requests, validate reports missing permissions on the
    way to the holder and back. Exit status 3: there are errors; 0: no errors (warnings do not count).

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
        scope = CheckScope(base, load_settings, agent=agent, newest=newest, every=every, steps=steps)
        reports = _find_file_problems(scope)
    for report in reports:
        _print_problem(context, report, scope)
    errors = sum(report.problem.severity == "error" for report in reports)
    if not context.as_json:
        warnings = len(reports) - errors
        parts = [format_count(errors, "error")] * bool(errors) + [format_count(warnings, "warning")] * bool(warnings)
        print_notice(", ".join(parts) or "no problems")
        _print_unchecked_count(scope)
        print_notice("next: fix these, then run `lemming validate` again" if errors else "next: `lemming run-once`")
    if errors:
        raise typer.Exit(ConfigError.exit_status)


def _find_file_problems(scope: CheckScope) -> list[_ReportedProblem]:
    """Find problems in hand-written files: settings first, then each agent's files."""
    reports = [
        _ReportedProblem("validate", "", problem)
        for _, problems in run_checks(list_checks("validate", scope), scope)
        for problem in problems
    ]
    return sorted(reports, key=lambda row: row.problem.file.partition("agents/")[2].partition("/")[0])


def _print_unchecked_count(scope: CheckScope) -> None:
    """Print the number of unopened entries and the option to open all entries."""
    if scope.unopened_entries:
        count_text = format_count(scope.unopened_entries, "older entry", "older entries")
        print_notice(
            f"not checked: {count_text} (all but the newest {scope.entries_per_outbox} of each outbox); --all checks them"
        )


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
    scope, levels = _build_scope(context, connect=connect), []
    for check_row, problems in run_checks(list_checks("doctor", scope), scope, errors_as_problems=True):
        for problem in problems:
            levels.append(problem.severity)
            _print_problem(context, _ReportedProblem("doctor", check_row.name, problem), scope)
    failed = levels.count("error")
    if not context.as_json:
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
    if (engine := find_running_engine(base)) and not quiet:
        print_notice(f"running: {describe_engine(engine)}; files that it is writing now are skipped", style="dim")
    with show_progress_bar("verifying") as steps:
        scope = CheckScope(base, every=every, newest=newest, steps=steps)
        result = _run_verification(scope, selected_ticks)
    for finding in result.findings:
        if context.as_json or finding.is_error or not quiet:
            _print_problem(context, _ReportedProblem("verify", "", finding), scope)
    errors = len(result.errors)
    notes = len(result.findings) - errors
    counts = {"ticks": result.ticks, "turns": result.turns, "files": result.files}
    if not context.print_as_json("verified", {**counts, "errors": errors, "notes": notes, "root": result.root}):
        if result.root:
            print_data(result.root)
        if not quiet:
            _print_verification_summary(result, errors, notes)
    if result.errors:
        raise typer.Exit(CorruptState.exit_status)


def _run_verification(scope: CheckScope, ticks: list[int] | None = None) -> Verification:
    """Run the checks of `verify` on the given ticks (default: all)."""
    problem_list = (problem for _, problems in run_checks(list_checks("verify", scope), scope) for problem in problems)
    return scope.records.build_report(
        (problem for problem in problem_list if isinstance(problem, _import_mismatch_type())), ticks
    )


def _print_verification_summary(result: Verification, errors: int, notes: int) -> None:
    parts = [format_count(errors, "error")] * bool(errors) + [format_count(notes, "note")] * bool(notes)
    counts = ((result.ticks, "tick"), (result.turns, "turn"), (result.files, "file"))
    checked = ", ".join(format_count(number, noun) for number, noun in counts)
    print_notice(f"{checked}: {', '.join(parts) or 'all files match the journals'}")
    if result.skimmed:
        journal_count = format_count(result.skimmed, "older journal")
        print_notice(f"{journal_count}: only checksums and written files were checked; --all checks each record")
