"""A worker whose engine is killed: each edit is there once or not at all, and each commit once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from worker_org import ask_worker, git, make_worker_org, outbox

from lemming.engine import run_once
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.testing import Crash, FrozenClock, crash_at

TEN_EDITS = """cat >/dev/null
echo run >> {counter}
for number in 0 1 2 3 4 5 6 7 8 9; do echo edit $number >> edits.txt; {pause}; done
echo I made ten edits."""


def make_org(tmp_path: Path, pause: str = ":") -> tuple[Path, Path]:
    script = TEN_EDITS.format(counter=tmp_path / "runs", pause=pause)
    base, site = make_worker_org(tmp_path, {"coder": script}, wake="addressed")
    ask_worker(base, "coder")
    return base, site


def count_runs(tmp_path: Path) -> int:
    counter = tmp_path / "runs"
    return len(counter.read_text().splitlines()) if counter.exists() else 0


def check_result(base: Path, site: Path) -> str:
    """Check that the edits are there once, and return the branch's head."""
    assert git(site, "show", "lemming/coder:edits.txt").splitlines() == [f"edit {number}" for number in range(10)]
    assert len(git(site, "rev-list", "main..lemming/coder").splitlines()) == 1
    assert git(site, "status", "--porcelain") == ""
    assert len(git(site, "worktree", "list").splitlines()) == 1
    assert git(site, "for-each-ref", "--format=%(refname)").splitlines() == [
        "refs/heads/lemming/coder",
        "refs/heads/main",
    ]
    head = git(site, "rev-parse", "lemming/coder")
    assert [entry["payload"]["commit"] for entry in outbox(base, "coder")] == [head]
    assert not list((base / ".lemming/workers").glob("*"))
    return head


def clear(tmp_path: Path) -> None:
    for name in ("org", "site", "state", "runs"):
        path = tmp_path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def crash_and_finish(tmp_path: Path, number: int) -> tuple[str, int]:
    """Crash at a change of the disk, finish the tick, and return the head and the number of changes."""
    clear(tmp_path)
    base, site = make_org(tmp_path)
    changes: list[str] = []
    try:
        with crash_at(number) as changes:
            run_once(base, clock=FrozenClock())
    except Crash:
        run_once(base, clock=FrozenClock())
    return check_result(base, site), len(changes)


def test_a_crash_at_any_change_of_the_disk_gives_the_same_commit(tmp_path: Path) -> None:
    head, changes = crash_and_finish(tmp_path, sys.maxsize)
    assert count_runs(tmp_path) == 1
    step = 1 if os.environ.get("LEMMING_CRASH_POINTS") == "all" else 32
    for number in range(1, changes + 1, step):
        assert crash_and_finish(tmp_path, number)[0] == head, number
        assert count_runs(tmp_path) <= 2, number


@pytest.mark.long
@pytest.mark.crash
def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    generator, kills = random.Random(7), 0
    for number in range(int(os.environ.get("LEMMING_WORKER_KILLS", "20"))):
        clear(tmp_path)
        base, site = make_org(tmp_path, pause="sleep 0.03")
        run = [sys.executable, "-m", "lemming", "-C", str(base)]
        subprocess.run([*run, "trust", "--yes"], check=True, capture_output=True)
        process = subprocess.Popen([*run, "run-once"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while number % 2 and process.poll() is None and not count_runs(tmp_path):
            time.sleep(0.01)
        try:
            process.wait(generator.uniform(0, 0.4) if number % 2 else generator.uniform(0.2, 1.3))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += bool(count_runs(tmp_path))
        if not (base / "tick.json").exists() or not outbox(base, "coder"):
            run_once(base)
        check_result(base, site)
        assert not verify_org(base).errors
    assert kills, "no kill came while the harness ran"
