"""Access modes of new files and folders.

Journals, ledgers, logs, outboxes, memories and archived files hold messages of people and models. They are
readable by their owner, and by the group if the umask leaves the group all rights. All other files follow the
umask: people and commands under other users work with them.
"""

from __future__ import annotations

import os
import re
import stat

PRIVATE_FOLDERS = (".lemming", "logs", "aside", "agents/*/outbox", "agents/*/memory", "agents/*/logs")
"""The private folders, which also protect everything below."""

PRIVATE_LEDGERS = ("agents/*/turns.jsonl", "agents/*/channel.jsonl")

_FOLDER, _FILE, _OTHERS, _GROUP = 0o755, 0o644, 0o007, 0o070
_PRIVATE_FOLDER = re.compile(r"(?:\.lemming|logs|aside|agents/[^/]+/(?:outbox|memory|logs))(?:/|\Z)")
_PRIVATE_FILE = re.compile(r"(?:\.lemming|logs)/|agents/[^/]+/(?:logs/|(?:turns|channel)\.jsonl\Z)")


def folder_mode(relative: str) -> int:
    """Return the mode for a new folder of an organisation, before the umask."""
    return _restrict_mode(_FOLDER) if _PRIVATE_FOLDER.match(relative) else _FOLDER


def file_mode(relative: str) -> int:
    """Return the mode for a new file, before the umask.

    Entries and memories rely on the privacy of their folders, which a person may open up.
    """
    return _restrict_mode(_FILE) if _PRIVATE_FILE.match(relative) else _FILE


def existing_mode(folder: int, name: str) -> int | None:
    """Return the mode of the file to be replaced, which is preserved, or None if there is none."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    return mode & 0o777 | 0o600 if stat.S_ISREG(mode) else None


def _restrict_mode(mode: int) -> int:
    return mode & ~(_OTHERS | (_GROUP if _umask() & _GROUP else 0))


def _umask() -> int:
    """Return the process's umask, on Linux without setting the umask for an instant."""
    try:
        with open("/proc/self/status", "rb") as file:
            if match := re.search(rb"^Umask:\s*([0-7]+)$", file.read(), re.MULTILINE):
                return int(match[1], 8)
    except OSError:
        pass
    umask = os.umask(_GROUP | _OTHERS)
    os.umask(umask)
    return umask
