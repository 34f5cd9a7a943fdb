"""`lemming check`: validate, doctor and verify in one, with one exit status."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from lemming.base.errors import ConfigError, CorruptState
from lemming.commands import doctor as machine
from lemming.commands import validate as files
from lemming.commands import verify as records
from lemming.commands.failures import tell_problem
from lemming.commands.options import AsJson, Quiet
from lemming.commands.org import find_org
from lemming.commands.screen import counted, painted, show, show_json
from lemming.org.organisation import Organisation
from lemming.timeline.verify.files import Verification
from lemming.timeline.verify.files import verify as verify_org

Counts = dict[str, Any]


def check(ctx: typer.Context, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Check everything: the files people write, the machine, and every file against the journals.

    It is validate, doctor and verify, one after the other, and shows only what is not well. A line for each
    says what it came to. Nothing is called and nothing is written.

    Exit status: 0 all is well, or there are warnings only; else that of the worst: 7 what verify calls an
    error, 3 what validate does, 1 what doctor does.

    \b
    Examples:
      lemming check
      lemming check --quiet && lemming run-once
      lemming check --json | jq 'select(.type == "checked")'
    """
    base = find_org(ctx)
    counts = {
        "validate": _files(base, as_json=as_json),
        "doctor": _machine(ctx, as_json=as_json),
        "verify": _records(base, as_json=as_json),
    }
    if as_json:
        show_json("checked", counts)
    elif not quiet:
        for name, each in counts.items():
            _show_summary(name, each)
    statuses = {"verify": CorruptState.exit_status, "validate": ConfigError.exit_status, "doctor": 1}
    worst = next((status for name, status in statuses.items() if counts[name]["errors"]), 0)
    raise typer.Exit(worst)


def _files(base: Organisation, *, as_json: bool) -> Counts:
    problems = files.problems_in(base)
    for problem in problems:
        if as_json:
            show_json("problem", {"check": "validate", **problem.as_json()})
        else:
            tell_problem(problem, base)
    errors = sum(problem.severity == "error" for problem in problems)
    return {"errors": errors, "warnings": len(problems) - errors}


def _machine(ctx: typer.Context, *, as_json: bool) -> Counts:
    """Look at the machine; what is wrong with files has been told."""
    found = [finding for finding in machine.look(ctx) if finding.about not in ("files", "config")]
    for finding in found:
        if as_json:
            show_json("finding", {"check": "doctor", **asdict(finding)})
        elif finding.level != "ok":
            machine.show_finding(finding)
    levels = [finding.level for finding in found]
    return {"checks": len(levels), "errors": levels.count("fail"), "warnings": levels.count("warn")}


def _records(base: Organisation, *, as_json: bool) -> Counts:
    result: Verification = verify_org(base, newest=records.TAKEN_APART)
    for finding in result.findings:
        if as_json:
            show_json("finding", {"check": "verify", **finding.as_json()})
        elif finding.is_error:
            records.show_finding(finding)
    errors = len(result.errors)
    notes = len(result.findings) - errors
    return {"errors": errors, "notes": notes, "ticks": result.ticks, "root": result.root}


def _show_summary(name: str, counts: Counts) -> None:
    nouns = {"errors": "error", "warnings": "warning", "notes": "note"}
    found = [counted(counts[key], noun) for key, noun in nouns.items() if counts.get(key)]
    level = painted("fail", "red") if counts["errors"] else painted("ok  ", "green")
    root = f"; state root {counts['root']}" if "root" in counts else ""
    show(f"{level}  {name:<8}  {', '.join(found) or 'all is well'}{root}")
