"""Detection of changes in the files with influence on the next turns. Only `stat` and reads.

Watched: settings, resumes, memories, the names of entries, and the agents' context files. Not watched:
workspaces and shared files outside any context, ledgers, logs, the history. The name of an entry stands for
the content, because entries are never rewritten.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import reduce
from operator import xor
from pathlib import Path

from lemming.kernel.access.context_files import (
    granted_memories,
    granted_memory_folders,
    is_pattern,
    matching_files,
    resolve_item,
    resolve_pattern_folder,
)
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.files.folder_listings import ABSENT, Listing, refresh_listing
from lemming.kernel.files.stat_cache import (
    FileReading,
    PathState,
    capture_states,
    is_current,
    is_unchanged,
    refresh_reading,
)
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import capabilities_of_resume, get_capability
from lemming.kernel.plugins.capability_table import provided

SETTINGS = (paths.ORG_FILE, paths.MODELS_FILE, paths.CREDITS_FILE)
LIMIT_BYTES = 16 << 20  # above the limit of every watched file

State = str | int


class ChangeDetector:
    """Memory of the last scan. The constructor takes the first scan."""

    def __init__(self, base: Path) -> None:
        self._base = str(base)
        self._context: list[str] = []
        self._files: dict[str, FileReading[None]] = {}
        self._folders: dict[str, tuple[Listing, int]] = {}
        self._states: dict[str, State] = {}
        self._paths: list[str] = []  # all that was looked at in the last scan
        self._path_states: list[PathState] | None = None
        self.find_changes()

    def add_context(self, files: list[str]) -> None:
        """Replace the watched context files, from the next scan on."""
        if files != self._context:
            self._context, self._path_states = files, None

    @property
    def is_unchanged(self) -> bool:
        """True if nothing has changed since the last scan, checked by a `stat` for each file.

        False after a scan with a very recent change, because a further change may not alter the `stat` values.
        """
        return self._path_states is not None and is_unchanged(self._path_states)

    def find_changes(self, engine_writes: Collection[str] = ()) -> list[str]:
        """Scan again and return the changed files and outboxes, sorted.

        `engine_writes` are the engine's own writes and removals since the last scan. The result excludes
        these paths, and outboxes without any other change.
        """
        if self.is_unchanged:
            return []
        previous, self._states = self._states, dict(self._scan())
        # None after a very recent change, also if it came since the scan
        self._path_states = capture_states(self._paths)
        paths_seen = previous.keys() | self._states.keys()
        changed = {path for path in paths_seen if previous.get(path) != self._states.get(path)}
        for folder, own_hash in _hash_outboxes(engine_writes).items():
            if folder in changed and int(self._states.get(folder, 0)) ^ own_hash == int(previous.get(folder, 0)):
                changed.remove(folder)  # unchanged apart from the engine's own entries
        return sorted(changed.difference(engine_writes))

    def _scan(self) -> Iterator[tuple[str, State]]:
        self._paths = []
        for file in (*SETTINGS, *self._context):
            if file.endswith("/"):
                yield file, self._scan_folder(file)[1]
            else:
                yield from self._scan_file(file)
        for name in filter(paths.AGENT_NAME.match, self._scan_folder("agents")[0].names):
            folder = f"agents/{name}"
            yield from self._scan_file(f"{folder}/resume.json")
            for memory in self._scan_folder(f"{folder}/memory")[0].names:
                if memory.endswith(".json"):
                    yield from self._scan_file(f"{folder}/memory/{memory}")
            listing, names_hash = self._scan_folder(f"{folder}/outbox", keep_names=False)
            if listing is not ABSENT:
                yield f"{folder}/outbox", names_hash

    def _scan_file(self, file: str) -> Iterator[tuple[str, State]]:
        """Yield a file with its digest, or nothing for a missing file."""
        path, reading = os.path.join(self._base, file), self._files.get(file)
        self._paths.append(path)
        try:
            if reading is None or not is_current(reading, path):
                reading = self._files[file] = refresh_reading(path, reading, _discard, limit_bytes=LIMIT_BYTES)
            yield file, reading.digest
        except OSError as error:
            self._files.pop(file, None)
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                yield file, f"cannot be read: {error.errno}"

    def _scan_folder(self, folder: str, *, keep_names: bool = True) -> tuple[Listing, int]:
        """Return a folder's listing, cached while unchanged, and the hash of the names."""
        path, (previous, names_hash) = os.path.join(self._base, folder), self._folders.get(folder, (None, 0))
        try:
            listing = refresh_listing(path, previous)
        except OSError:
            listing = ABSENT
        if listing is not previous:
            # Adding and removing a name restores the earlier hash.
            names_hash = reduce(xor, map(hash, listing.names), 0)
            if not keep_names and listing is not ABSENT:
                listing = replace(listing, names=[])
            self._folders[folder] = listing, names_hash
        self._paths.append(path)
        return listing, names_hash


def find_context_files(base: Path, agents: Collection[Agent]) -> list[str]:
    """Return the context files and guides of agents: relative inside the organisation, absolute outside.

    The folder of a pattern is included, with `/` at the end.
    """
    files, org = set[str](), Organisation.from_path(base)
    for agent in agents:
        files.update(resume_read_paths(org, agent), _iter_context_paths(agent, base))
    return sorted(files)


def _hash_outboxes(files: Collection[str]) -> dict[str, int]:
    """Return the hash of the entries among `files` for each outbox."""
    hashes: dict[str, int] = {}
    for file in files:
        folder, _, name = file.rpartition("/")
        if folder.endswith("/outbox"):
            hashes[folder] = hashes.get(folder, 0) ^ hash(name)
    return hashes


def _discard(_: bytes) -> None:
    """Ignore the bytes of a file; only the digest is needed."""


def resume_read_paths(org: Organisation, agent: Agent) -> Iterator[str]:
    """Yield the files an agent's turns read because of keys in its resume (`ReadPath`)."""
    if names := provided("in_ticks").keys() & {*capabilities_of_resume(agent)}:
        from lemming.kernel.turn.descriptions import OrgQuery, ReadPath

        query = OrgQuery(ReadPath, org, {agent.name: agent})
        for name in names:
            yield from (item.path for item in query.ask(get_capability(name)))


def _iter_context_paths(agent: Agent, base: Path) -> Iterator[str]:
    """Yield the path keys that decide the context of an agent: files, and folders with `/` at the end."""
    yield from (f"{folder}/" for folder in granted_memory_folders(agent))
    yield from (memory.file for memory in granted_memories(agent, base, {}))
    for item in agent.context:
        with contextlib.suppress(PermissionDenied, ToolError):  # the agent's turn fails with this error
            if is_pattern(item):
                yield f"{resolve_pattern_folder(agent, base, item).path_key}/"
            for file in matching_files(agent, base, item, {}):
                yield resolve_item(agent, base, file).path_key
