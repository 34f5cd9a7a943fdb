"""Files in outboxes that nobody is shown: those whose names are no entry's, and entries of ticks to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath

NAMED = 3


def misplaced(base: OrgPath, authors: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield a warning for each outbox that holds such files; `tick` is the one that runs, or runs next.

    Outboxes are listed, nothing in them is opened.
    """
    for author in filter(paths.AGENT_NAME.match, authors):
        try:
            files = fs.list_names(f"{base}/{paths.outbox_folder(author)}")
        except OSError:  # no folder, or one that may not be read
            continue
        yield from misplaced_files(author, files, tick)


def misplaced_files(author: str, files: Sequence[str], tick: int) -> Iterator[Problem]:
    """Yield warnings about the files of one outbox."""
    yield from _stray_problems(author, [file for file in files if not paths.ENTRY_FILE.match(file)])
    yield from future_tick_problems(author, files, tick)


def future_tick_problems(author: str, files: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield a warning if some of the files of one outbox are entries of ticks after `tick`."""
    now = f"{tick + 1:08d}"
    candidates = (file for file in files if file >= now or file[8:9] != "_")  # most ticks have eight digits
    told = ((int(match[1]), file) for file in candidates if (match := paths.ENTRY_FILE.match(file)))
    yield from _later_problems(author, sorted(each for each in told if each[0] > tick))


def _stray_problems(author: str, strays: list[str]) -> Iterator[Problem]:
    if strays:
        message = f"{_names(strays)}: ignored, not an entry's file name"
        yield _warning(author, message, "entries are named TICK_ID.json, like 00000042_3fa9c1d2e0b7.json")


def _later_problems(author: str, later: Sequence[tuple[int, str]]) -> Iterator[Problem]:
    if later:
        first, file = later[0]
        hint = f'rename it (and set its "tick") to bring it forward: agents/{author}/outbox/TICK_ID.json'
        more = f" (and {len(later) - 1} more such)" if len(later) > 1 else ""
        message = f"{file} is of tick {first}: nobody is shown it before that tick{more}"
        yield _warning(author, message, hint)


def _names(files: list[str]) -> str:
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return ", ".join(name[:80] for name in files[:NAMED]) + more


def _warning(author: str, message: str, hint: str) -> Problem:
    folder = paths.outbox_folder(author)
    return Problem(message, file=folder, hint=hint, severity="warning", code="LMG-305")
