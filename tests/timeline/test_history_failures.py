"""The history in git after crashes and where git fails: it is made up for, and no tick ends for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kept import REPOSITORY, files_of, git_that, make, run, subjects

from lemming.cli import run as command_line
from lemming.engine import load_tick, run_once
from lemming.git_history.git_repository import FOLDER
from lemming.git_history.history_reader import GitHistory
from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import TurnEnded
from lemming.testing import FrozenClock, resume, say

KILLED_AFTER_TICK_2 = """
import os, signal, sys
from pathlib import Path
from lemming.engine import run_once
from lemming.kernel.journal.journal_file import is_committed
from lemming.testing import FrozenClock

base = Path(sys.argv[1])

class Deadly(FrozenClock):
    def now(self):
        if is_committed(base, 2):  # the next thing to ask for the time is the commit
            os.kill(os.getpid(), signal.SIGKILL)
        return super().now()

run_once(base, clock=Deadly())
"""


@pytest.mark.long
def test_a_commit_lost_to_a_kill_is_made_up_for_before_the_next_tick(base: Path) -> None:
    make(base)
    run(base)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_TICK_2, str(base)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert load_tick(base) == 3
    with pytest.raises(UsageError, match="tick 2 is not in the history yet"):
        GitHistory(base).state_at_tick(2)
    assert run(base) == []
    assert subjects(base)[-2:] == ["tick 2: 1 done", "tick 3: 1 done"]
    late = GitHistory(base).list_commits()[1].trailers
    assert (late["Late"], late["Agents"], late["Calls"]) == ("yes", "ada", "1")


def test_locks_of_a_killed_git_are_no_obstacle(base: Path) -> None:
    make(base)
    run(base)
    for name in ("index.lock", "refs/heads/main.lock"):
        (base / FOLDER / name).touch()
    assert run(base) == []
    assert subjects(base)[-1] == "tick 2: 1 done"


def test_a_lost_index_changes_nothing(base: Path) -> None:
    make(base)
    run(base)
    (base / FOLDER / "index").unlink()
    assert run(base) == []
    assert files_of(base, "2") == [
        f"agents/ada/outbox/{sorted(os.listdir(base / 'agents/ada/outbox'))[-1]}",
        "agents/ada/turns.jsonl",
        "tick.json",
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("lost", ["the branch", "the newest objects", "all objects", "the index"])
def test_a_history_whose_bytes_power_loss_took_begins_anew_and_the_old_one_is_kept(
    base: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    make(base)
    run(base, 2)
    objects = list((base / FOLDER / "objects").glob("??/*"))
    newest = subprocess.run(
        ["git", f"--git-dir={base / FOLDER}", "rev-parse", "main"], capture_output=True, text=True, check=True
    ).stdout.strip()
    taken = {
        "the branch": [base / FOLDER / "refs/heads/main"],
        "the newest objects": [base / FOLDER / f"objects/{newest[:2]}/{newest[2:]}"],
        "all objects": objects,
        "the index": [base / FOLDER / "index"],
    }
    for path in taken[lost]:  # names survive and bytes do not
        path.chmod(0o644)
        path.write_bytes(b"")
    status = command_line(["-C", str(base), "doctor"])
    assert (status, "is damaged" in capsys.readouterr().out) == (1, True)
    said = run(base)
    if lost == "the index":
        assert said == []
        assert subjects(base)[-1] == "tick 3: 1 done"
        return
    assert "starts anew" in said[0].problem.message
    (aside,) = base.glob("aside/*/history.git")
    assert str(aside.relative_to(base)) in said[0].problem.hint
    assert run(base) == []
    assert subjects(base)[-1] == "tick 4: 1 done"
    assert command_line(["-C", str(base), "doctor"]) == 0


@pytest.mark.parametrize(("durability", "flushes"), [("turn", True), ("off", False)])
def test_git_is_told_to_flush_what_survives_power_loss(
    base: Path, monkeypatch: pytest.MonkeyPatch, durability: str, flushes: bool
) -> None:
    make(base, org={"history": "git", "durability": durability})
    real, said = shutil.which("git"), base.parent / "said"
    git_that(base.parent / "bin", f'echo "$@" >> {said}; exec {real} "$@"', monkeypatch)
    assert run(base) == []
    commits = [line for line in said.read_text().splitlines() if "commit-tree" in line]
    assert commits
    assert all(("core.fsync=all" in line) == flushes for line in commits)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("exit 127", "git must be installed, got no program of that name"),
        ("echo git version 2.29.1", "git must be 2.30 or newer, got 2.29"),
        ('case "$1" in --version) echo git version 2.40.0;; *) echo broken >&2; exit 1;; esac', "broken"),
    ],
)
def test_a_git_that_cannot_be_used_is_a_warning_and_is_caught_up(
    base: Path, monkeypatch: pytest.MonkeyPatch, does: str, says: str
) -> None:
    make(base)
    run(base)
    with monkeypatch.context() as patch:
        git_that(base.parent / "bin", does, patch)
        told = run(base, 2)
    assert says in told[0].problem.message
    assert "history_not_kept" in (base / "logs/engine.log").read_text()
    assert load_tick(base) == 4
    assert run(base) == []
    assert subjects(base)[-2:] == ["ticks 2 to 3, kept together", "tick 4: 1 done"]
    with pytest.raises(UsageError, match="ticks 2 to 3 share one commit"):
        GitHistory(base).state_at_tick(2)


def test_an_interrupted_tick_is_one_commit(base: Path) -> None:
    make(base, resume("bob"), script=[{"reply": say("hi")}])
    run(base)

    class Cut(BaseException):
        pass

    def cut(event: Event) -> None:
        if isinstance(event, TurnEnded):
            raise Cut

    with pytest.raises(Cut):
        run_once(base, clock=FrozenClock(), notify=cut)
    assert run(base) == []
    assert subjects(base)[-2:] == ["tick 1: 2 done", "tick 2: 2 done"]
