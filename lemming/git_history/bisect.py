"""Find the first tick after which a command fails on the organisation's files. No model is called."""

from __future__ import annotations

import os
import subprocess
import tempfile
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lemming.git_history.history_reader import Commit, GitHistory, PastState
from lemming.kernel.base.errors import UsageError

_NOT_RUN = (126, 127)  # exit status of a shell for a command that it cannot run


@dataclass(frozen=True)
class CommitTrial:
    """Trial run of the command on the files of a commit; exit status 0 is good."""

    commit: Commit
    status: int

    @property
    def is_good(self) -> bool:
        """True if the command succeeded."""
        return self.status == 0


def find_first_bad_commit(
    history: GitHistory, good: PastState, bad: PastState, command: str, on_trial: Callable[[CommitTrial], None]
) -> Commit:
    """Return the first commit after `good`, up to `bad`, with a failing command.

    `on_trial` receives every trial. Raises `UsageError` if the command fails at `good`, succeeds at `bad`, or
    cannot run.
    """
    commits = history.list_branch_commits()[::-1]
    positions = {commit.id: number for number, commit in enumerate(commits)}
    if good.commit.id not in positions or bad.commit.id not in positions:
        raise UsageError("that commit is in the archive of a rewind", hint="name ticks, not commits")
    low, high = positions[good.commit.id], positions[bad.commit.id]
    if low >= high:
        hint = "choose --good before --bad, with changes between them"
        raise UsageError(f"no commit is between tick {good.tick} and tick {bad.tick}", hint=hint)

    def is_good(number: int) -> bool:
        trial = CommitTrial(commits[number], _run_on_commit(history, commits[number], command))
        on_trial(trial)
        return trial.is_good

    if not is_good(low):
        raise UsageError(f"the command already fails after tick {good.tick}", hint="name an earlier --good")
    if is_good(high):
        raise UsageError(
            f"the command succeeds after tick {bad.tick}", hint="check the command: exit status 0 must mean good"
        )
    between = range(low + 1, high)
    return commits[low + 1 + bisect_left(between, True, key=lambda number: not is_good(number))]


def _run_on_commit(history: GitHistory, commit: Commit, command: str) -> int:
    """Run a shell command in a temporary folder with the files of a commit; return the exit status."""
    # not in the organisation: a command that writes must change nothing there
    with tempfile.TemporaryDirectory(prefix="lemming-") as folder:
        history.checkout(commit, Path(folder))
        completed = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env={**os.environ, "PWD": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    if completed.returncode in _NOT_RUN:
        stderr_text = completed.stderr.decode("utf-8", "replace").strip()
        raise UsageError(
            f"the command cannot run: {stderr_text}", hint="use absolute paths; the command runs in a separate folder"
        )
    return completed.returncode
