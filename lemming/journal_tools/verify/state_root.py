r"""The state root: a SHA-256 over the files of an organisation, reproducible with standard tools.

Files: every regular file below `agents/`, `config/`, `shared/` and `trust/`, and `tick.json`. Excluded:
folders named `logs`, files named `.*.tmp` (remains of an interrupted write), files more than a hundred
folders deep, and files larger than a GiB. Symbolic links are neither followed nor counted.

List: a line for each file, consisting of the SHA-256 in hex, two spaces, the path relative to the
organisation's folder, and a line end; the lines are sorted by the bytes of the paths. The root is the SHA-256
of this list. In a shell, in the organisation's folder (with `trust` before `tick.json`, if this folder
exists):

    find agents config shared tick.json -type f -not -path '*/logs/*' -not -name '.*.tmp' -size -1048577k |
        LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum

(`sha256sum` escapes names with a backslash or a line end; the list here does not.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.descriptors import require_regular, walk
from lemming.kernel.files.json_documents import unreadable_reason
from lemming.kernel.files.safe_folder import is_temporary
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.concurrency.process_chunks import map_chunks

ReportProgress = Callable[[str, int, int], None]
"""Receives the current step, the finished amount and the total."""
COUNTED_FOLDERS = ("agents", "config", "shared", paths.TRUST)
EXCLUDED_FOLDER = "logs"
FILE_LIMIT_BYTES = 1 << 30  # larger files take too long, and no turn writes one
TOO_LARGE = "too large"
_BLOCK_BYTES = 1 << 20
MIN_FILES_FOR_PROCESSES = 10_000
"""Number of files from which several processes pay."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe must not wait


def load_state_root(base: OrgPath) -> str:
    """Return the state root in hex. Raises `DiskError` for an unreadable file."""
    return compute_state_root(compute_file_digests(base))


def compute_state_root(digests: dict[str, str]) -> str:
    """Return the state root of files with known SHA-256 digests, by path."""
    counted = {path: digest for path, digest in digests.items() if digest != TOO_LARGE}
    lines = sorted((os.fsencode(path), digest.encode()) for path, digest in counted.items())
    return sha256(b"".join(b"%b  %b\n" % (digest, path) for path, digest in lines)).hexdigest()


def compute_file_digests(
    base: OrgPath, steps: ReportProgress = lambda *_: None, *, uses_all_cores: bool = False
) -> dict[str, str]:
    """Return the SHA-256 of every counted file, by path, with `TOO_LARGE` in place of the digest of an oversized file.

    Raises `DiskError` for an unreadable file. `steps` is called with the progress.
    """
    digests, files = dict[str, str](), [*_iter_regular_files(base)]
    digest_all, is_large = partial(_digest_files, str(base)), uses_all_cores and len(files) >= MIN_FILES_FOR_PROCESSES
    for number, (path, digest) in enumerate(map_chunks(digest_all, files, in_processes=is_large)):
        if not number % 100:
            steps("files", number, len(files))
        if digest:  # a file removed since the listing has none
            digests[path] = digest
    return digests


def _digest_files(base: str, files: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    for file in files:
        yield file, _digest_file(Path(base), file)


def list_counted_files(base: OrgPath) -> list[str]:
    """Return the paths of the files in the state root, in the order of the list."""
    files = (file for file in _iter_regular_files(base) if os.lstat(base / file).st_size <= FILE_LIMIT_BYTES)
    return sorted(files, key=os.fsencode)


def compute_file_digest(base: OrgPath, file: str) -> str | None:
    """Return the SHA-256 of a regular file in hex, or None if the file is missing. Raises `DiskError`."""
    digest = _digest_file(base, file)
    if digest == TOO_LARGE:
        raise DiskError(
            "the file is larger than the limit of 1 GiB", where=file, hint="move the file away, or repair it"
        )
    return digest


def _iter_regular_files(base: OrgPath) -> Iterator[str]:
    """Yield the paths of the counted files and of the oversized files."""
    prefix_length = len(f"{base}/")
    for folder in COUNTED_FOLDERS:
        for _, subfolders, files in () if os.path.islink(base / folder) else walk(f"{base}/{folder}"):
            subfolders[:] = [name for name in subfolders if name != EXCLUDED_FOLDER]
            for file in files:
                if not is_temporary(file.name) and file.is_file(follow_symlinks=False):
                    yield file.path[prefix_length:]
    if os.path.isfile(base / paths.TICK_FILE) and not os.path.islink(base / paths.TICK_FILE):
        yield paths.TICK_FILE


def _digest_file(base: OrgPath, file: str) -> str | None:
    """Return the SHA-256 of a file in hex, None for a missing file, or `TOO_LARGE` for an oversized file."""
    try:
        descriptor = os.open(os.path.join(base, file), _READ)  # paths outside are absolute
        try:
            size = require_regular(descriptor, file).st_size
            if size > FILE_LIMIT_BYTES:
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
        raise DiskError(unreadable_reason(error), where=file, hint="check the file") from error
    return digest.hexdigest()
