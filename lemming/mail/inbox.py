"""The inbox: a view, never a folder. What of all that a turn may see it is shown.

Rules: docs/concepts.md, "What a turn sees". Unread entries come first, up to a limit; where they are more,
authors take turns, lest one that writes much keep the others' waiting. The rest stay unread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from lemming.errors import Problem
from lemming.journal.read_mark import ReadMark
from lemming.mail.view import View
from lemming.messages import EntryName, OutboxEntry

OWN_ENTRIES_SHOWN = 3


class Inbox(NamedTuple):
    """What one turn is shown. `waiting` unread entries did not fit; `mark` holds once it is committed."""

    unread: Sequence[OutboxEntry]
    known: Sequence[OutboxEntry]
    own: Sequence[OutboxEntry]
    waiting: int
    mark: ReadMark
    problems: Sequence[Problem] = ()


def assemble(view: View, own_newest: Iterable[EntryName], *, limit: int, chars: int) -> Inbox:
    """Return what a turn is shown: what is new, then the newest of what it knows, then its own.

    Where there is more that is new than there is room, authors take turns. `own_newest`: the reader's own
    entries, newest first.
    """
    new = _take_new(view, view.fresh(), limit, chars)
    if not new.is_all:
        new = _take_new(view, view.fresh_by_turns(), limit, chars)
        new.sort(view.room.key)
    left = 0 if new.is_all else view.count_fresh() - len(new.names) - len(new.passed) - len(new.bad)
    known, room = ([], 0) if left else _newest(view, view.known(new.passed), limit - len(new.names), new.room)
    own, _ = _newest(view, own_newest, OWN_ENTRIES_SHOWN, room)
    return Inbox(
        unread=tuple(new.entries),
        known=tuple(known),
        own=tuple(own),
        waiting=left,
        mark=view.mark_after({*new.names, *new.passed}, {*new.bad}, is_all=new.is_all),
        problems=tuple(chain.from_iterable(new.bad.values())),
    )


@dataclass(slots=True)
class _New:
    """Entries that were read, those that are new to others only, those that are unusable and why.

    `room` is what is left of it. `is_all`: each name was one or the other.
    """

    names: list[EntryName] = field(default_factory=list)
    entries: list[OutboxEntry] = field(default_factory=list)
    passed: set[EntryName] = field(default_factory=set)
    bad: dict[EntryName, Sequence[Problem]] = field(default_factory=dict)
    room: int = 0
    is_all: bool = True

    def sort(self, key: Callable[[EntryName], Any]) -> None:
        """Put everything into the order in which it was written."""
        entries = dict(zip(self.names, self.entries, strict=True))
        self.names.sort(key=key)
        self.entries = [entries[name] for name in self.names]
        self.bad = {name: self.bad[name] for name in sorted(self.bad, key=key)}


def _take_new(view: View, names: Iterator[EntryName], limit: int, chars: int) -> _New:
    """Read entries until count or room is used up; the first is taken whatever its size."""
    new, reader, named = _New(room=chars), view.reader, view.room.named
    for name, found in view.room.read(names):
        if isinstance(found, OutboxEntry):
            if found.targets and not found.is_new_to(reader, named):
                new.passed.add(name)
                continue
            size = found.payload_chars
            if size > new.room and new.names:
                new.is_all = False
                break
            new.names.append(name)
            new.entries.append(found)
            new.room -= size
            if len(new.names) == limit:
                new.is_all = new.is_all and next(names, None) is None
                break
        elif found is None:
            new.is_all = False
        else:
            new.bad[name] = found.problems
    return new


def _newest(view: View, names: Iterable[EntryName], limit: int, room: int) -> tuple[list[OutboxEntry], int]:
    """Return the entries that fit, of names that begin with the newest; the newest last. And the room left.

    The first is taken whatever its size.
    """
    entries: list[OutboxEntry] = []
    if limit > 0 and room > 0:
        for _, found in view.room.read(names):
            if isinstance(found, OutboxEntry):
                size = found.payload_chars
                if size > room and entries:
                    break
                entries.append(found)
                room -= size
                if len(entries) == limit:
                    break
    entries.reverse()
    return entries, room
