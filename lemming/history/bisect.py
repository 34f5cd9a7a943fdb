"""The first tick after which a command fails on the organisation's files. No model is asked."""

from __future__ import annotations

import os
import subprocess
import tempfile
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lemming.history.read import Commit, History, State
from lemming.kernel.base.errors import UsageError

_NOT_RUN = (126, 127)  # what a shell says of a command that it cannot run


@dataclass(frozen=True)
class CommitTrial:
    """The command was run on the files of a commit; exit status 0 is good."""

    commit: Commit
    status: int

    @property
    def is_good(self) -> bool:
        """Whether the command succeeded."""
        return self.status == 0


def bisect(
    history: History, good: State, bad: State, command: str, tell: Callable[[CommitTrial], None]
) -> Commit:
    """Return the first commit after `good`, up to `bad`, on whose files the command fails.

    `tell` hears every trial. Raises `UsageError` when the command already fails at `good` or succeeds at
    `bad`, and when it cannot be run at all.
    """
    line = history.line()[::-1]
    places = {commit.id: number for number, commit in enumerate(line)}
    if good.commit.id not in places or bad.commit.id not in places:
        raise UsageError("a rewind has set that commit aside", hint="name ticks, not commits")
    low, high = places[good.commit.id], places[bad.commit.id]
    if low >= high:
        hint = "--good is the earlier one, and something must have changed until --bad"
        raise UsageError(f"nothing lies between tick {good.tick} and tick {bad.tick}", hint=hint)

    def is_good(number: int) -> bool:
        trial = CommitTrial(line[number], _status(history, line[number], command))
        tell(trial)
        return trial.is_good

    if not is_good(low):
        raise UsageError(f"the command fails after tick {good.tick} already", hint="name an earlier --good")
    if is_good(high):
        raise UsageError(
            f"the command succeeds after tick {bad.tick}",
            hint="exit status 0 means good; is it the right way?",
        )
    between = range(low + 1, high)
    return line[low + 1 + bisect_left(between, True, key=lambda number: not is_good(number))]


def _status(history: History, commit: Commit, command: str) -> int:
    """Run a shell command in a folder of its own that holds the files of a commit."""
    # not in the organisation: a command that writes must change nothing there
    with tempfile.TemporaryDirectory(prefix="lemming-") as folder:
        history.check_out(commit, Path(folder))
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env={**os.environ, "PWD": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    if done.returncode in _NOT_RUN:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise UsageError(
            f"the command cannot be run: {said}", hint="it runs in a folder of its own; use absolute paths"
        )
    return done.returncode
