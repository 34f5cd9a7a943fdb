"""The only way to change existing settings files and resumes.

A writer locks the folder from reading the file to writing it, which prevents lost updates, and starts from
the file's current content. A missing file that the last tick used is not treated as empty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.folder_lock import lock_folder
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.settings_files import FilesInUse, missing_file

_LIMIT_BYTES = 1 << 20


class OpenedFile:
    """A locked file. `raw` holds the current content, an empty object if the file does not exist."""

    def __init__(self, base: OrgPath, file: str) -> None:
        self._base, self._file = Path(base), file
        try:
            self.raw = fs.read_bytes(f"{base}/{file}", _LIMIT_BYTES)
        except FileNotFoundError:
            if Organisation.from_path(base).get_cache(FilesInUse).has(file):
                raise missing_file(file) from None
            self.raw = b"{}\n"
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=file) from error

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


def preserve_layout(raw: bytes, value: Any) -> bytes:
    """Return `raw` unchanged if it already holds `value`, else `value` written anew."""
    try:
        return raw if parse(raw, allow_bom=True) == value else dump_pretty(value)
    except JsonProblem:
        return dump_pretty(value)
