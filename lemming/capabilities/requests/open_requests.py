"""What an agent has begun and not finished, as its turn leaves it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lemming.capabilities.requests.request_turn import OWN_ACCOUNT
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.journal.begun import Begun
from lemming.kernel.mail.references import named_in
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.dialogue import keep_dialogue
from lemming.kernel.turn.draft import Draft


def find_still_open(draft: Draft, before: tuple[Begun, ...]) -> tuple[Begun, ...]:
    """Return what an agent has begun, with the requests that its turn was shown and did not answer."""
    before = tuple(replace(it, stands_still=False) if it.stands_still else it for it in before)
    if not draft.inputs.open_requests:
        return before
    responses = (entry for entry in draft.entries if entry.kind == "response")
    answered = {name for entry in responses for name in named_in(entry.payload.get("reply_to"))}
    shown = (it for it in draft.inputs.open_requests if answered.isdisjoint((it, it.rpartition("_")[2])))
    begun = (it for it in before if it.says_anything)
    return (*begun, *(Begun(request=identity) for identity in shown))


def list_own_account(
    draft: Draft, entries: Sequence[OutboxEntry], calls: Mapping[str, int]
) -> tuple[Begun, ...]:
    """Return what a turn asked by these entries on the agent's own account, if by any.

    `calls`: which of the results not shown yet, from 1, the answers to entries will be.
    """
    if not entries:
        return ()
    keep = partial(keep_dialogue, draft)
    return (OWN_ACCOUNT.after(entries, draft.unshown, calls, held=draft.held, keep_dialogue=keep),)


def count_asked(draft: Draft) -> dict[str, int]:
    """Return which of the results not shown yet, from 1, the answers to entries will be."""
    return {
        entry: sum(number < place for number in draft.unshown_places)
        for entry, place in draft.asked.items()
        if place > draft.shown
    }


def answering(new: NewEntry, open_requests: Mapping[str, str]) -> NewEntry:
    """Return an answer addressed to whoever asked; one that names no request is to the only one there is.

    `open_requests`: who asked, by the request's identity.
    """
    reply_to = new.payload.get("reply_to")
    named = [*open_requests] if reply_to is None else named_in(reply_to)
    meant = [it for it in open_requests if it in named or it.rpartition("_")[2] in named]
    if new.kind != "response" or len(meant) != 1:
        return new
    identity = meant[0]
    known = {"reply_to": identity.rpartition("_")[2], "target": open_requests[identity]}
    return new._replace(payload={**new.payload, **known})
