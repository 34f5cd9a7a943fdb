"""`lemming check`, and the selections of it: `validate`, `doctor` and `verify`. docs/checks.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from lemming.commands.failures import tell_problem
from lemming.commands.options import (
    AnyAgentName,
    Here,
    Newest,
    Quiet,
    argument,
    describe_engine,
    option,
    require_folder,
    running_engine,
)
from lemming.commands.screen import Style, bar, counted, one_line, painted, show, show_json, tell
from lemming.commands.trust import load_settings
from lemming.facts.checklist.check import EXIT_STATUS, CheckScope, all_checks, checks_of, named_checks, run
from lemming.facts.checklist.standing import Trouble
from lemming.kernel.base.errors import ConfigError, CorruptState, NotAnOrg, Problem

if TYPE_CHECKING:
    from lemming.timeline.verify.files import Verification
    from lemming.timeline.verify.journal_facts import Mismatch

Counts = dict[str, Any]
LEVELS = {"note": "ok", "warning": "warn", "error": "fail"}
_COLOURS: dict[str, Style] = {"note": "green", "warning": "yellow", "error": "red"}


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
        return here.lists("check", [*_listed(here)], COLUMNS)
    with bar("checking") as steps:
        scope = CheckScope(here.org, load_settings, every=every, newest=newest, steps=steps)
        found = _named(names, scope) if names else _all(scope)
    for label, rows in found.items():
        for row in rows:
            if here.as_json or names or row.problem.severity != "note":
                _show(here, row, scope, label)
    counts = {label: _counts(label, rows, scope) for label, rows in found.items()}
    if here.as_json:
        show_json("checked", counts)
    elif not quiet:
        for label, each in counts.items():
            _show_summary(label, each)
        _tell_what_was_left(scope)
    wrong = (row.command for rows in found.values() for row in rows if row.problem.severity == "error")
    raise typer.Exit(max((EXIT_STATUS[command] for command in wrong), default=0))


class _Found(NamedTuple):
    """A problem, the check that found it, and the command in whose form it is shown."""

    command: str
    check: str
    problem: Problem


COLUMNS = {
    "CHECK": "name", "READS": "cost", "ASKED BY": lambda it: ", ".join(it["commands"]), "LOOKS AT": "looks_at"
}  # fmt: skip


def _listed(here: Here) -> Iterator[dict[str, Any]]:
    """Yield all checks; those that capabilities bring are known where there is an organisation."""
    for it, commands in all_checks(_scope_of(here)).items():
        yield {"name": it.name, "cost": it.cost, "looks_at": it.looks_at, "commands": commands}


def _scope_of(here: Here, *, connect: bool = False) -> CheckScope:
    """Return what is looked at, also where there is no organisation: then the machine."""
    try:
        return CheckScope(here.org, load_settings, connect=connect)
    except NotAnOrg as error:
        return CheckScope(error)


def _named(names: list[str], scope: CheckScope) -> dict[str, list[_Found]]:
    """Return what checks of these names find, each in the form of the first command that asks it."""
    chosen, found = named_checks(names, scope), dict[str, list[_Found]]()
    for it, problems in run(chosen, scope, has_errors_told=True):
        found.setdefault(it.name, []).extend(_Found(chosen[it][0], it.name, each) for each in problems)
    return found


def _all(scope: CheckScope) -> dict[str, list[_Found]]:
    """Return what validate finds, doctor without what the first has told, and verify."""
    files, left = _files(scope), checks_of("doctor", scope)
    if scope.config is None:  # told by now, and doctor ends with it
        left = left[: [it.name for it in left].index("config")]
    left = [it for it in left if it.name not in ("files", "config")]
    return {
        "validate": files,
        "doctor": [
            _Found("doctor", it.name, each)
            for it, problems in run(left, scope, has_errors_told=True)
            for each in problems
        ],
        "verify": [_Found("verify", "", each) for each in _verification(scope).findings],
    }


def _show(here: Here, found: _Found, scope: CheckScope, label: str = "") -> None:
    """Print a problem in the form of its command; with --json, under the label of what found it."""
    problem, of = found.problem, {"check": label} if label else {}
    if found.command in ("doctor", "status"):
        place = f"{problem.about}: " if isinstance(problem, Trouble) and problem.about != found.check else ""
        level, text = LEVELS[problem.severity], f"{place}{problem.message}"
        plain = {
            "level": level,
            "about": found.check,
            "text": text,
            "fix": problem.hint if level != "ok" else "",
        }
        if here.shows("finding", {**of, **plain}):
            return
        show(f"{painted(f'{level:<4}', _COLOURS[problem.severity])}  {found.check:<11} {one_line(text, 400)}")
        if problem.hint and problem.severity != "note":
            show(f"{'':<17} fix: {one_line(problem.hint, 400)}")
    elif here.shows("problem" if found.command == "validate" else "finding", {**of, **problem.as_json()}):
        return
    elif found.command == "verify" and isinstance(problem, _mismatch()):
        kind = painted(problem.kind, "red" if problem.is_error else "yellow")
        where = f"{'error' if problem.is_error else 'note'}: tick {problem.tick}: {kind}: {problem.file}"
        show(f"{where}: {one_line(problem.message, 400)}")
    else:
        tell_problem(problem, scope.org)


def _mismatch() -> type[Mismatch]:
    from lemming.timeline.verify.journal_facts import Mismatch  # with it comes all that takes turns

    return Mismatch


def _counts(label: str, rows: list[_Found], scope: CheckScope) -> Counts:
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


def validate(
    here: Here,
    agent: AnyAgentName = None,
    every: Annotated[bool, option("--all", "Open every entry, however many there are.")] = False,
    newest: Newest = None,
) -> None:
    """Check resumes, settings, `tick.json`, outboxes, memories and evals, and say all that is wrong.

    Of entries the newest 3,000 are opened, the same number of each outbox, but never fewer than 3; if that is
    not all, the last line says so. Of requests that are open it says which permission is missing for them to
    reach their holder, and for the answer to come back. Exit status 3 says that there are errors; warnings
    alone are 0.

    \b
    Examples:
      lemming validate
      lemming validate editor
      lemming validate --all
      lemming validate --json | jq -r '.file + ":" + (.line | tostring)'
    """
    base = here.org
    if agent is not None:
        require_folder(base, agent)
    with bar("validating") as steps:
        scope = CheckScope(base, load_settings, agent=agent, newest=newest, every=every, steps=steps)
        found = _files(scope)
    for each in found:
        _show(here, each, scope)
    errors = sum(it.problem.severity == "error" for it in found)
    if not here.as_json:
        warnings = len(found) - errors
        said = [counted(errors, "error")] * bool(errors) + [counted(warnings, "warning")] * bool(warnings)
        tell(", ".join(said) or "everything is in order")
        _tell_what_was_left(scope)
        tell("next: mend these, and `lemming validate` again" if errors else "next: `lemming run-once`")
    if errors:
        raise typer.Exit(ConfigError.exit_status)


def _files(scope: CheckScope) -> list[_Found]:
    """Return what is wrong with the files people write: settings first, then each agent's."""
    found = [
        _Found("validate", "", it)
        for _, problems in run(checks_of("validate", scope), scope)
        for it in problems
    ]
    return sorted(
        found,
        key=lambda it: [*it.problem.file.split("/"), ""][1] if it.problem.file.startswith("agents/") else "",
    )


def _tell_what_was_left(scope: CheckScope) -> None:
    """Say how many entries were not opened, and how they are."""
    if scope.entries_left:
        older = counted(scope.entries_left, "older entry", "older entries")
        tell(f"not opened: {older} (all but the newest {scope.entries_of_each} of each outbox); --all does")


def doctor(
    here: Here,
    connect: Annotated[
        bool, option("--connect", "Connect to the cluster at executor_address, which may run code here.")
    ] = False,
) -> None:
    """Check this machine and this organisation, and say how to fix what is not well.

    No model is called, nothing is repaired, no secret is printed, and no connection is made without
    --connect. Exit status 1 says that something failed.

    \b
    Example:
      lemming doctor --json | jq -r 'select(.level != "ok") | .about + ": " + .fix'
    """
    scope, levels = _scope_of(here, connect=connect), []
    for it, problems in run(checks_of("doctor", scope), scope, has_errors_told=True):
        for problem in problems:
            levels.append(problem.severity)
            _show(here, _Found("doctor", it.name, problem), scope)
    failed = levels.count("error")
    if not here.as_json:
        warned = counted(levels.count("warning"), "warning")
        show(f"{counted(len(levels), 'check')}: {failed} failed, {warned}")
    if failed:
        raise typer.Exit(1)


def verify(
    here: Here,
    ticks: Annotated[
        str | None, argument("TICKS", "7, or 3..9: only what these ticks wrote. Default: all.")
    ] = None,
    every: Annotated[bool, option("--all", "Take every journal apart, however many there are.")] = False,
    newest: Newest = None,
    quiet: Quiet = False,
) -> None:
    """Check every file against the journals, and print the state root.

    The journals' own checksums, each file against the last turn that wrote it, the outboxes, the ledgers
    and the tick counter. The newest 100 journals are also taken apart, record by record; --all does that
    with all of them, and takes half as long again. Where there are many ticks all of it takes a while: with
    --newest only so many journals are looked at, and what their turns wrote, and there is no root.

    What is wrong comes first, oldest tick first. A memory, a resume or a workspace file that a person has
    edited is a note; what is damaged, gone or not accounted for is an error.

    The state root is one SHA-256 over the organisation's files, without logs: two organisations with the same
    root hold the same.

    Exit status 7 says that there are errors.

    \b
    Examples:
      lemming verify
      lemming verify 3..9
      lemming verify --newest 100
      lemming verify --json | jq -r 'select(.type == "finding") | .file'
    """
    from lemming.kernel.journal.file import journal_ticks
    from lemming.timeline.tick_spans import parse_ticks

    base = here.org
    chosen = None if ticks is None else parse_ticks(ticks, journal_ticks(base))
    if (engine := running_engine(base)) and not quiet:
        tell(f"running: {describe_engine(engine)}; what it is writing now is passed over", style="dim")
    with bar("verifying") as steps:
        scope = CheckScope(base, every=every, newest=newest, steps=steps)
        result = _verification(scope, chosen)
    for finding in result.findings:
        if here.as_json or finding.is_error or not quiet:
            _show(here, _Found("verify", "", finding), scope)
    errors = len(result.errors)
    notes = len(result.findings) - errors
    counts = {"ticks": result.ticks, "turns": result.turns, "files": result.files}
    if not here.shows("verified", {**counts, "errors": errors, "notes": notes, "root": result.root}):
        if result.root:
            show(result.root)
        if not quiet:
            _tell_summary(result, errors, notes)
    if result.errors:
        raise typer.Exit(CorruptState.exit_status)


def _verification(scope: CheckScope, ticks: list[int] | None = None) -> Verification:
    """Return what the checks of `verify` find, about these ticks (default: all)."""
    found = (it for _, problems in run(checks_of("verify", scope), scope) for it in problems)
    return scope.records.verification((it for it in found if isinstance(it, _mismatch())), ticks)


def _tell_summary(result: Verification, errors: int, notes: int) -> None:
    found = [counted(errors, "error")] * bool(errors) + [counted(notes, "note")] * bool(notes)
    checked = ", ".join(
        [counted(result.ticks, "tick"), counted(result.turns, "turn"), counted(result.files, "file")]
    )
    tell(f"{checked}: {', '.join(found) or 'everything is as the journals tell'}")
    if result.skimmed:
        older = counted(result.skimmed, "older journal")
        tell(f"{older}: checksums and what they wrote; --all checks each of their records too")
