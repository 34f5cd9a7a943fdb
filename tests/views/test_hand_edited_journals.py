"""A journal whose checksums are right and whose values are not: every view is built, or says what is wrong and where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.checksums import close_line
from lemming.queries.views.view_registry import VIEWS, build_view

Line = dict[str, Any]
EDITED_TICK = 2
PARAMETERS = {
    "agent": {"name": "editor"}, "tick": {"number": str(EDITED_TICK), "agent": "editor", "around": "20"},
    "why": {"target": "agents/editor/memory/news.json"}, "money": {"by": "day"}, "screen": {"screen": "status"},
}  # fmt: skip


def edit_journal(base: Path, kind: str, edit: Callable[[Line], object]) -> None:
    """Change the lines of a kind in a journal, and make its checksums right."""
    file, check, raw = base / paths.journal_file(EDITED_TICK), b"", b""
    for text in file.read_bytes().splitlines():
        line = json.loads(text)
        del line["check"]
        if line["type"] == kind:
            edit(line)
        closed, check = close_line(json.dumps(line, separators=(",", ":")).encode()[:-1], check)
        raw += closed
    assert file.read_bytes() != raw
    file.write_bytes(raw)


def build_all(base: Path) -> dict[str, CorruptState]:
    """Build every view, and return the errors that name a problem; any other error is one of the view."""
    problems = {}
    for name in VIEWS:
        try:
            build_view(base, name, PARAMETERS.get(name, {}))
        except CorruptState as error:
            problems[name] = error
    return problems


@pytest.fixture
def copied(desk: Path, base: Path) -> Path:
    shutil.copytree(desk, base)
    assert build_all(base) == {}
    return base


@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", ["", "x", "2026-13-40T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01"])
@pytest.mark.parametrize("kind", ["tick_started", "model_replied"])
def test_a_moment_that_is_none_is_a_problem_with_a_place(copied: Path, kind: str, moment: str) -> None:
    edit_journal(copied, kind, lambda line: line.update(at=moment))
    problem = build_all(copied)["tick"]
    assert "/at: expected a time" in problem.message
    assert str(problem.where).startswith(paths.journal_file(EDITED_TICK))
    assert problem.hint


@pytest.mark.sample(2)
@pytest.mark.parametrize("identity", ["", "../../x", "a\0b", "x" * 5000, "0123456789ab"])
def test_an_id_without_an_entry_leaves_every_view_standing(copied: Path, identity: str) -> None:
    edit_journal(copied, "turn_committed", lambda line: [entry.update(id=identity) for entry in line["entries"]])
    edit_journal(copied, "turn_started", lambda line: line.update(entries=[*line["entries"], identity]))
    assert build_all(copied) == {}


def test_a_turn_that_cannot_be_rebuilt_is_a_problem_of_its_journal(copied: Path) -> None:
    edit_journal(copied, "turn_started", lambda line: line.get("opening", line).update(repairs=99))
    problems = build_all(copied)
    assert problems
    for problem in problems.values():
        assert problem.where
        assert problem.hint
