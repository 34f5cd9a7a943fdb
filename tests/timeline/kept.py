"""An organisation whose history is kept, and what is read back of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.git_history.history_reader import GitHistory
from lemming.kernel.journal.engine_events import Event, HistoryNotKept
from lemming.testing import FrozenClock, make_org, resume

ON = {"history": "git", "durability": "off"}
REPOSITORY = Path(__file__).parents[2]


def make(base: Path, *more: dict[str, Any], **changes: Any) -> Path:
    return make_org(base, resume("ada"), *more, **{"org": ON, **changes})


def run(base: Path, ticks: int = 1) -> list[HistoryNotKept]:
    """Run ticks and return what was said about the history."""
    said: list[Event] = []
    for _ in range(ticks):
        run_once(base, clock=FrozenClock(), notify=said.append)
    return [event for event in said if isinstance(event, HistoryNotKept)]


def subjects(base: Path) -> list[str]:
    return [commit.subject for commit in GitHistory(base).list_commits()][::-1]


def files_of(base: Path, word: str) -> list[str]:
    history = GitHistory(base)
    return [file.path for file in history.diff_commit(history.resolve_state(word).commit).files]


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=me", "-c", "user.email=me@here", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def git_that(folder: Path, does: str, patch: pytest.MonkeyPatch) -> None:
    """Put another `git` first on the way of programs."""
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{does}\n")
    (folder / "git").chmod(0o755)
    patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
