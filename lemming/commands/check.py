"""`lemming check`: validate, doctor and verify in one, with one exit status; or any checks by their names."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from lemming.base.errors import NotAnOrg, Problem
from lemming.commands import doctor as machine
from lemming.commands import validate as files
from lemming.commands import verify as records
from lemming.commands.failures import tell_problem
from lemming.commands.options import Here, Newest, Quiet, argument, option
from lemming.commands.screen import bar, counted, painted, show, show_json, show_list
from lemming.commands.trust import load_settings
from lemming.facts.checklist.check import EXIT_STATUS, CheckScope, all_checks, checks_of, named_checks, run
from lemming.timeline.verify.journal_facts import Mismatch

Counts = dict[str, Any]


def check(
    here: Here,
    names: Annotated[
        list[str] | None, argument("NAME...", "Checks by their names. Default: all of the three.")
    ] = None,
    listed: Annotated[
        bool, option("--list", "Show every check, what it costs, and which command asks it.")
    ] = False,
    every: Annotated[bool, option("--all", "Look at all entries and journals.")] = False,
    newest: Newest = None,
    quiet: Quiet = False,
) -> None:
    """Check everything: the files people write, the machine, and every file against the journals.

    It is validate, doctor and verify, one after the other, and shows only what is not well. A line for each
    says what it came to. Nothing is called and nothing is written. With names it is these checks alone, of
    any command: docs/checks.md says which to use when.

    Exit status: 0 all is well, or there are warnings only; else that of the worst: 7 what verify calls an
    error, 3 what validate does, 1 what any other does.

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
        return _show_list(here)
    with bar("checking") as steps:
        scope = CheckScope(here.org, load_settings, every=every, newest=newest, steps=steps)
        found = _named(names, scope) if names else _all(scope)
    for label, rows in found.items():
        for row in rows:
            if here.as_json or names or row.problem.severity != "note":
                _show(label, row, scope, as_json=here.as_json)
    counts = {label: _counts(label, rows, scope) for label, rows in found.items()}
    if here.as_json:
        show_json("checked", counts)
    elif not quiet:
        for label, each in counts.items():
            _show_summary(label, each)
        files.tell_what_was_left(scope)
    wrong = (row.command for rows in found.values() for row in rows if row.problem.severity == "error")
    raise typer.Exit(max((EXIT_STATUS[command] for command in wrong), default=0))


class _Row(NamedTuple):
    """A problem, the check that found it, and the command in whose form it is shown."""

    command: str
    check: str
    problem: Problem


def _show_list(here: Here) -> None:
    """Show all checks; those that capabilities bring are known where there is an organisation."""
    try:
        scope = CheckScope(here.org, load_settings)
    except NotAnOrg as error:
        scope = CheckScope(error)
    rows = [
        {"name": it.name, "cost": it.cost, "looks_at": it.looks_at, "commands": commands}
        for it, commands in all_checks(scope).items()
    ]
    asked_by = {"ASKED BY": lambda row: ", ".join(row["commands"])}
    columns = {"CHECK": "name", "READS": "cost", **asked_by, "LOOKS AT": "looks_at"}
    show_list("check", rows, columns, as_json=here.as_json)


def _named(names: list[str], scope: CheckScope) -> dict[str, list[_Row]]:
    """Return what checks of these names find, each in the form of the first command that asks it."""
    chosen, found = named_checks(names, scope), dict[str, list[_Row]]()
    for it, problems in run(chosen, scope, has_errors_told=True):
        found.setdefault(it.name, []).extend(_Row(chosen[it][0], it.name, each) for each in problems)
    return found


def _all(scope: CheckScope) -> dict[str, list[_Row]]:
    """Return what validate finds, doctor without what the first has told, and verify."""
    left = [it for it in checks_of("doctor", scope) if it.name not in ("files", "config")]
    return {
        "validate": [_Row("validate", "", each) for each in files.problems_in(scope)],
        "doctor": [
            _Row("doctor", it.name, each)
            for it, problems in run(left, scope, has_errors_told=True)
            for each in problems
        ],
        "verify": [_Row("verify", "", each) for each in records.verification(scope).findings],
    }


def _show(label: str, row: _Row, scope: CheckScope, *, as_json: bool) -> None:
    problem = row.problem
    if row.command in ("doctor", "status"):
        if as_json:
            show_json("finding", {"check": label, **machine.as_finding(row.check, problem)})
        else:
            machine.show_finding(row.check, problem)
    elif as_json:
        kind = "problem" if row.command == "validate" else "finding"
        show_json(kind, {"check": label, **problem.as_json()})
    elif isinstance(problem, Mismatch):
        records.show_finding(problem)
    else:
        tell_problem(problem, scope.org)


def _counts(label: str, rows: list[_Row], scope: CheckScope) -> Counts:
    levels = [row.problem.severity for row in rows]
    others = {"validate": ["warning"], "doctor": ["warning"], "verify": ["note"]}
    counts: Counts = {f"{it}s": levels.count(it) for it in ("error", *others.get(label, ["warning", "note"]))}
    if label == "doctor":
        counts["checks"] = len(rows)
    if label == "verify":
        counts |= {"ticks": len(scope.records.told.ticks), "root": scope.records.root}
    return counts


def _show_summary(name: str, counts: Counts) -> None:
    found = [counted(counts[f"{it}s"], it) for it in ("error", "warning", "note") if counts.get(f"{it}s")]
    level = painted("fail", "red") if counts["errors"] else painted("ok  ", "green")
    root = f"; state root {counts['root']}" if counts.get("root") else ""
    show(f"{level}  {name:<8}  {', '.join(found) or 'all is well'}{root}")
