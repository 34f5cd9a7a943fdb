"""The inbox: a view, never a folder, of the entries shown to a turn.

Rules: docs/concepts.md, "What a turn sees". Unread entries come first, up to a limit. If there are more,
authors alternate, which prevents a prolific author from blocking the others. The remaining entries stay
unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter
from typing import cast

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.errors import Problem
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import Agenda
from lemming.kernel.inboxes.visibility import OWN_ENTRIES_SHOWN, MailView
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import EntryName, OutboxEntry


@accept_old_names
@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Inbox:
    """Entries shown to a turn. `waiting`: number of unread entries without room. `mark`: the mark after the commit."""

    unread: Sequence[OutboxEntry]
    earlier: Sequence[OutboxEntry]
    own_entries: Sequence[OutboxEntry]
    waiting: int
    mark: ReadMark
    problems: Sequence[Problem] = ()


NO_INBOX = Inbox((), (), (), 0, ReadMark())
"""The inbox of a turn that serves one request only."""


_get_payload_chars = attrgetter("payload_chars")


def build_inbox(view: ReaderView, *, limit: int, chars: int, agenda: Agenda | None = None) -> Inbox:
    """Return the inbox of a turn: unread entries, then the newest earlier entries, then the reader's own.

    If there are more unread entries than fit, authors alternate. Entries with a turn of their own, according
    to the `agenda`, are left out.
    """
    mail = view.mail
    new = _collect_new(view, view.iter_unread(), limit, chars, agenda)
    if not new.is_complete:
        new = _collect_new(view, view.iter_unread_fair(), limit, chars, agenda)
        new.accepted = {name: new.accepted[name] for name in sorted(new.accepted, key=mail.key)}
        new.unreadable = {name: new.unreadable[name] for name in sorted(new.unreadable, key=mail.key)}
    remaining = 0 if new.is_complete else view.count_unread() - new.name_count
    earlier: list[OutboxEntry] = []
    remaining_chars = 0
    if not remaining:
        names = view.iter_other({*new.accepted, *new.unreadable, *new.deferred})
        earlier, remaining_chars = _fit_newest(mail, names, limit - len(new.accepted), new.remaining_chars)
    own_entries, _ = _fit_newest(mail, mail.newest_own(view.reader), OWN_ENTRIES_SHOWN, remaining_chars)
    return Inbox(
        unread=[*new.accepted.values()],
        earlier=earlier,
        own_entries=own_entries,
        waiting=remaining,
        mark=view.next_mark(
            [*new.accepted, *new.irrelevant], new.unreadable, is_complete=new.is_complete and not new.deferred
        ),
        problems=[*chain.from_iterable(new.unreadable.values())],
    )


def has_unread(view: ReaderView, agenda: Agenda | None = None) -> bool:
    """Return True if there is an entry to show as new, or an unreadable entry that is not recorded."""
    results = ((name, view.mail.read(name)) for name in view.iter_unread())
    return any(
        entry.is_news_to_reader(view.reader, view.mail.known_names) and not (agenda and agenda.is_excluded(entry))
        if isinstance(entry, OutboxEntry)
        else (entry is None or not view.mark.is_unreadable(name)) and not (agenda and agenda.only_addressed)
        for name, entry in results
    )


@dataclass(slots=True)
class _NewEntries:
    """New entries: `accepted`, `irrelevant` to the reader, `unreadable`, or `deferred` to a turn of their own.

    `remaining_chars`: size limit left for more entries. `is_complete`: True if every name was treated.
    """

    remaining_chars: int
    accepted: dict[EntryName, OutboxEntry] = field(default_factory=dict)
    irrelevant: list[EntryName] = field(default_factory=list)
    unreadable: dict[EntryName, Sequence[Problem]] = field(default_factory=dict)
    deferred: list[EntryName] = field(default_factory=list)
    is_complete: bool = True

    @property
    def name_count(self) -> int:
        """Number of treated names."""
        return len(self.accepted) + len(self.irrelevant) + len(self.unreadable) + len(self.deferred)


def _collect_new(
    view: ReaderView, names: Iterator[EntryName], limit: int, chars: int, agenda: Agenda | None
) -> _NewEntries:
    """Read entries until count or size is used up; the first is accepted at any size."""
    new, mail, reader, named = (_NewEntries(remaining_chars=chars), view.mail, view.reader, view.mail.known_names)
    for name in names:
        result = mail.get_cached(name) or mail.read(name)
        if isinstance(result, OutboxEntry):
            if (result.targets and not result.is_news_to_reader(reader, named)) or (
                agenda and agenda.is_irrelevant(result)
            ):
                new.irrelevant.append(name)
                continue
            if agenda and agenda.is_deferred(result):
                new.deferred.append(name)
                continue
            if result.payload_chars > new.remaining_chars and new.accepted:
                new.is_complete = False
                break
            new.accepted[name] = result
            new.remaining_chars -= result.payload_chars
            if len(new.accepted) == limit:
                new.is_complete = new.is_complete and next(names, None) is None
                break
        # Gone, or not there to be read yet: its tick is not marked as shown, so it is looked for again.
        elif result is None:
            new.is_complete = False
        else:
            new.unreadable[name] = result.problems
    return new


def _fit_newest(
    mail: MailView, names: Iterable[EntryName], limit: int, remaining_chars: int
) -> tuple[list[OutboxEntry], int]:
    """Return the newest entries that fit, newest last, and the size left. Names: newest first; the first one fits."""
    entries: list[OutboxEntry] = []
    if limit > 0 and remaining_chars > 0:
        names = iter(names)
        newest = [*islice(names, limit)]
        cached = [*map(mail.get_cached, newest)]
        if (
            all(cached) and (new_remaining := remaining_chars - sum(map(_get_payload_chars, cached))) >= 0
        ):  # as nearly always
            cached.reverse()
            return cast("list[OutboxEntry]", cached), new_remaining
        for name in chain(newest, names):
            entry = mail.get_cached(name)
            if entry is None:
                if not isinstance(result := mail.read(name), OutboxEntry):
                    continue
                entry = result
            new_remaining = remaining_chars - entry.payload_chars
            if new_remaining < 0 and entries:
                break
            entries.append(entry)
            remaining_chars, limit = new_remaining, limit - 1
            if not limit:
                break
    entries.reverse()
    return entries, remaining_chars
