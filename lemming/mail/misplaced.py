"""Files in outboxes that nobody is shown: those whose names are no entry's, and entries of ticks to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lemming import paths
from lemming.errors import Problem
from lemming.mail.index import Outbox, outboxes_of
from lemming.messages import EntryName

NAMED = 3


def misplaced(base: Path, authors: Iterable[str], tick: int) -> Iterator[Problem]:
    """Yield a warning for each outbox that holds such files; `tick` is the one that runs, or runs next."""
    outboxes = outboxes_of(base)
    for author in filter(paths.AGENT_NAME.match, authors):
        outbox = outboxes.outbox(author)
        yield from about_outbox(author, outbox, outboxes.strays(author), tick)


def about_outbox(author: str, outbox: Outbox, strays: list[str], tick: int) -> Iterator[Problem]:
    """Yield warnings about one outbox: `strays` are the names in it that are no entry's."""
    folder = paths.outbox_folder(author)
    if strays:
        hint = "entries are named TICK_ID.json, like 00000042_3fa9c1d2e0b7.json"
        yield _warning(f"{_names(strays)}: ignored, not an entry's file name", folder, hint)
    if outbox.last_tick > tick:
        later = _later(outbox, tick)
        first = later[0]
        hint = f'rename it (and set its "tick") to bring it forward: agents/{author}/outbox/TICK_ID.json'
        which = (
            f"{first.file.rpartition('/')[2]} is of tick {first.tick}: nobody is shown it before that tick"
        )
        more = f" (and {len(later) - 1} more such)" if len(later) > 1 else ""
        yield _warning(f"{which}{more}", folder, hint)


def _later(outbox: Outbox, tick: int) -> list[EntryName]:
    return list(outbox.names[len(outbox.older_than(tick + 1)) :])


def _names(files: list[str]) -> str:
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return ", ".join(name[:80] for name in files[:NAMED]) + more


def _warning(message: str, folder: str, hint: str) -> Problem:
    return Problem(message, file=folder, hint=hint, severity="warning", code="LMG-305")
