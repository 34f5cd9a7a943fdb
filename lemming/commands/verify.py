"""`lemming verify`: check every file against the journals."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming import timeline
from lemming.base.errors import CorruptState
from lemming.commands.options import (
    Here,
    Newest,
    Quiet,
    argument,
    describe_engine,
    option,
    running_engine,
)
from lemming.commands.screen import bar, counted, one_line, painted, show, show_json, tell
from lemming.facts.checklist.check import CheckScope, checks_of, run
from lemming.journal.file import journal_ticks
from lemming.timeline.verify.files import Verification
from lemming.timeline.verify.journal_facts import Mismatch


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
    base = here.org
    chosen = None if ticks is None else timeline.parse_ticks(ticks, journal_ticks(base))
    if (engine := running_engine(base)) and not quiet:
        tell(f"running: {describe_engine(engine)}; what it is writing now is passed over", style="dim")
    with bar("verifying") as steps:
        result = verification(CheckScope(base, every=every, newest=newest, steps=steps), chosen)
    if here.as_json:
        _show_as_json(result)
    else:
        for finding in result.findings:
            if finding.is_error or not quiet:
                show_finding(finding)
        if result.root:
            show(result.root)
        if not quiet:
            _tell_summary(result)
    if result.errors:
        raise typer.Exit(CorruptState.exit_status)


def verification(scope: CheckScope, ticks: list[int] | None = None) -> Verification:
    """Return what the checks of `verify` find, about these ticks (default: all)."""
    found = (it for _, problems in run(checks_of("verify", scope), scope) for it in problems)
    return scope.records.verification((it for it in found if isinstance(it, Mismatch)), ticks)


def show_finding(finding: Mismatch) -> None:
    """Print one finding as a line."""
    kind = painted(finding.kind, "red" if finding.is_error else "yellow")
    severity = "error" if finding.is_error else "note"
    show(f"{severity}: tick {finding.tick}: {kind}: {finding.file}: {one_line(finding.message, 400)}")


def _show_as_json(result: Verification) -> None:
    for finding in result.findings:
        show_json("finding", finding.as_json())
    errors = len(result.errors)
    counts = {"ticks": result.ticks, "turns": result.turns, "files": result.files}
    found = {"errors": errors, "notes": len(result.findings) - errors}
    show_json("verified", {**counts, **found, "root": result.root})


def _tell_summary(result: Verification) -> None:
    errors = len(result.errors)
    notes = len(result.findings) - errors
    found = [counted(errors, "error")] * bool(errors) + [counted(notes, "note")] * bool(notes)
    checked = ", ".join(
        [counted(result.ticks, "tick"), counted(result.turns, "turn"), counted(result.files, "file")]
    )
    tell(f"{checked}: {', '.join(found) or 'everything is as the journals tell'}")
    if result.skimmed:
        older = counted(result.skimmed, "older journal")
        tell(f"{older}: checksums and what they wrote; --all checks each of their records too")
