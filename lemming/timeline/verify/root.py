r"""The state root: one SHA-256 over an organisation's files, which anybody can compute again.

Which files: every regular file below `agents/`, `config/` and `shared/`, and `tick.json`. Left out: what lies
in a folder named `logs`, files named `.*.tmp` (what a crash may leave of a write), what lies more than a
hundred folders deep, and files of more than a GiB. Symbolic links are not
followed and not counted.

The list: for each file one line, its SHA-256 in hex, two spaces, its path from the organisation's folder, a
line end; the lines in the order of the paths' bytes. The root is the SHA-256 of that list. In a shell, in the
organisation's folder:

    find agents config shared tick.json -type f -not -path '*/logs/*' -not -name '.*.tmp' -size -1048577k |
        LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum

(`sha256sum` marks names with a backslash or a line end in them in a way of its own; the list here does not.)
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from hashlib import sha256

from lemming import paths
from lemming.errors import DiskError
from lemming.files.descriptors import walk
from lemming.files.documents import why_unreadable
from lemming.organisation import OrgPath

FOLDERS = ("agents", "config", "shared")
LEFT_OUT = "logs"
LARGEST_BYTES = 1 << 30  # what is larger takes too long, and no turn writes it
_BLOCK_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # no pipe is waited for


def state_root(base: OrgPath) -> str:
    """Return the state root in hex. Raises `DiskError` for a file that cannot be read."""
    return root_of(file_digests(base))


def root_of(digests: dict[str, str]) -> str:
    """Return the state root of files whose SHA-256 are known, by path."""
    lines = (
        f"{digests[path]}  ".encode() + os.fsencode(path) + b"\n" for path in sorted(digests, key=os.fsencode)
    )
    return sha256(b"".join(lines)).hexdigest()


def file_digests(base: OrgPath) -> dict[str, str]:
    """Return the SHA-256 of every file that counts, by path. Raises `DiskError` for an unreadable one."""
    digests = {path: file_digest(base, path) for path in files_that_count(base)}
    return {path: digest for path, digest in digests.items() if digest is not None}


def files_that_count(base: OrgPath) -> list[str]:
    """Return the paths of the files that the root is made of, in the order of the list."""
    found = [file for folder in FOLDERS for file in _files_below(base, folder)]
    if _is(stat.S_ISREG, base / paths.TICK_FILE):
        found.append(paths.TICK_FILE)
    return sorted(found, key=os.fsencode)


def file_digest(base: OrgPath, file: str) -> str | None:
    """Return the SHA-256 of one regular file in hex; None when it is not there. Raises `DiskError`."""
    digest = sha256()
    try:
        descriptor = os.open(f"{base}/{file}", _READ)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            if status.st_size > LARGEST_BYTES:
                raise OSError(errno.EFBIG, "it is larger than a GiB")
            while block := os.read(descriptor, _BLOCK_BYTES):
                digest.update(block)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DiskError(why_unreadable(error), where=file, hint="check what stands there") from error
    return digest.hexdigest()


def _files_below(base: OrgPath, top: str) -> Iterator[str]:
    if not _is(stat.S_ISDIR, base / top):
        return
    above = len(f"{base}/")
    for folder, inner, names in walk(f"{base}/{top}"):
        inner[:] = [name for name in inner if name != LEFT_OUT]
        for name in names:
            file = f"{folder}/{name}"
            if not (name.startswith(".") and name.endswith(".tmp")) and _is(stat.S_ISREG, file):
                yield file[above:]


def _is(kind: Callable[[int], bool], path: str | os.PathLike[str]) -> bool:
    try:
        status = os.lstat(path)
        return kind(status.st_mode) and status.st_size <= LARGEST_BYTES
    except FileNotFoundError:
        return False
