"""Message lists: the inbox of an agent's next turn, the entries an agent wrote, and a person's unread entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.inboxes.inbox import build_inbox
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.queries.tick_preview import preview_tick

PERSON_INBOX_CHARS = 1 << 30  # a screen has room


class MessageList(NamedTuple):
    """Entries in reading order; `unread` contains the files of new entries.

    `omitted`: number of entries cut by the limit. `waiting`: number of new entries that do not fit.
    `problems`: files that are not valid entries. For a person, `mark` is the read mark after these entries,
    and `mark_of_all` the read mark after all entries.
    """

    entries: Sequence[OutboxEntry]
    problems: Sequence[Problem]
    unread: frozenset[str] = frozenset()
    omitted: int = 0
    waiting: int = 0
    mark: ReadMark | None = None
    mark_of_all: ReadMark | None = None


def load_inbox(base: OrgPath, agent: Agent, config: Config, limit: int) -> MessageList:
    """Return the inbox of an agent's next turn, or a person's unread entries, new entries first."""
    preview = preview_tick(base, config)
    org, is_person = config.org, config.is_person(agent)
    view = ReaderView(preview.snapshot.mail, agent, read_state(base, agent.name).read)
    max_entries, chars = (limit, PERSON_INBOX_CHARS) if is_person else (org.inbox_limit, org.inbox_chars)
    box = build_inbox(view, limit=max_entries, chars=chars)
    entries = [*box.unread, *box.earlier]
    full_mark = view.next_mark((), (), is_complete=True) if is_person else None
    unread = frozenset(entry.file for entry in box.unread)
    omitted = max(len(entries) - limit, 0)
    return MessageList(
        entries[:limit], box.problems, unread, omitted, box.waiting, box.mark if is_person else None, full_mark
    )


def record_read_mark(base: OrgPath, name: str, mark: ReadMark | None) -> None:
    """Record a person's read mark in the ledger, because no turn of a person does."""
    state = read_state(base, name)
    if mark is not None and mark != state.read:
        amend_state(base, name, replace(state, read=mark), sync=False)
