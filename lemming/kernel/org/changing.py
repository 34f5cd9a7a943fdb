"""The one door through which settings files and resumes that are there get changed.

Whoever changes one holds its folder from reading the file to writing it, so that of two changes none is lost,
and starts from what the file says: one that is gone is no empty one (`org.missing_settings`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files import fs
from lemming.kernel.files.lock import changing
from lemming.kernel.org.missing_settings import FilesInUse, missing_file
from lemming.kernel.org.organisation import Organisation, OrgPath

_LIMIT_BYTES = 1 << 20


class OpenedFile:
    """A file that nobody else changes meanwhile; `raw` is what it says, an empty object if there is none."""

    def __init__(self, base: OrgPath, file: str) -> None:
        self._base, self._file = Path(base), file
        self.raw = _read(base, file)

    def publish(self, content: bytes, *, sync: bool = False) -> None:
        """Put other bytes in the place of the file's; with `sync` they survive power loss."""
        fs.publish(self._base, self._file, content, sync=sync)
        self.raw = content


@contextlib.contextmanager
def changing_file(base: OrgPath, file: str) -> Iterator[OpenedFile]:
    """Open a settings file or a resume for one change of it; others who want to change it wait.

    Raises `ConfigError` for a file that cannot be read or is gone, `OrgBusy` after some seconds, `DiskError`.
    """
    with changing(Path(base), str(PurePosixPath(file).parent)):
        yield OpenedFile(base, file)


@contextlib.contextmanager
def lock_folders(base: OrgPath, files: Iterable[str]) -> Iterator[None]:
    """Hold the folders of several files, in an order in which nobody waits for somebody who waits."""
    with contextlib.ExitStack() as stack:
        for folder in sorted({str(PurePosixPath(file).parent) for file in files}):
            stack.enter_context(changing(Path(base), folder))
        yield


def _read(base: OrgPath, file: str) -> bytes:
    try:
        return fs.read_bytes(f"{base}/{file}", _LIMIT_BYTES)
    except FileNotFoundError:
        if Organisation.at(base).own(FilesInUse).has(file):
            raise missing_file(file) from None
        return b"{}\n"
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=file) from error
