"""What a turn said and did, so that it can be told whether another one said or did the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lemming.base.jsontext import compact
from lemming.messages import OutboxEntry, text_of_payload
from lemming.timeline.record import ToolUse, TurnRecord

Deed = tuple[str, ...]
"""Something said or done: equal where it is the same, in other words as capitals, spaces and signs go."""

_BESIDE_WORDS = re.compile(r"[\W_]+")
_OUTBOX = "/outbox/"
_ABOUT = ("reply_to", "hands_on", "cancels")


def normalised(text: str) -> str:
    """Return a text as it is compared: its words, whatever capitals, spaces and signs are between them.

    >>> normalised("  All is   WELL!! ")
    'all is well'
    """
    return _BESIDE_WORDS.sub(" ", text).strip().casefold() or text.strip()


def said(entry: OutboxEntry) -> Deed:
    """Return what an entry says, to whom, and which request it answers: the same answer to two is not one."""
    payload = entry.payload
    about = f"{[payload.get(key) for key in _ABOUT]}"
    text = normalised(text_of_payload(payload))
    return "said", entry.kind, text, ",".join(sorted(entry.targets)), about


def called(use: ToolUse) -> Deed:
    """Return a tool call with what it gave: to look again and be told something else is no repetition."""
    return "called", use.tool, compact(use.args).decode(), f"{use.success}", use.output


def sayings(turn: TurnRecord) -> dict[Deed, OutboxEntry]:
    """Return what a turn said that is not empty."""
    return {deed: entry for entry in turn.entries if (deed := said(entry))[2]}


def callings(turn: TurnRecord) -> dict[Deed, ToolUse]:
    """Return the calls that a turn made and that have ended."""
    return {called(use): use for use in turn.tools if use.success is not None}


def leavings(turn: TurnRecord) -> set[Deed]:
    """Return the files and memories that a turn left, with what is in them; entries are sayings."""
    written = turn.report.files if turn.report else []
    left = {("left", file["path"], file["sha256"]) for file in written if _OUTBOX not in file["path"]}
    ahead = turn.report.written_ahead if turn.report else []
    return left | {("left", place, f"{turn.tick}") for place in ahead}


def firsts(turns: Iterable[TurnRecord]) -> list[set[Deed]]:
    """Return for each of an agent's turns, in their order, what it said, left and learned first."""
    known: set[Deed] = set()
    found = []
    for turn in turns:
        deeds = {*sayings(turn), *callings(turn), *leavings(turn)}
        found.append(deeds - known)
        known |= deeds
    return found
