"""What a turn asks persons beside its calls, such as to let entries in. Pure.

It is written as the turn ends, after the turn's own entries, and no request waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemming.files.documents import value_of
from lemming.journal.begun import Asked
from lemming.leave import waiting_call
from lemming.mail.closing import last_tick, not_after_in
from lemming.messages import ENTRIES_PER_TURN, OutboxEntry, entry_id
from lemming.turn.draft import Draft


def ask_about(draft: Draft) -> list[OutboxEntry]:
    """Return the requests that a turn writes after its own entries, as far as there is room."""
    name, tick, first = draft.inputs.agent.name, draft.inputs.tick, len(draft.entries)
    room, review = ENTRIES_PER_TURN - first, draft.inputs.review
    return [
        OutboxEntry(entry_id(tick, name, number), tick, name, "request", payload, [], review["at"])
        for number, payload in enumerate([*review["new"], *draft.more][:room], first)
    ]


def asked_after(review: Mapping[str, Any], standing: Sequence[OutboxEntry]) -> tuple[Asked, ...]:
    """Return what an agent asked leave for beside calls, after a turn: what stands, and what is new."""
    before = [value_of(Asked, plain) for plain in review["asked"]]
    new = [
        Asked(
            request=entry.identity,
            to=to,
            until=last_tick(entry),
            leave=waiting_call(entry.payload),
            not_after=not_after_in(entry.payload),
        )
        for entry in standing
        for to in sorted(entry.targets)
    ]
    return (*before, *new)
