"""How changes of files are shown, and the parameters of the commands that show or use past states."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from lemming.commands.options import argument, option
from lemming.commands.screen import Style, counted, show, show_columns, show_cut
from lemming.history.read import Changes, FileChange

if TYPE_CHECKING:
    from lemming.evals.rehearsal.compare import EntryDifference

_STYLES: dict[str, Style] = {"+": "green", "-": "red", "@": "dim"}
_HEAD = re.compile(r"(diff --git |index |--- |\+\+\+ |(new|deleted) file |(old|new) mode )")

OneAgent = Annotated[str | None, argument("[AGENT]", "Only this agent's files.", of_agents=True)]
OnlyStat = Annotated[bool, option("--stat", "Only the files and how many lines, no text.")]


def show_changes(changes: Changes, *, only_stat: bool) -> None:
    """Print the files that changed and, unless `only_stat`, how."""
    show_columns([[file.change, file.path, _lines(file)] for file in changes.files])
    if not changes.files:
        show("no file differs")
    elif not only_stat:
        show()
        for line in changes.diff.splitlines():
            show_cut(line, "bold" if _HEAD.match(line) else _STYLES.get(line[:1], "plain"))


def show_entry(entry: EntryDifference) -> None:
    """Print an entry that differs, and how."""
    show_cut(f"tick {entry.tick}  {entry.agent}  {entry.kind}  {entry.change}", "bold")
    for line in entry.diff.splitlines():
        show_cut(f"  {line}", _STYLES.get(line[:1], "plain"))


def show_file(file: FileChange) -> None:
    """Print that a file differs, and by how much."""
    show_cut(f"file  {file.path}  {file.change}  {_lines(file)}", "bold")


def files_in_short(files: list[FileChange]) -> str:
    """Return in one line how many files changed, by kind."""
    kinds = [file.change for file in files]
    parts = [f"{kinds.count(kind)} {kind}" for kind in ("added", "modified", "deleted") if kind in kinds]
    return f"{counted(len(files), 'file')} ({', '.join(parts)})" if parts else "no file"


def _lines(file: FileChange) -> str:
    return "not text" if file.added is None else f"+{file.added} -{file.removed}"
