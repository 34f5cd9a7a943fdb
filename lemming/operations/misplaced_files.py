"""Warnings about files in outboxes that no agent sees: strays, and entries of later ticks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath

MAX_NAMED = 3


def find_all_misplaced(base: OrgPath, authors: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield a warning for each outbox with misplaced files at a current or next tick. No file is opened."""
    for author in filter(paths.AGENT_NAME.match, authors):
        try:
            files = fs.list_names(f"{base}/{paths.outbox_folder(author)}")
        except OSError:  # not a folder, or an unreadable one
            continue
        yield from find_misplaced(author, files, tick)


def find_misplaced(author: str, files: Sequence[str], tick: int) -> Iterator[Problem]:
    """Yield warnings about the files of an outbox. `tick` is the current or the next tick."""
    if strays := [file for file in files if not paths.ENTRY_FILE.match(file)]:
        suffix = f" and {len(strays) - MAX_NAMED} more" if len(strays) > MAX_NAMED else ""
        names = ", ".join(name[:80] for name in strays[:MAX_NAMED]) + suffix
        message = f"{names}: file names of entries must be TICK_ID.json; ignored"
        yield _warning(author, message, "rename them like 00000042_3fa9c1d2e0b7.json")
    yield from future_tick_problems(author, files, tick)


def future_tick_problems(author: str, files: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield a warning if any file of an outbox is an entry of a tick after `tick`."""
    prefix = f"{tick + 1:08d}"
    candidates = (file for file in files if file >= prefix or file[8:9] != "_")  # most ticks have eight digits
    entries = ((int(match[1]), file) for file in candidates if (match := paths.ENTRY_FILE.match(file)))
    if later := sorted(entry for entry in entries if entry[0] > tick):
        first, file = later[0]
        hint = f'rename it (and set its "tick") to bring it forward: agents/{author}/outbox/TICK_ID.json'
        suffix = f" (and {len(later) - 1} more such)" if len(later) > 1 else ""
        message = f"{file} is of tick {first}: no agent sees it before that tick{suffix}"
        yield _warning(author, message, hint)


def _warning(author: str, message: str, hint: str) -> Problem:
    folder = paths.outbox_folder(author)
    return Problem(message, file=folder, hint=hint, severity="warning", code="LMG-305")
