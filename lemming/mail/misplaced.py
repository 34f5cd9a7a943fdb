"""Files in outboxes that nobody is shown: those whose names are no entry's, and entries of ticks to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lemming import paths
from lemming.errors import Problem
from lemming.files import fs
from lemming.mail.index import Outbox

NAMED = 3


def misplaced(base: Path, authors: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield a warning for each outbox that holds such files; `tick` is the one that runs, or runs next.

    Outboxes are listed, nothing in them is opened.
    """
    for author in filter(paths.AGENT_NAME.match, authors):
        try:
            files = fs.list_names(f"{base}/{paths.outbox_folder(author)}")
        except OSError:  # no folder, or one that may not be read
            continue
        yield from about_files(author, files, tick)


def about_files(author: str, files: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield warnings about the files of one outbox."""
    strays: list[str] = []
    later: list[tuple[int, str]] = []
    for file in files:
        if not (match := paths.ENTRY_FILE.match(file)):
            strays.append(file)
        elif int(match[1]) > tick:
            later.append((int(match[1]), file))
    yield from _warnings(author, strays, sorted(later))


def about_outbox(author: str, outbox: Outbox, strays: list[str], tick: int) -> Iterator[Problem]:
    """Yield warnings about one outbox: `strays` are the names in it that are no entry's."""
    if strays or outbox.last_tick > tick:
        later = outbox.names[len(outbox.older_than(tick + 1)) :]
        yield from _warnings(author, strays, [(name.tick, name.file.rpartition("/")[2]) for name in later])


def _warnings(author: str, strays: list[str], later: Sequence[tuple[int, str]]) -> Iterator[Problem]:
    folder = paths.outbox_folder(author)
    if strays:
        hint = "entries are named TICK_ID.json, like 00000042_3fa9c1d2e0b7.json"
        yield _warning(f"{_names(strays)}: ignored, not an entry's file name", folder, hint)
    if later:
        first, file = later[0]
        hint = f'rename it (and set its "tick") to bring it forward: agents/{author}/outbox/TICK_ID.json'
        more = f" (and {len(later) - 1} more such)" if len(later) > 1 else ""
        message = f"{file} is of tick {first}: nobody is shown it before that tick{more}"
        yield _warning(message, folder, hint)


def _names(files: list[str]) -> str:
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return ", ".join(name[:80] for name in files[:NAMED]) + more


def _warning(message: str, folder: str, hint: str) -> Problem:
    return Problem(message, file=folder, hint=hint, severity="warning", code="LMG-305")
