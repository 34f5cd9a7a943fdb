"""Files in outboxes no reader is shown: files without an entry's name, and entries of future ticks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath

MAX_NAMED = 3


def find_misplaced(base: OrgPath, authors: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield a warning for each outbox with misplaced files. `tick` is the current or the next tick.

    Outboxes are listed, and no file is opened.
    """
    for author in filter(paths.AGENT_NAME.match, authors):
        try:
            files = fs.list_names(f"{base}/{paths.outbox_folder(author)}")
        except OSError:  # not a folder, or an unreadable one
            continue
        yield from misplaced_files(author, files, tick)


def misplaced_files(author: str, files: Sequence[str], tick: int) -> Iterator[Problem]:
    """Yield warnings about the files of an outbox."""
    yield from _stray_problems(author, [file for file in files if not paths.ENTRY_FILE.match(file)])
    yield from future_tick_problems(author, files, tick)


def future_tick_problems(author: str, files: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield a warning if any file of an outbox is an entry of a tick after `tick`."""
    prefix = f"{tick + 1:08d}"
    candidates = (file for file in files if file >= prefix or file[8:9] != "_")  # most ticks have eight digits
    entries = ((int(match[1]), file) for file in candidates if (match := paths.ENTRY_FILE.match(file)))
    yield from _future_problems(author, sorted(entry for entry in entries if entry[0] > tick))


def _stray_problems(author: str, strays: list[str]) -> Iterator[Problem]:
    if strays:
        message = f"{_names(strays)}: file names of entries must be TICK_ID.json; ignored"
        yield _warning(author, message, "rename them like 00000042_3fa9c1d2e0b7.json")


def _future_problems(author: str, later: Sequence[tuple[int, str]]) -> Iterator[Problem]:
    if later:
        first, file = later[0]
        hint = f'rename it (and set its "tick") to bring it forward: agents/{author}/outbox/TICK_ID.json'
        suffix = f" (and {len(later) - 1} more such)" if len(later) > 1 else ""
        message = f"{file} is of tick {first}: no agent sees it before that tick{suffix}"
        yield _warning(author, message, hint)


def _names(files: list[str]) -> str:
    suffix = f" and {len(files) - MAX_NAMED} more" if len(files) > MAX_NAMED else ""
    return ", ".join(name[:80] for name in files[:MAX_NAMED]) + suffix


def _warning(author: str, message: str, hint: str) -> Problem:
    folder = paths.outbox_folder(author)
    return Problem(message, file=folder, hint=hint, severity="warning", code="LMG-305")
