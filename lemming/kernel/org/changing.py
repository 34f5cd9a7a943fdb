"""The only way to change existing settings files and resumes.

A writer locks the folder from reading the file to writing it, which prevents lost updates, and starts from
the file's current content. A missing file is not treated as empty (`org.changing`).

Absence never means defaults. Every tick's first record lists the settings files with content, and a listed file that is
now missing counts as unreadable: `git checkout` and many editors remove a file before they write it again, and defaults
have no gates and no limits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Set
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import MAX_LINE_BYTES, open_regular
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.json_documents import GONE
from lemming.kernel.files.org_lock import lock_folder
from lemming.kernel.org.organisation import Organisation, OrgPath

_LIMIT_BYTES = 1 << 20


class OpenedFile:
    """A locked file. `raw` holds the current content, an empty object if the file does not exist."""

    def __init__(self, base: OrgPath, file: str) -> None:
        self._base, self._file = Path(base), file
        self.raw = _load_file(base, file)

    def publish(self, content: bytes, *, sync: bool = False) -> None:
        """Replace the file's content; with `sync` the new content survives power loss."""
        fs.write_atomic(self._base, self._file, content, sync=sync)
        self.raw = content


@contextlib.contextmanager
def edit_file(base: OrgPath, file: str) -> Iterator[OpenedFile]:
    """Open a settings file or a resume for one change; other writers wait.

    Raises `ConfigError` for an unreadable or missing file, `OrgBusy` after some seconds, `DiskError`.
    """
    with lock_folder(Path(base), str(PurePosixPath(file).parent)):
        yield OpenedFile(base, file)


@contextlib.contextmanager
def lock_folders(base: OrgPath, files: Iterable[str]) -> Iterator[None]:
    """Lock the folders of several files, in a fixed order that prevents deadlocks."""
    with contextlib.ExitStack() as stack:
        for folder in sorted({str(PurePosixPath(file).parent) for file in files}):
            stack.enter_context(lock_folder(Path(base), folder))
        yield


def _load_file(base: OrgPath, file: str) -> bytes:
    try:
        return fs.read_bytes(f"{base}/{file}", _LIMIT_BYTES)
    except FileNotFoundError:
        if Organisation.from_path(base).get_cache(FilesInUse).has(file):
            raise missing_file(file) from None
        return b"{}\n"
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=file) from error


_MAX_JOURNALS = 3  # a kill can leave an empty file, or a torn first line


class FilesInUse:
    """The settings files an organisation relies on, as known to this process.

    `names`: the files that had content when last read, or None before the first read.
    """

    def __init__(self, org: Organisation) -> None:
        self.names: Set[str] | None = None
        self._org = org

    def has(self, file: str) -> bool:
        """Return True if this process, or the last tick, relies on a settings file."""
        return file in (self._recorded if self.names is None else self.names)

    @cached_property
    def _recorded(self) -> frozenset[str]:
        return load_recorded_settings(self._org)


def missing_file(file: str) -> ConfigError:
    """Return the error for a missing settings file."""
    problem = Problem(
        "the file does not exist, though the last tick used it; its limits, gates and grants are unknown",
        file,
        hint="restore it, for example from git or a backup; write {} into it to drop its settings",
        code=GONE,
    )
    return ConfigError(str(problem), problems=(problem,))


def load_recorded_settings(base: str | os.PathLike[str]) -> frozenset[str]:
    """Return the settings files used by the newest tick with a journal.

    Journals of versions without this record, and damaged journals, list none. Raises `DiskError` if the disk
    fails.
    """
    folder = f"{os.fspath(base)}/{paths.JOURNALS}"
    try:
        names = fs.list_names(folder)
        names.sort(key=len)  # they are sorted, and a longer number is a larger one
        for name in islice(filter(paths.JOURNAL_FILE.match, reversed(names)), _MAX_JOURNALS):
            with open_regular(f"{folder}/{name}") as journal:
                line = journal.readline(MAX_LINE_BYTES)
            if line.endswith(b"\n"):
                return _parse_settings(line)
    except JsonProblem:
        pass
    except OSError as error:
        require_about_one_file(folder, error)
    return frozenset()


def _parse_settings(line: bytes) -> frozenset[str]:
    record = parse(line, limit_bytes=MAX_LINE_BYTES)
    settings = record.get("settings") if isinstance(record, dict) else None
    return frozenset(settings if isinstance(settings, dict) else ())
