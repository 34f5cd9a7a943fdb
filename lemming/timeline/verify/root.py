r"""The state root: one SHA-256 over an organisation's files, which anybody can compute again.

Which files: every regular file below `agents/`, `config/`, `shared/` and `trust/`, and `tick.json`. Left out:
what lies in a folder named `logs`, files named `.*.tmp` (what a crash may leave of a write), what lies more
than a hundred folders deep, and files of more than a GiB. Symbolic links are not followed and not counted.

The list: for each file one line, its SHA-256 in hex, two spaces, its path from the organisation's folder, a
line end; the lines in the order of the paths' bytes. The root is the SHA-256 of that list. In a shell, in the
organisation's folder (with `trust` before `tick.json`, where there is such a folder):

    find agents config shared tick.json -type f -not -path '*/logs/*' -not -name '.*.tmp' -size -1048577k |
        LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum

(`sha256sum` marks names with a backslash or a line end in them in a way of its own; the list here does not.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.descriptors import require_regular, walk
from lemming.kernel.files.documents import why_unreadable
from lemming.kernel.files.temporary import is_temporary
from lemming.kernel.org.organisation import OrgPath

Steps = Callable[[str, int, int], None]
"""Is told what is under way, how much of it is done, and out of how much."""
FOLDERS = ("agents", "config", "shared", paths.TRUST)
LEFT_OUT = "logs"
LARGEST_BYTES = 1 << 30  # what is larger takes too long, and no turn writes it
TOO_LARGE = "too large"
_BLOCK_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # no pipe is waited for


def state_root(base: OrgPath) -> str:
    """Return the state root in hex. Raises `DiskError` for a file that cannot be read."""
    return root_of(file_digests(base))


def root_of(digests: dict[str, str]) -> str:
    """Return the state root of files whose SHA-256 are known, by path."""
    counted = {path: digest for path, digest in digests.items() if digest != TOO_LARGE}
    lines = sorted((os.fsencode(path), digest.encode()) for path, digest in counted.items())
    return sha256(b"".join(b"%b  %b\n" % (digest, path) for path, digest in lines)).hexdigest()


def file_digests(base: OrgPath, steps: Steps = lambda *_: None) -> dict[str, str]:
    """Return the SHA-256 of every file that counts, by path, and `TOO_LARGE` for one that is.

    Raises `DiskError` for an unreadable one. `steps` is told how far it has come.
    """
    digests, files = dict[str, str](), [*_regular_files(base)]
    for number, path in enumerate(files):
        if not number % 100:
            steps("files", number, len(files))
        if digest := _digest_below(base, path):  # one removed since it was listed has none
            digests[path] = digest
    return digests


def files_that_count(base: OrgPath) -> list[str]:
    """Return the paths of the files that the root is made of, in the order of the list."""
    found = (file for file in _regular_files(base) if os.lstat(base / file).st_size <= LARGEST_BYTES)
    return sorted(found, key=os.fsencode)


def file_digest(base: OrgPath, file: str) -> str | None:
    """Return the SHA-256 of one regular file in hex; None when it is not there. Raises `DiskError`."""
    digest = _digest_below(base, file)
    if digest == TOO_LARGE:
        raise DiskError("it is larger than a GiB", where=file, hint="check what stands there")
    return digest


def _regular_files(base: OrgPath) -> Iterator[str]:
    """Yield the paths of the files that count, and of those that are too large for it."""
    above = len(f"{base}/")
    for top in FOLDERS:
        for _, inner, files in () if os.path.islink(base / top) else walk(f"{base}/{top}"):
            inner[:] = [name for name in inner if name != LEFT_OUT]
            for file in files:
                if not is_temporary(file.name) and file.is_file(follow_symlinks=False):
                    yield file.path[above:]
    if os.path.isfile(base / paths.TICK_FILE) and not os.path.islink(base / paths.TICK_FILE):
        yield paths.TICK_FILE


def _digest_below(base: OrgPath, file: str) -> str | None:
    """Do what `file_digest` does, and return `TOO_LARGE` for such a file."""
    try:
        descriptor = os.open(os.path.join(base, file), _READ)  # one outside is absolute
        try:
            size = require_regular(descriptor, file).st_size
            if size > LARGEST_BYTES:
                return TOO_LARGE
            content = os.read(descriptor, min(size + 1, _BLOCK_BYTES))
            digest = sha256(content)
            while len(content) == _BLOCK_BYTES:
                digest.update(content := os.read(descriptor, _BLOCK_BYTES))
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DiskError(why_unreadable(error), where=file, hint="check what stands there") from error
    return digest.hexdigest()
