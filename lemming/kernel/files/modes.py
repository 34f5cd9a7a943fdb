"""Who may look at what the engine makes: the modes of new files and folders.

Journals, ledgers, logs, outboxes, memories and what is set aside hold what people and models tell each other.
They are for their owner, and for the group where the umask leaves it everything. All else is as the umask
says: people and commands under another user work with it.
"""

from __future__ import annotations

import os
import re
import stat

PRIVATE_PLACES = (".lemming", "logs", "aside", "agents/*/outbox", "agents/*/memory", "agents/*/logs")
"""The private folders; what lies below them is reached through them only."""

PRIVATE_LEDGERS = ("agents/*/turns.jsonl", "agents/*/channel.jsonl")

_FOLDER, _FILE, _OTHERS, _GROUP = 0o755, 0o644, 0o007, 0o070
_PRIVATE_FOLDER = re.compile(r"(?:\.lemming|logs|aside|agents/[^/]+/(?:outbox|memory|logs))(?:/|\Z)")
_PRIVATE_FILE = re.compile(r"(?:\.lemming|logs)/|agents/[^/]+/(?:logs/|(?:turns|channel)\.jsonl\Z)")


def folder_mode(relative: str) -> int:
    """Return the mode to make an organisation's folder with; the umask still takes its part."""
    return _private(_FOLDER) if _PRIVATE_FOLDER.match(relative) else _FOLDER


def file_mode(relative: str) -> int:
    """Return the mode to make a new file with; the umask still takes its part.

    Entries and memories are as private as their folders are, which a person may open.
    """
    return _private(_FILE) if _PRIVATE_FILE.match(relative) else _FILE


def kept_mode(folder: int, name: str) -> int | None:
    """Return the mode of the file that is about to be replaced, which stays; None where there is none."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    return found & 0o777 | 0o600 if stat.S_ISREG(found) else None


def _private(mode: int) -> int:
    return mode & ~(_OTHERS | (_GROUP if _umask() & _GROUP else 0))


def _umask() -> int:
    """Return the process's umask; where the system tells it (Linux) without setting it for an instant."""
    try:
        with open("/proc/self/status", "rb") as file:
            if found := re.search(rb"^Umask:\s*([0-7]+)$", file.read(), re.MULTILINE):
                return int(found[1], 8)
    except OSError:
        pass
    now = os.umask(_GROUP | _OTHERS)
    os.umask(now)
    return now
