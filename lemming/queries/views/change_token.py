"""A change token of an organisation: a string that differs after any change visible in a view.

The token is built from `stat` results of files that ticks and people change; no file is opened.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.operations.engine_lock import find_running_engine

WATCHED_FILES = (paths.TICK_FILE, paths.LOCK_FILE, paths.CIRCUITS_FILE, paths.TURNS_NOT_DONE)
WATCHED_FOLDERS = ("agents", "config", paths.JOURNALS, "shared")
WATCHED_AGENT_PATHS = ("", "/outbox", "/memory", "/resume.json", "/turns.jsonl")


def compute_change_token(org: Organisation) -> str:
    """Return the change token: the newest tick with a journal, the size of the journal, and a digest.

    The digest covers the file identities of everything a tick, a person or an editor changes, and the running engine.
    """
    digest = blake2b(digest_size=9)
    for path in _iter_watched_paths(org.base):
        try:
            stat_result = os.stat(path, follow_symlinks=False)
            digest.update(b"%d.%d.%d" % (stat_result.st_mtime_ns, stat_result.st_size, stat_result.st_ino))
        except OSError:
            digest.update(b"-")
    digest.update(repr(find_running_engine(org)).encode())
    tick, length = 0, 0
    for name in reversed(_list_names(f"{org.base}/{paths.JOURNALS}")):
        if match := paths.JOURNAL_FILE.match(name):
            with contextlib.suppress(OSError):
                tick, length = int(match[1]), os.stat(f"{org.base}/{paths.JOURNALS}/{name}").st_size
                break
    return f"{tick}.{length}.{digest.hexdigest()}"


def _iter_watched_paths(base: Path) -> Iterator[str]:
    yield from (f"{base}/{file}" for file in WATCHED_FILES)
    for folder in WATCHED_FOLDERS:
        yield f"{base}/{folder}"
        if folder != "agents":
            yield from (f"{base}/{folder}/{name}" for name in _list_names(f"{base}/{folder}")[-3:])
    if list_watched_files := find_fact("workers.watched_files"):
        yield f"{base}/.lemming/workers"
        yield from list_watched_files(Organisation(base))
    for agent in _list_names(f"{base}/agents"):
        yield from (f"{base}/agents/{agent}{suffix}" for suffix in WATCHED_AGENT_PATHS)


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
