"""A past made from the journals, where an agent was renamed and another has its old name: each has its own ledger."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run as run_command
from lemming.engine import run_once
from lemming.git_history.history_reader import GitHistory
from lemming.journal_tools.agent_rename import rename_agent
from lemming.journal_tools.fork import fork
from lemming.journal_tools.journal_history import PastStates, open_past
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import FrozenClock, make_org, resume, say

LAST = 9
RENAMES = {
    "one": [("ada", "eve")],
    "two": [("ada", "eve"), ("bob", "fay")],
    "twice": [("ada", "eve"), ("eve", "fay")],
}


def make(base: Path, history: str, renames: list[tuple[str, str]]) -> None:
    """Take three turns, rename agents, run a tick, give the names to new agents that wait for tick 7, and go on."""
    ada, bob = resume("ada"), resume("bob", credits={"max_credits": 100})
    make_org(base, ada, bob, script=[{"reply": say("x")}] * 60, org={"history": history})
    clock = FrozenClock()
    for tick in range(1, LAST + 1):
        if tick == 4:
            for old, new in renames:
                rename_agent(base, old, new)
        if tick == 5:
            for old, _ in renames:
                if not (base / f"agents/{old}").exists():
                    late = resume(old, schedule={"run_every_n_ticks": 7})
                    fs.write_atomic(base, f"agents/{old}/resume.json", dump_pretty(late))
        run_once(base, clock=clock)


def ledgers(past: PastStates, folder: Path) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Yield the ledgers of a fork at each tick, by agent. A rename has changed the read mark of the last line."""
    for tick in range(1, LAST + 1):
        fork(past, past.state_at_tick(tick), folder, [])
        files = {name: folder / f"agents/{name}/turns.jsonl" for name in list_agent_folders(folder)}
        yield {name: lines_without_marks(file) for name, file in files.items() if file.exists()}
        shutil.rmtree(folder)


def lines_without_marks(file: Path) -> list[dict[str, Any]]:
    return [{**json.loads(line), "read": None} for line in file.read_text().splitlines()]


@pytest.mark.parametrize("renames", RENAMES.values(), ids=[*RENAMES])
def test_a_fork_has_the_ledgers_that_the_agents_had(renames: list[tuple[str, str]], base: Path, tmp_path: Path) -> None:
    make(tmp_path / "kept", "git", renames)
    expected = [*ledgers(GitHistory(tmp_path / "kept"), tmp_path / "fork")]
    make(base, "off", renames)
    assert [*ledgers(open_past(base), tmp_path / "fork")] == expected
    assert run_command(["-C", str(base), "history", "on"]) == 0
    assert [*ledgers(open_past(base), tmp_path / "fork")] == expected
