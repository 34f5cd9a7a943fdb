"""How entries are listed: one a line for people, one object a line for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lemming.base.clock import SystemClock, timestamp
from lemming.commands.narration import text_of
from lemming.commands.screen import one_line, painted, show, show_json
from lemming.messages import OutboxEntry


def show_entries(entries: Sequence[OutboxEntry], *, unread: Iterable[str] = (), with_author: bool) -> None:
    """Print entries one a line; those whose file is in `unread` are marked with a star."""
    fresh, now = set(unread), timestamp(SystemClock().now())
    tick_width = max((len(str(entry.tick)) for entry in entries), default=0)
    author_width = max((len(entry.agent) for entry in entries), default=0)
    for entry in entries:
        mark = "* " if entry.file in fresh else "  " if fresh else ""
        author = f"{entry.agent.ljust(author_width)}  " if with_author else ""
        tags = painted(f"  #{' #'.join(one_line(tag) for tag in entry.tags)}", "dim") if entry.tags else ""
        tags += painted(f"  (waits until {entry.not_before})", "dim") if entry.not_before > now else ""
        place = f"{mark}{entry.tick:>{tick_width}}  {author}{entry.kind:<8}"
        show(f"{place}  {one_line(text_of(entry.payload), 2000)}{tags}")


def show_entries_as_json(entries: Iterable[OutboxEntry], *, unread: Iterable[str] | None = None) -> None:
    """Print entries as objects with the keys of their files; with `unread` also whether each is."""
    fresh = None if unread is None else set(unread)
    for entry in entries:
        extra = {} if fresh is None else {"is_unread": entry.file in fresh}
        show_json("entry", {**entry.as_json(), **extra})
