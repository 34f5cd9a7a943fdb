"""What has changed between two looks at the files that decide who takes a turn. Only `stat` and reading.

Looked at: the settings, resumes, memories, which entries there are, and the agents' context files. Not looked
at: workspaces and shared files that are nobody's context, ledgers, logs, the history. An entry's content
counts as its name does, as entries are never rewritten.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from lemming.kernel.access.context_files import (
    folder_looked_into,
    folders_of_memories,
    granted_memories,
    is_pattern,
    place_of_item,
    with_context_found,
)
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.files.stamps import (
    ABSENT,
    Identity,
    Listing,
    Reading,
    identity_of,
    is_current,
    list_again,
    look,
)
from lemming.kernel.org.config import CREDITS_FILE, MODELS_FILE, ORG_FILE
from lemming.kernel.org.resume import ContextFile
from lemming.kernel.tick.seams import read_by_keys

SETTINGS = (ORG_FILE, MODELS_FILE, CREDITS_FILE)
LIMIT_BYTES = 16 << 20  # more than any of these files may have

State = str | int
_Stamp = Identity | None


class Watch:
    """Remembers what the last look saw. The first look is taken when it is made."""

    def __init__(self, base: Path) -> None:
        self._base = str(base)
        self._context: list[str] = []
        self._files: dict[str, Reading[None]] = {}
        self._folders: dict[str, tuple[Listing, int]] = {}
        self._seen: dict[str, State] = {}
        self._still: list[tuple[str, _Stamp]] = []  # all that was looked at, once it has rested
        self._is_settled = False
        self.changes()

    def add_context(self, files: list[str]) -> None:
        """Look at these files too, from the next look on, and at no other context files."""
        if files != self._context:
            self._context, self._still = files, []

    @property
    def is_still(self) -> bool:
        """Whether nothing has changed since the last look, which one `stat` for each file tells.

        False when that look found something that had changed a moment before: its next change may not show.
        """
        return bool(self._still) and all(_stamp(path) == stamp for path, stamp in self._still)

    def changes(self, ours: Collection[str] = ()) -> list[str]:
        """Look again and return the files and outboxes that are not as they were, sorted.

        `ours` are the paths that the engine itself wrote or removed since the last look: they are left out,
        and so is an outbox in which nothing else came or went.
        """
        if self.is_still:
            return []
        before, self._seen = self._seen, dict(self._look())
        paths_seen = before.keys() | self._seen.keys()
        changed = {path for path in paths_seen if before.get(path) != self._seen.get(path)}
        for folder, mine in _folds_of(ours).items():
            if folder in changed and int(self._seen.get(folder, 0)) ^ mine == int(before.get(folder, 0)):
                changed.remove(folder)  # it holds what it held, but for our own entries
        return sorted(changed.difference(ours))

    def _look(self) -> Iterator[tuple[str, State]]:
        """Yield everything there is with what tells its present state from another; note its stamp."""
        self._still, self._is_settled = [], True
        for file in (*SETTINGS, *self._context):
            if file.endswith("/"):
                yield file, self._folder(file)[1]
            else:
                yield from self._state_of(file)
        for name in filter(paths.AGENT_NAME.match, self._names("agents")):
            folder = f"agents/{name}"
            yield from self._state_of(f"{folder}/resume.json")
            for memory in self._names(f"{folder}/memory"):
                if memory.endswith(".json"):
                    yield from self._state_of(f"{folder}/memory/{memory}")
            listing, fold = self._folder(f"{folder}/outbox", keeps_names=False)
            if listing is not ABSENT:
                yield f"{folder}/outbox", fold
        if not self._is_settled:
            self._still = []

    def _state_of(self, file: str) -> Iterator[tuple[str, State]]:
        """Yield a file with its digest; nothing when there is no such file."""
        path, before = os.path.join(self._base, file), self._files.get(file)
        try:
            if before is None or not is_current(before, path):
                before = self._files[file] = look(path, before, _pass_by, limit_bytes=LIMIT_BYTES)
            self._note(path, before.identity, before.is_settled)
            yield file, before.digest
        except OSError as error:
            self._files.pop(file, None)
            self._note(path, _stamp(path), is_settled=error.errno in (errno.ENOENT, errno.ENOTDIR))
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                yield file, f"cannot be read: {error.errno}"

    def _names(self, folder: str) -> list[str]:
        return self._folder(folder)[0].names

    def _folder(self, folder: str, *, keeps_names: bool = True) -> tuple[Listing, int]:
        """Return a folder, listed again only when it may have changed, and the fold of its names."""
        path, (before, fold) = os.path.join(self._base, folder), self._folders.get(folder, (None, 0))
        try:
            listing = list_again(path, before)
        except OSError:
            listing = ABSENT
        if listing is not before:
            fold = _fold(listing.names)
            if not keeps_names and listing is not ABSENT:
                listing = replace(listing, names=[])
            self._folders[folder] = listing, fold
        is_there = listing is not ABSENT
        self._note(path, listing.identity if is_there else _stamp(path), listing.is_settled or not is_there)
        return listing, fold

    def _note(self, path: str, stamp: _Stamp, is_settled: bool) -> None:
        self._still.append((path, stamp))
        self._is_settled = self._is_settled and is_settled


def context_files(base: Path, agents: Collection[Agent]) -> list[str]:
    """Return the context files and guides of these agents: relative to the organisation, others absolute.

    The folder that a pattern looks into is among them, with `/` at its end.
    """
    found = set[str]()
    for agent in agents:
        found.update(read_by_keys(agent))
        found.update(f"{folder}/" for folder in folders_of_memories(agent))
        found.update(it.file for it in granted_memories(agent, base, {}))
        agent = replace(agent, permissions=replace(agent.permissions, read_memories=[]))
        for item in agent.context:
            try:
                if is_pattern(item):
                    found.add(f"{folder_looked_into(agent, base, item).key}/")
                    one = with_context_found(replace(agent, context=[item]), base, {})
                    found.update(_key(one, base, it) for it in one.context)
                else:
                    found.add(_key(agent, base, item))
            except (PermissionDenied, ToolError):  # the agent's turn fails, and says so
                continue
    return sorted(found)


def _key(agent: Agent, base: Path, item: ContextFile) -> str:
    return place_of_item(agent, base, item).key


def _stamp(path: str) -> _Stamp:
    """Return what one `stat` tells of a file that has rested: any change of it or of its name shows here."""
    try:
        return identity_of(path)
    except OSError:
        return None


def _fold(names: Iterable[str]) -> int:
    """Return one number for a set of names; adding a name and taking it away again gives the same number."""
    folded = 0
    for name in names:
        folded ^= hash(name)
    return folded


def _folds_of(files: Collection[str]) -> dict[str, int]:
    """Return for each outbox the fold of those of its entries that are among these files."""
    folds: dict[str, int] = {}
    for file in files:
        folder, _, name = file.rpartition("/")
        if folder.endswith("/outbox"):
            folds[folder] = folds.get(folder, 0) ^ hash(name)
    return folds


def _pass_by(_: bytes) -> None:
    """Make nothing of a file's bytes; their digest is all that is wanted."""
