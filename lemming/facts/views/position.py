"""How far an organisation has come, as one word: another one whenever anything is there that a view shows.

Made of what `stat` tells of files that change as ticks run and as people write; nothing is read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.org.organisation import Organisation
from lemming.service.under_way import running_engine

FILES = (paths.TICK_FILE, paths.LOCK_FILE, paths.CIRCUITS_FILE, paths.TURNS_NOT_DONE)
FOLDERS = ("agents", "config", paths.JOURNALS, "shared")
IN_AN_AGENT = ("", "/outbox", "/memory", "/resume.json", "/turns.jsonl")


def position_of(org: Organisation) -> str:
    """Return the position: the newest tick that has a journal, the bytes of that, and a digest of the rest.

    The rest are the stamps of all that a tick, a person or an editor changes, and who runs the organisation.
    """
    digest = blake2b(digest_size=9)
    for path in _places(org.base):
        digest.update(_stamp(path))
    digest.update(repr(running_engine(org)).encode())
    tick, length = _journal(org.base)
    return f"{tick}.{length}.{digest.hexdigest()}"


def _journal(base: Path) -> tuple[int, int]:
    """Return the newest tick that has a file of its own, and how long that is."""
    for name in reversed(_names(f"{base}/{paths.JOURNALS}")):
        if found := paths.JOURNAL_FILE.match(name):
            with contextlib.suppress(OSError):
                return int(found[1]), os.stat(f"{base}/{paths.JOURNALS}/{name}").st_size
    return 0, 0


def _places(base: Path) -> Iterator[str]:
    yield from (f"{base}/{file}" for file in FILES)
    for folder in FOLDERS:
        yield f"{base}/{folder}"
        if folder != "agents":
            yield from (f"{base}/{folder}/{name}" for name in _names(f"{base}/{folder}")[-3:])
    for agent in _names(f"{base}/agents"):
        yield from (f"{base}/agents/{agent}{place}" for place in IN_AN_AGENT)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _stamp(path: str) -> bytes:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return b"-"
    return b"%d.%d.%d" % (found.st_mtime_ns, found.st_size, found.st_ino)
