"""The past of an organisation that keeps no history, with the questions that `History` answers."""

from __future__ import annotations

import re
from difflib import unified_diff
from functools import cached_property
from pathlib import Path

from lemming.history.git import FOLDER
from lemming.history.read import NOW, Changes, Commit, FileChange, History, State
from lemming.history.recorder import message_of, tick_message, trailers_of
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.timeline.past import AS_NOW, PastFiles, Version, files_of, read_now

AS_THEY_ARE_NOW = (
    "no history is kept here: this is from the journals, with resumes, settings and what people put there "
    "as they are now"
)
_TICK = re.compile(r"\d{1,12}\Z")
_Contents = dict[str, Version | bytes]


class UnkeptPast:
    """What the journals tell of an organisation's past. Reading changes nothing.

    Raises `UsageError` where no tick has been run.
    """

    def __init__(self, base: OrgPath) -> None:
        self.base, self.past = Path(base), PastFiles(base)
        first = self.past.told.ticks[self.past.first]
        self._had_turns_before = next((name for name in first.states if first.states[name]["status"]), "")

    @property
    def remark(self) -> str:
        """What a person should know of how far it can be believed."""
        if not self._had_turns_before:
            return AS_THEY_ARE_NOW
        first = self.past.first
        return (
            f"{AS_THEY_ARE_NOW}; files of turns before tick {first} that were written again later are missing"
        )

    def line(self) -> list[Commit]:
        """Return a commit for each tick that changed files, newest first."""
        return [self._commit_after(tick) for tick in reversed(self.past.ticks)]

    def state(self, word: str) -> State:
        """Return the state after the tick that a word names. Raises `UsageError` for any other word."""
        if not _TICK.match(word):
            hint = "a number; commits are there once `lemming history on` has made them"
            raise UsageError(f'"{word}" is not a tick', hint=hint)
        return self.state_after(int(word))

    def state_after(self, tick: int) -> State:
        """Return the state after a tick. Raises `UsageError` for one that the journals do not tell of."""
        self._require_run(tick)
        first = self.past.first
        if tick < self.past.before_all or (tick == self.past.before_all and self._had_turns_before):
            why = f"the journals begin with tick {first}"
            raise UsageError(f"nothing tells how it was after tick {tick}: {why}", hint=f"from {first} on")
        return State(tick, self._commit_after(tick))

    def commit_of(self, tick: int) -> Commit | None:
        """Return what a tick changed, as a commit; None when it changed nothing."""
        self._require_run(tick)
        return self._commit_after(tick) if tick in self.past.ticks else None

    def _require_run(self, tick: int) -> None:
        if tick >= (next_tick := load_tick(self.base)):
            raise UsageError(f"tick {tick} has not been run", hint=f"the newest is tick {next_tick - 1}")

    def _commit_after(self, tick: int) -> Commit:
        """Return the newest commit that a history would have after a tick; it has no id."""
        done = max((at for at in self.past.ticks if at <= tick), default=None)
        if done is None:
            told = self.past.told.ticks[self.past.first]
            subject = f"before tick {self.past.first}"
            message = message_of(subject, {"Before-Tick": self.past.first})
        else:
            told = self.past.told.ticks[done]
            message = tick_message(done, told.reports, Rebuilt="yes")
        return Commit("", told.at, message.partition("\n")[0], trailers_of(message))

    def changes_of(self, commit: Commit, *, agent: str = "") -> Changes:
        """Return what a commit changed against the state before it."""
        return self._changes(self._files(commit.tick - 1), self._files(commit.tick), agent)

    def changes_between(self, old: str, new: str, *, agent: str = "") -> Changes:
        """Return how the files after `new` differ from those after `old`; either may be `now`."""
        return self._changes(self._files_at(old), self._files_at(new), agent)

    def read_file(self, commit: Commit, file: str) -> bytes:
        """Return a file as it was; raise `UsageError` when it was not there."""
        content = self._content(file, self._files(commit.ticks_done).get(file))
        if content is None:
            raise UsageError(f"there was no file {file} then", hint="a path from the organisation's folder")
        return content

    def check_out(self, commit: Commit, folder: Path) -> None:
        """Write the files of a commit into a folder that is there and empty."""
        for file, version in self._files(commit.ticks_done).items():
            if (content := self._content(file, version)) is not None:
                fs.publish(folder, file, content)

    @cached_property
    def _now(self) -> _Contents:
        found = [*files_of(self.base), *([paths.TICK_FILE] if (self.base / paths.TICK_FILE).exists() else [])]
        return dict.fromkeys(found, AS_NOW)

    def _files_at(self, word: str) -> _Contents:
        return self._now if word == NOW else self._files(self.state(word).tick)

    def _files(self, tick: int) -> _Contents:
        return {**self.past.after(tick), **self.past.own_files(tick)}

    def _content(self, file: str, version: Version | bytes | None) -> bytes | None:
        if version is None or isinstance(version, bytes):
            return version
        if version == AS_NOW and file not in self.past.arrivals.texts:
            return read_now(self.base, file)
        return self.past.content_of(file, version)

    def _changes(self, old: _Contents, new: _Contents, agent: str) -> Changes:
        below = f"{paths.agent_folder(agent)}/" if agent else ""
        files, diffs = [], []
        for file in sorted({*old, *new}):
            before, after = old.get(file), new.get(file)
            if before == after or not file.startswith(below):
                continue
            change, diff = change_of(file, self._content(file, before), self._content(file, after))
            files += [change] if change else []
            diffs.append(diff)
        return Changes(files, "".join(diffs))


PastStates = History | UnkeptPast
"""An organisation's past, whatever tells of it: its history, or its journals alone."""


def past_states(base: OrgPath) -> PastStates:
    """Return the history of an organisation; where none has been kept, what its journals tell.

    Raises `UsageError` where there is neither.
    """
    has_history = (base / FOLDER / "config").exists()
    return History(Path(base)) if has_history else UnkeptPast(base)


def change_of(file: str, before: bytes | None, after: bytes | None) -> tuple[FileChange | None, str]:
    """Return how one file differs, and the text of it as git has it; None where it does not."""
    if before == after:
        return None, ""
    kind = "added" if before is None else "deleted" if after is None else "modified"
    try:
        old, new = ((raw or b"").decode().splitlines(keepends=True) for raw in (before, after))
    except UnicodeDecodeError:
        return FileChange(file, kind, None, None), f"Binary files differ: {file}\n"
    names = ("/dev/null" if before is None else f"a/{file}", "/dev/null" if after is None else f"b/{file}")
    lines = list(unified_diff(old, new, *names))
    counts = [sum(line.startswith(sign) for line in lines[2:]) for sign in "+-"]
    text = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    return FileChange(file, kind, *counts), f"diff --git a/{file} b/{file}\n{text}"
