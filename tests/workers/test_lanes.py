"""Workers on one branch run at once and merge in the order of their turns, whatever the number of lanes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from worker_org import git, make_worker_org, outbox

from lemming.engine import run_once
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.testing import FrozenClock


def edit(number: int) -> str:
    """Append a line to a file that every second worker changes too, and write a file of its own."""
    return (
        f"cat >/dev/null; echo line {number} >> shared{number % 2}.txt; echo own > own{number}.txt; echo turn {number}"
    )


def run_lanes(tmp_path: Path, names: list[str], lanes: int) -> list[str]:
    """Run a tick of workers on one branch, and return the ids of their commits."""
    for folder in ("org", "site", "state"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
    scripts = {name: edit(number) for number, name in enumerate(names)}
    org = {"max_parallel": lanes, "executor": "serial" if lanes == 1 else "threads"}
    base, site = make_worker_org(tmp_path, scripts, branch="lemming/all", org=org)
    run_once(base, clock=FrozenClock())
    for parity in (0, 1):
        lines = git(site, "show", f"lemming/all:shared{parity}.txt").splitlines()
        assert lines == [f"line {number}" for number in range(len(names)) if number % 2 == parity]
    authors = git(site, "log", "--first-parent", "--reverse", "--format=%an", "main..lemming/all").splitlines()
    assert authors == names
    assert git(site, "status", "--porcelain") == ""
    assert len(git(site, "worktree", "list").splitlines()) == 1
    assert not verify_org(base).errors
    commits = git(site, "rev-list", "--reverse", "main..lemming/all").splitlines()
    assert [outbox(base, name)[-1]["payload"]["commit"] for name in names] == commits
    return commits


def test_four_workers_make_the_same_commits_one_after_another_and_at_once(tmp_path: Path) -> None:
    names = ["w0", "w1", "w2", "w3"]
    assert run_lanes(tmp_path, names, 4) == run_lanes(tmp_path, names, 1)


@pytest.mark.long
def test_eight_workers_make_the_same_commits_at_one_two_and_eight_lanes(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(8)]
    commits = run_lanes(tmp_path, names, 1)
    assert run_lanes(tmp_path, names, 2) == commits
    assert run_lanes(tmp_path, names, 8) == commits
