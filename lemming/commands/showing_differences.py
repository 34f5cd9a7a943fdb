"""How entries and files that differ are shown."""

from __future__ import annotations

from lemming.commands.screen import Style, show_cut
from lemming.evals.rehearsal.compare import EntryDifference
from lemming.history.read import FileChange

_STYLES: dict[str, Style] = {"+": "green", "-": "red"}


def show_entry(entry: EntryDifference) -> None:
    """Print an entry that differs, and how."""
    show_cut(f"tick {entry.tick}  {entry.agent}  {entry.kind}  {entry.change}", "bold")
    for line in entry.diff.splitlines():
        show_cut(f"  {line}", _STYLES.get(line[:1], "plain"))


def show_file(file: FileChange) -> None:
    """Print that a file differs, and by how much."""
    lines = "not text" if file.added is None else f"+{file.added} -{file.removed}"
    show_cut(f"file  {file.path}  {file.change}  {lines}", "bold")
