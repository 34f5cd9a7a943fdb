"""Messages: what an agent's next turn would see, what it has written, and what a person has not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lemming.facts.preview import preview_tick
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.mail.inbox import assemble
from lemming.kernel.messages import OutboxEntry, read_outbox_entries
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import is_for_a_person
from lemming.timeline.outbox_problems import outbox_problems

A_PERSONS_CHARS = 1 << 30  # a screen has room


class Messages(NamedTuple):
    """Entries in the order in which they are read; `unread` are the files of those that are new.

    `more` are left out by the limit that was asked for, `waiting` new ones do not fit. `problems`: files that
    are no entries. Once these were shown to a person `mark` says what they have read, `mark_of_all` that they
    have read all there is.
    """

    entries: Sequence[OutboxEntry]
    problems: Sequence[Problem]
    unread: frozenset[str] = frozenset()
    more: int = 0
    waiting: int = 0
    mark: ReadMark | None = None
    mark_of_all: ReadMark | None = None


def inbox_of(base: OrgPath, agent: Agent, config: Config, limit: int) -> Messages:
    """Return what an agent's next turn would see, or what a person has not read: new ones first."""
    preview = preview_tick(base, config)
    org, is_person = config.org, is_for_a_person(agent, config)
    view = preview.snapshot.mail.view(agent, read_state(base, agent.name).read)
    room, chars = (limit, A_PERSONS_CHARS) if is_person else (org.inbox_limit, org.inbox_chars)
    box = assemble(view, limit=room, chars=chars)
    found = [*box.unread, *box.known]
    all_read = view.mark_after((), (), is_all=True) if is_person else None
    unread = frozenset(entry.file for entry in box.unread)
    more = max(len(found) - limit, 0)
    return Messages(
        found[:limit], box.problems, unread, more, box.waiting, box.mark if is_person else None, all_read
    )


def outbox_of(
    base: OrgPath, name: str, limit: int, kind: MessageKind | None = None, *, with_problems: bool = False
) -> Messages:
    """Return the newest entries that an agent has written, oldest first; all are read for `problems`."""
    found = read_outbox_entries(base, name, None if kind else limit)
    problems = outbox_problems(base, name) if with_problems else ()
    return Messages([it for it in found if kind in (None, it.kind)][-limit:], problems)


def note_read(base: OrgPath, name: str, mark: ReadMark | None) -> None:
    """Note in a person's ledger what they have read; no turn of theirs ever will."""
    state = read_state(base, name)
    if mark is not None and mark != state.read:
        amend_state(base, name, replace(state, read=mark), sync=False)
