"""`lemming diff`: differences between two ticks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lemming.commands.command_context import CommandContext, argument, option, require_agent_folder
from lemming.commands.terminal import (
    Style,
    format_count,
    print_columns,
    print_data,
    print_json,
    print_notice,
    print_truncated,
)
from lemming.git_history.history_reader import FileChange, StateDiff
from lemming.journal_tools.journal_history import open_past
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.integers import LAST_TICK, parse_int

if TYPE_CHECKING:
    from lemming.evals.rehearsal.org_comparison import EntryDifference

_STYLES: dict[str, Style] = {"+": "green", "-": "red", "@": "dim"}
_DIFF_HEADER = re.compile(r"(diff --git |index |--- |\+\+\+ |(new|deleted) file |(old|new) mode )")

OneAgent = Annotated[str | None, argument("[AGENT]", "Show this agent's files only.")]
OnlyStat = Annotated[bool, option("--stat", "Show file names and line counts only.")]
_STATE_HELP = 'Tick number, commit, or "now".'


def diff(
    context: CommandContext,
    old: Annotated[str, argument("A", _STATE_HELP)],
    new: Annotated[str, argument("B", _STATE_HELP)],
    agent: OneAgent = None,
    only_stat: OnlyStat = False,
) -> None:
    """Show file differences between two ticks. `now` means the files on disk.

    \b
    Examples:
      lemming diff 40 now --stat
      lemming diff 40 42 editor
    """
    for state in (old, new):
        if state != "now" and parse_int(state, le=LAST_TICK) is None and Path(state).expanduser().is_dir():
            hint = f"`git diff --no-index {old} {new}` compares two folders"
            raise UsageError(f"expected a tick, a commit or now, got a folder: {state}", hint=hint)
    base = context.org
    if agent is not None:
        require_agent_folder(base, agent)
    past = open_past(base)
    changes = past.changes_between(old, new, agent=agent or "")
    print_json("changes", {"from": old, "to": new, **changes_to_json(changes, only_stat=only_stat)})
    if past.reliability_note:
        print_notice(past.reliability_note)
    print_changes(changes, only_stat=only_stat)


def changes_to_json(changes: StateDiff, *, only_stat: bool) -> dict[str, Any]:
    """Return the changed files as JSON; with `only_stat`, without the diff itself."""
    return {key: commit_row for key, commit_row in changes.as_json().items() if not (only_stat and key == "diff")}


# --- differences in words ----------------------------------------------------------------------


def print_changes(changes: StateDiff, *, only_stat: bool) -> None:
    """Print the changed files and, unless `only_stat`, their diffs."""
    print_columns([[file.change, file.path, _format_line_counts(file)] for file in changes.files])
    if not changes.files:
        print_data("no file differs")
    elif not only_stat:
        print_data()
        for line in changes.diff.splitlines():
            print_truncated(line, "bold" if _DIFF_HEADER.match(line) else _STYLES.get(line[:1], "plain"))


def print_entry_difference(entry: EntryDifference) -> None:
    """Print a changed entry with the diff."""
    print_truncated(f"tick {entry.tick}  {entry.agent}  {entry.kind}  {entry.change}", "bold")
    for line in entry.diff.splitlines():
        print_truncated(f"  {line}", _STYLES.get(line[:1], "plain"))


def print_file_change(file: FileChange) -> None:
    """Print a changed file with line counts."""
    print_truncated(f"file  {file.path}  {file.change}  {_format_line_counts(file)}", "bold")


def summarize_files(files: list[FileChange]) -> str:
    """Return the number of changed files by kind, on a line."""
    kinds = [file.change for file in files]
    parts = [f"{kinds.count(kind)} {kind}" for kind in ("added", "modified", "deleted") if kind in kinds]
    return f"{format_count(len(files), 'file')} ({', '.join(parts)})" if parts else "no file"


def _format_line_counts(file: FileChange) -> str:
    return "not text" if file.added is None else f"+{file.added} -{file.removed}"
