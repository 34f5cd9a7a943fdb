"""Compute the open requests of an agent after a turn. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.inboxes.payload_references import parse_references
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.current_request import OWN_REQUESTS
from lemming.kernel.turn.dialogue import make_dialogue
from lemming.kernel.turn.turn_state import TurnState


def find_still_open(turn_state: TurnState, earlier_requests: tuple[OpenRequest, ...]) -> tuple[OpenRequest, ...]:
    """Return an agent's open requests, including requests shown to the turn and left unanswered."""
    earlier_requests = tuple(
        replace(item, stands_still=False) if item.stands_still else item for item in earlier_requests
    )
    if not turn_state.inputs.open_requests:
        return earlier_requests
    responses = (entry for entry in turn_state.entries if entry.kind == "response")
    answered = {name for entry in responses for name in parse_references(entry.payload.get("reply_to"))}
    unanswered = (
        item for item in turn_state.inputs.open_requests if answered.isdisjoint((item, item.rpartition("_")[2]))
    )
    continued = (item for item in earlier_requests if item.is_worth_recording)
    return (*continued, *(OpenRequest(request=identity) for identity in unanswered))


def list_own_requests(
    turn_state: TurnState, entries: Sequence[OutboxEntry], calls: Mapping[str, int]
) -> tuple[OpenRequest, ...]:
    """Return the open request for a turn's sub-requests on the agent's own account, if any.

    `calls`: the index (from 1) among the unshown results to which each entry's answer belongs.
    """
    if not entries:
        return ()
    keep = partial(make_dialogue, turn_state)
    return (
        OWN_REQUESTS.state_after_turn(
            entries, turn_state.unshown_results, calls, pending_states=turn_state.pending_states, keep_dialogue=keep
        ),
    )


def index_awaited_results(turn_state: TurnState) -> dict[str, int]:
    """Return the index (from 1) among the unshown results for each entry with an awaited answer."""
    return {
        entry: sum(number < position for number in turn_state.unshown_indexes)
        for entry, position in turn_state.pending_indexes.items()
        if position > turn_state.shown_count
    }


def address_answer(new_entry: NewEntry, open_requests: Mapping[str, str]) -> NewEntry:
    """Return an answer addressed to the asker. An answer without a reference goes to the only open request.

    `open_requests`: the asker of each request, by the request's identity.
    """
    reply_to = new_entry.payload.get("reply_to")
    references = [*open_requests] if reply_to is None else parse_references(reply_to)
    matches = [
        identity_
        for identity_ in open_requests
        if identity_ in references or identity_.rpartition("_")[2] in references
    ]
    if new_entry.kind != "response" or len(matches) != 1:
        return new_entry
    identity = matches[0]
    reply_fields = {"reply_to": identity.rpartition("_")[2], "target": open_requests[identity]}
    return new_entry._replace(payload={**new_entry.payload, **reply_fields})
