"""An organisation on a read-only disk: every command that only looks works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.files import fs
from lemming.testing import FrozenClock, make_org, resume, say

LOOKS = [
    "prompt ada", "run-once --dry-run", "repair", "status", "tick 1", "findings", "cost", "waiting", "inbox ada",
    "outbox ada", "validate", "verify", "replay", "history show 1", "requests", "schedule",
]  # fmt: skip


@pytest.fixture
def org(base: Path) -> Path:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("hello")}])
    run_once(base, clock=FrozenClock())
    return base


@pytest.fixture
def read_only(org: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The organisation, in which the system lets nobody write: `os.access` and every change say so."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
    return org


def refuse(_: str, path: str) -> None:
    raise OSError(30, os.strerror(30))


@pytest.mark.parametrize("command", LOOKS)
def test_a_command_that_looks_needs_no_right_to_write(command: str, read_only: Path) -> None:
    with fs.observe_changes(refuse):
        assert run(["-C", str(read_only), *command.split()]) == 0


def test_a_repair_is_refused_by_the_disk(read_only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fs.observe_changes(refuse):
        assert run(["-C", str(read_only), "repair", "--yes"]) == 8
    assert "LMG-105" in capsys.readouterr().err
