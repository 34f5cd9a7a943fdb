"""The engine is killed before and while each git command runs, and goes on from what it recorded."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from user_repositories import Bench, commit, git, take_snapshot

from lemming.capabilities.workers.repositories.merging import MergeOrder, merge_tree
from lemming.capabilities.workers.repositories.patches import rebuild_tree

KILL_POINTS = 60
"""More than the git commands of a merge, so that the last ones kill nothing."""

# git of the engine: counts its starts, kills the engine at the given number or command, and ends too or outlives it.
_SHIM = """#!/bin/sh
folder=${0%/*}; read number < "$folder/number"; number=$((number + 1)); echo $number > "$folder/number"
read kill_at < "$folder/kill_at"; read mode < "$folder/mode"
case " $number $* " in *" $kill_at "*) kill -9 $PPID; [ $mode = outlive ] || exit 1;; esac
exec "REAL" "$@"
"""


def carry_out(bench: Bench, order: MergeOrder, patch: bytes) -> None:
    """Merge as the engine does: the call is repeated until its result is recorded."""
    journal, repository, engine_repository = bench.root / "journal.jsonl", bench.repository, bench.engine_repository
    if journal.exists():
        return
    rebuild_tree(engine_repository, order.base, patch, order.tree)
    outcome = merge_tree(engine_repository, repository, order)
    assert repository.read_head(order.branch)  # one more point to be killed at: moved and not recorded
    journal.write_text(json.dumps({"merged": outcome["merged"]}))


def run_killed(work: Callable[[], None], shim: Path, kill_at: str, mode: str) -> bool:
    """Run the work in a process that is killed at a git command; return False if it ended before."""
    for name, text in {"number": "0", "kill_at": kill_at, "mode": mode}.items():
        (shim / name).write_text(f"{text}\n")
    pid = os.fork()
    if pid == 0:
        os.environ["PATH"] = f"{shim}:{os.environ['PATH']}"
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def make_shim(folder: Path) -> Path:
    folder.mkdir()
    (folder / "git").write_text(_SHIM.replace("REAL", shutil.which("git") or "git"))
    (folder / "git").chmod(0o755)
    return folder


def kill_at_each(bench: Bench, tmp_path: Path, points: list[str]) -> int:
    """Kill a merge onto a branch that another worker moved at each point; return the number of kills."""
    clone = bench.clone()
    (clone / "new.txt").write_text("new\n")
    taken = bench.take(clone)
    order = bench.order(taken)
    shutil.rmtree(bench.root / "engine")
    other = commit(bench.folder.with_name("other"), "another worker", other="x\n")
    git(bench.folder, "-c", "core.hooksPath=/dev/null", "branch", "lemming/team", other)
    shim, heads, kills = make_shim(tmp_path / "shim"), set(), 0
    for point in points:
        root = tmp_path / "copy"
        shutil.copytree(bench.root / "user", root / "user", symlinks=True)
        copy = Bench(root)
        before = take_snapshot(copy.folder)
        point, _, mode = point.partition(" ")
        kills += run_killed(lambda copy=copy: carry_out(copy, order, taken.patch), shim, point, mode)
        if point.isdigit():  # and again in the middle of the recovery
            run_killed(lambda copy=copy: carry_out(copy, order, taken.patch), shim, str(int(point) // 2 + 1), mode)
        carry_out(copy, order, taken.patch)
        assert git(copy.folder, "rev-list", "--count", f"{other}..lemming/team") == "1"
        assert take_snapshot(copy.folder) == before
        assert not list(copy.folder.rglob("*.lock"))
        heads.add(git(copy.folder, "rev-parse", "lemming/team"))
        shutil.rmtree(root)
    assert len(heads) == 1
    return kills


def test_a_merge_that_is_killed_while_publishing_happens_once(bench: Bench, tmp_path: Path) -> None:
    points = ["pack-objects end", "unpack-objects end", "update-ref end", "update-ref outlive"]
    assert kill_at_each(bench, tmp_path, points) == len(points)


@pytest.mark.long
def test_a_merge_that_is_killed_anywhere_happens_once(bench: Bench, tmp_path: Path) -> None:
    points = [f"{number} {mode}" for number in range(1, KILL_POINTS) for mode in ("end", "outlive")]
    assert 40 < kill_at_each(bench, tmp_path, points) < len(points)
