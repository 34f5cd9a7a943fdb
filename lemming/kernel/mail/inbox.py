"""The inbox: a view, never a folder. What of all that a turn may see it is shown.

Rules: docs/concepts.md, "What a turn sees". Unread entries come first, up to a limit; where they are more,
authors take turns, lest one that writes much keep the others' waiting. The rest stay unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter
from typing import cast

from lemming.kernel.base.errors import Problem
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.mail.agenda import Agenda
from lemming.kernel.mail.visibility import OWN_ENTRIES_SHOWN, Mail, View
from lemming.kernel.messages import EntryName, OutboxEntry


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Inbox:
    """What one turn is shown. `waiting` unread entries did not fit; `mark` holds once it is committed."""

    unread: Sequence[OutboxEntry]
    known: Sequence[OutboxEntry]
    own: Sequence[OutboxEntry]
    waiting: int
    mark: ReadMark
    problems: Sequence[Problem] = ()


NO_INBOX = Inbox((), (), (), 0, ReadMark())
"""What a turn is shown that is for one request alone."""


_chars_of = attrgetter("payload_chars")


def assemble(view: View, *, limit: int, chars: int, agenda: Agenda | None = None) -> Inbox:
    """Return what a turn is shown: what is new, then the newest of what it knows, then its own.

    Where there is more that is new than there is room, authors take turns. What has a turn of its own, as
    the `agenda` says, is left for that.
    """
    mail = view.mail
    new = _take_new(view, view.fresh(), limit, chars, agenda)
    if not new.is_all:
        new = _take_new(view, view.fresh_by_turns(), limit, chars, agenda)
        new.taken = {name: new.taken[name] for name in sorted(new.taken, key=mail.key)}
        new.bad = {name: new.bad[name] for name in sorted(new.bad, key=mail.key)}
    left = 0 if new.is_all else view.count_fresh() - new.count
    known: list[OutboxEntry] = []
    room = 0
    if not left:
        names = view.known({*new.taken, *new.bad, *new.kept})
        known, room = _newest(mail, names, limit - len(new.taken), new.room)
    own, _ = _newest(mail, mail.own_newest(view.reader), OWN_ENTRIES_SHOWN, room)
    return Inbox(
        unread=[*new.taken.values()],
        known=known,
        own=own,
        waiting=left,
        mark=view.mark_after([*new.taken, *new.passed], new.bad, is_all=new.is_all and not new.kept),
        problems=[*chain.from_iterable(new.bad.values())],
    )


def has_unread(view: View, agenda: Agenda | None = None) -> bool:
    """Return whether there is anything to show as new: what cannot be read is, until that is known."""
    found = ((name, view.mail.read(name)) for name in view.fresh())
    return any(
        entry.is_new_to(view.reader, view.mail.named) and not (agenda and agenda.sets_aside(entry))
        if isinstance(entry, OutboxEntry)
        else (entry is None or not view.mark.failed_on(name)) and not (agenda and agenda.only_addressed)
        for name, entry in found
    )


@dataclass(slots=True)
class _New:
    """Entries that are `taken`, those that are nothing new to the reader, those that are unusable and why.

    `kept` have a turn of their own. `room` is what is left of it. `is_all`: each name was one or the other.
    """

    room: int
    taken: dict[EntryName, OutboxEntry] = field(default_factory=dict)
    passed: list[EntryName] = field(default_factory=list)
    bad: dict[EntryName, Sequence[Problem]] = field(default_factory=dict)
    kept: list[EntryName] = field(default_factory=list)
    is_all: bool = True

    @property
    def count(self) -> int:
        """How many names were looked at."""
        return len(self.taken) + len(self.passed) + len(self.bad) + len(self.kept)


def _take_new(view: View, names: Iterator[EntryName], limit: int, chars: int, agenda: Agenda | None) -> _New:
    """Read entries until count or room is used up; the first is taken whatever its size."""
    new, mail, reader, named = _New(room=chars), view.mail, view.reader, view.mail.named
    for name in names:
        found = mail.at_hand(name) or mail.read(name)
        if isinstance(found, OutboxEntry):
            if (found.targets and not found.is_new_to(reader, named)) or (
                agenda and agenda.is_nothing_new(found)
            ):
                new.passed.append(name)
                continue
            if agenda and agenda.is_kept(found):
                new.kept.append(name)
                continue
            if found.payload_chars > new.room and new.taken:
                new.is_all = False
                break
            new.taken[name] = found
            new.room -= found.payload_chars
            if len(new.taken) == limit:
                new.is_all = new.is_all and next(names, None) is None
                break
        # Gone, or not there to be read yet: its tick is not marked as shown, so it is looked for again.
        elif found is None:
            new.is_all = False
        else:
            new.bad[name] = found.problems
    return new


def _newest(mail: Mail, names: Iterable[EntryName], limit: int, room: int) -> tuple[list[OutboxEntry], int]:
    """Return the entries that fit, of names that begin with the newest; the newest last. And the room left.

    The first is taken whatever its size.
    """
    entries: list[OutboxEntry] = []
    if limit > 0 and room > 0:
        names = iter(names)
        newest = [*islice(names, limit)]
        at_hand = [*map(mail.at_hand, newest)]
        if all(at_hand) and (left := room - sum(map(_chars_of, at_hand))) >= 0:  # as nearly always
            at_hand.reverse()
            return cast("list[OutboxEntry]", at_hand), left
        for name in chain(newest, names):
            found = mail.at_hand(name)
            if found is None:
                if not isinstance(anew := mail.read(name), OutboxEntry):
                    continue
                found = anew
            left = room - found.payload_chars
            if left < 0 and entries:
                break
            entries.append(found)
            room, limit = left, limit - 1
            if not limit:
                break
    entries.reverse()
    return entries, room
