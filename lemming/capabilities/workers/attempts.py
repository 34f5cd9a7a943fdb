"""Folders of running workers, outside the organisation: the private clone, HOME, and what a run reports.

An attempt is one clone with the runs in it. Its key is `TICK-AGENT-CALL`. After a kill either the clone, HOME and the
session are all used again, or all three are discarded: a session that is resumed on a fresh clone believes in edits that
are gone. What was used up stays in `usage.jsonl` in both cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.libraries.output_files import get_state_folder

RUNNING = ".lemming/workers"
LIMIT_BYTES = 8 << 20
STOP_FILE = "stop.json"
"""File of an attempt that asks its run to end: {"by": NAME}."""


def organisation_id(base: Path) -> str:
    """Return the id by which commits name an organisation: 12 hex digits, from the folder's real path."""
    return sha256(os.fsencode(os.path.realpath(base))).hexdigest()[:12]


def state_folder(base: Path) -> Path:
    """Return the folder for clones of an organisation's workers, outside the organisation and outside /tmp."""
    return get_state_folder() / "workers" / organisation_id(base)


def engine_repository_folder(base: Path, git_dir: str) -> Path:
    """Return the folder of the engine's bare repository beside a repository of the user, given its git directory."""
    return state_folder(base) / f"collector-{sha256(git_dir.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}.git"


@dataclass(frozen=True)
class Attempt:
    """An attempt: its key, and the folder with `clone/`, `home/`, `progress.jsonl`, `usage.jsonl` and `session.json`.

    `facts`: those of `.lemming/workers/KEY.json`, for a worker that runs, or ran when the engine was killed.
    """

    key: str
    folder: Path
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def clone(self) -> Path:
        """The private clone."""
        return self.folder / "clone"

    @property
    def home(self) -> Path:
        """HOME of the harness."""
        return self.folder / "home"

    def read_json(self, name: str) -> Mapping[str, Any]:
        """Return a file of the attempt, or {} for a missing or damaged file."""
        with suppress(OSError):
            return parse_object_or_empty((self.folder / name).read_bytes())
        return {}

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a file of the attempt."""
        fs.write_private(self.folder, name, dump_compact(value) + b"\n")

    def iter_lines(self, name: str) -> Iterator[Mapping[str, Any]]:
        """Yield the JSON objects of a file with one in each line; a torn last line is left out."""
        try:
            lines = fs.read_bytes(self.folder / name, LIMIT_BYTES).splitlines()
        except OSError:
            return
        for line in lines:
            if value := parse_object_or_empty(line):
                yield value

    def discard_work(self) -> None:
        """Remove clone, HOME and session; what was used up stays on record."""
        for name in ("clone", "home"):
            _remove_tree(self.folder / name)
        fs.remove(self.folder, "session.json")

    def remove(self) -> None:
        """Remove the attempt's folder."""
        _remove_tree(self.folder)


def _remove_tree(folder: Path) -> None:
    """Remove a folder in which a worker has written, if it exists. What cannot be removed stays."""
    if folder.is_dir():
        with suppress(DiskError):
            fs.remove_tree(folder.parent, folder.name)


def note_running(org: Organisation, attempt: Attempt, facts: Mapping[str, Any]) -> None:
    """Write `.lemming/workers/KEY.json`, which names the folder of a running worker."""
    fs.write_atomic(org.base, f"{RUNNING}/{attempt.key}.json", dump_compact({**facts, "folder": f"{attempt.folder}"}))


def note_ended(org: Organisation, attempt: Attempt) -> None:
    """Remove the note about a running worker."""
    fs.remove(org.base, f"{RUNNING}/{attempt.key}.json")


def list_running(org: Organisation) -> list[Attempt]:
    """Return the workers that run, by key. One whose engine was killed is listed until its tick is finished."""
    folder = org.base / RUNNING
    running = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with suppress(OSError, JsonProblem):
            facts = parse(path.read_bytes())
            running.append(Attempt(path.stem, Path(facts["folder"]), facts))
    return running


def remove_stale_attempts(base: Path, agent: str, keep: str) -> None:
    """Remove an agent's earlier attempts, except the one with the key `keep`."""
    folder = state_folder(base) / "attempts"
    for path in folder.glob("*-*-*") if folder.is_dir() else ():
        _, _, name_and_call = path.name.partition("-")
        if name_and_call.rpartition("-")[0] == agent and path.name != keep:
            Attempt(path.name, path).remove()


def get_attempt(base: Path, key: str) -> Attempt:
    """Return the attempt with a key; its folder need not exist."""
    return Attempt(key, state_folder(base) / "attempts" / key)


JOB = "worker"
"""Key of the job in `Request.extra`, and of its outcome in `Reply.kept`."""


@dataclass(frozen=True, kw_only=True)
class WorkerJob:
    """One run of a harness on a private clone.

    `key`: the attempt, `TICK-AGENT-CALL` of its first run. `run`: number of the run in the attempt, from 0. `repository`:
    git directory of the user's repository, or an empty text with `bundle`, a git bundle in base64. `patch`: a patch in
    base64 to begin with, when the clone of an earlier run is gone. `prices`: dollars per token, by kind, empty if unknown.
    `readable`: further folders that the sandbox may read. `grants`: tools with input that a person has permitted.
    """

    key: str
    run: int = 0
    base: str
    at: str = ""
    agent: str
    model: str
    repository: str = ""
    bundle: str = ""
    patch: str = ""
    is_confined: bool = True
    is_full_copy: bool = False
    max_file_bytes: int = 5_000_000
    max_cost_usd: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    readable: Sequence[str] = ()
    grants: Sequence[Mapping[str, Any]] = ()
