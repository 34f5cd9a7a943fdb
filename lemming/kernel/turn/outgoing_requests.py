"""Extract the sub-requests from the entries of a turn, and group sub-requests awaited together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.request_deadlines import get_last_tick, parse_deadline_time
from lemming.kernel.obligations.request_payloads import required_answers


def is_question(entry: OutboxEntry) -> bool:
    """Return True if an entry asks an agent or person and is not a handoff of a request."""
    return entry.kind == "request" and bool(entry.targets) and "hands_on" not in entry.payload


def find_sub_requests(
    entries: Sequence[OutboxEntry],
    calls: Mapping[str, int],
    pending_states: Mapping[str, dict[str, Any]],
    first_group: int,
) -> tuple[list[SubRequest], list[int]]:
    """Return the sub-requests of the entries, and the number of outcomes required by each group.

    An entry with several targets is a separate group; all entries with a single target form one group. `join`
    says how many outcomes of a group are enough: "all", "first" or a number. An entry with a pending state is
    also a separate group.
    """
    sub_requests: list[SubRequest] = []
    required_counts: list[int] = []
    groups: list[list[OutboxEntry]] = [[entry] for entry in entries if _is_own_group(entry, pending_states)]
    single_target = [entry for entry in entries if is_question(entry) and not _is_own_group(entry, pending_states)]
    for group, members in enumerate([*groups, *([single_target] if single_target else [])], first_group):
        recipients = [(entry, to) for entry in members for to in sorted(entry.targets)]
        sub_requests += [
            SubRequest(
                request=entry.identity,
                to=to,
                until=get_last_tick(entry),
                group=group,
                call=calls.get(entry.identity, 0),
                held=pending_states.get(entry.identity, {}),
                not_after=parse_deadline_time(entry.payload),
            )
            for entry, to in recipients
        ]
        payload = next((entry.payload for entry in members if "join" in entry.payload), {})
        required_counts.append(required_answers(payload, len(recipients)))
    return sub_requests, required_counts


def _is_own_group(entry: OutboxEntry, pending_states: Mapping[str, dict[str, Any]]) -> bool:
    """Return True if an entry forms a separate group."""
    return is_question(entry) and (len(entry.targets) > 1 or entry.identity in pending_states)
