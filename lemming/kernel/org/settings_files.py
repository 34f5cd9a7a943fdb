"""Settings files that an organisation relies on: absence never means defaults.

Every tick's first record lists the settings files with content, and a listed file that is
now missing counts as unreadable: `git checkout` and many editors remove a file before they write it again, and defaults
have no gates and no limits.
"""

from __future__ import annotations

import os
from collections.abc import Set
from functools import cached_property
from itertools import islice

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import MAX_LINE_BYTES, open_regular
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.json_documents import GONE
from lemming.kernel.org.organisation import Organisation

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
