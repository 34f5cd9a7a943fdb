"""Facts are worked out in their rooms: no screen reads journals, ledgers or outboxes for itself."""

from __future__ import annotations

import ast
from pathlib import Path

import lemming

PACKAGE = Path(lemming.__file__).parent
SCREENS = ("commands/**/*.py", "dashboard/**/*.py", "capabilities/*/*_command.py")
READERS = frozenset(
    {
        *(f"lemming.kernel.journal.{it}" for it in ("journal_file", "journal_segments", "ledger")),
        *(f"lemming.kernel.inboxes.{it}" for it in ("entry_index", "inbox", "misplaced_entries", "visibility")),
    }
)
ACT = {
    "commands/chaos.py": "kills an engine, and looks whether the tick that it killed was over",
    "commands/tools.py": "charges an agent for a call that a person has it make",
    "commands/check.py": "verify is about the journals themselves",
}
"""Screens that read because of what they do, and not for something to show."""


def modules_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{it.name}" for it in node.names)]
    return [it.name for it in node.names] if isinstance(node, ast.Import) else []


def read_by(file: Path) -> set[str]:
    """Return which of the readers a module imports, but for types alone."""
    tree = ast.parse(file.read_text("utf-8"))
    typing = [
        each
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for each in ast.walk(node)
    ]
    statements = [it for it in ast.walk(tree) if isinstance(it, ast.stmt) and it not in typing]
    return {module for it in statements for module in modules_of(it) if module in READERS}


def test_no_screen_reads_what_facts_are_made_of() -> None:
    found = {
        file.relative_to(PACKAGE).as_posix(): read
        for screen in SCREENS
        for file in PACKAGE.glob(screen)
        if (read := read_by(file))
    }
    assert found.keys() == ACT.keys()
