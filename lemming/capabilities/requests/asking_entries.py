"""What the entries of a turn ask of whom, and which of it is waited for together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemming.capabilities.requests.deadlines import last_tick, not_after_in
from lemming.capabilities.requests.payloads import enough_in
from lemming.kernel.journal.begun import Asked
from lemming.kernel.messages import OutboxEntry


def asks(entry: OutboxEntry) -> bool:
    """Return True if an entry asks somebody, and does not hand a request on."""
    return entry.kind == "request" and bool(entry.targets) and "hands_on" not in entry.payload


def find_asked(
    entries: Sequence[OutboxEntry],
    calls: Mapping[str, int],
    held: Mapping[str, dict[str, Any]],
    first_group: int,
) -> tuple[list[Asked], list[int]]:
    """Return the questions of the entries, and the number of ends that each group waits for.

    Each entry that asks several is a group; those that ask one agent each are one together. `join` says how
    many of a group are enough: "all", "first" or a number. What holds something is a group too.
    """
    asked: list[Asked] = []
    enough: list[int] = []
    groups: list[list[OutboxEntry]] = [[entry] for entry in entries if _is_apart(entry, held)]
    single = [entry for entry in entries if asks(entry) and not _is_apart(entry, held)]
    for group, members in enumerate([*groups, *([single] if single else [])], first_group):
        whom = [(entry, to) for entry in members for to in sorted(entry.targets)]
        asked += [
            Asked(
                request=entry.identity,
                to=to,
                until=last_tick(entry),
                group=group,
                call=calls.get(entry.identity, 0),
                held=held.get(entry.identity, {}),
                not_after=not_after_in(entry.payload),
            )
            for entry, to in whom
        ]
        says = next((entry.payload for entry in members if "join" in entry.payload), {})
        enough.append(enough_in(says, len(whom)))
    return asked, enough


def _is_apart(entry: OutboxEntry, held: Mapping[str, dict[str, Any]]) -> bool:
    return asks(entry) and (len(entry.targets) > 1 or entry.identity in held)
