"""What the turns of a tick that has not ended are doing, from the beginnings of its journal's lines.

A journal holds every prompt; only the first bytes of its lines are looked at, as they come, so that a screen
may ask again every second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lemming.journal.file import raw_journal
from lemming.org.organisation import OrgPath

_LINE = re.compile(
    rb'^\{"type":"(?P<type>[a-z_]+)","epoch":\d+,'
    rb'(?:"at":"(?P<began>[0-9TZ:.-]+)"|"agent":"(?P<agent>[a-z0-9_-]+)")'
    rb'(?:,"call":\d+,"at":"(?P<at>[0-9TZ:.-]+)")?(?:,"index":\d+,"tool":"(?P<tool>[^"]{1,100})")?',
    re.MULTILINE,
)
_ENDS = ("turn_committed", "turn_skipped")


@dataclass(frozen=True)
class DoingNow:
    """What an agent's turn does now: `since` a moment, which is a lower bound; `tool` that runs, if one does.

    `is_over`: it has ended, while others of the tick go on.
    """

    since: str
    tool: str = ""
    is_over: bool = False


def doing_in(org: OrgPath, tick: int) -> dict[str, DoingNow]:
    """Return what the turns of a tick do, by agent; nothing of one that has no journal."""
    found: dict[str, DoingNow] = {}
    now = ""
    for line in _LINE.finditer(raw_journal(org, tick)):
        now = ((line["began"] or line["at"]) or b"").decode() or now
        if line["agent"]:
            kind, tool = line["type"].decode(), (line["tool"] or b"").decode()
            found[line["agent"].decode()] = DoingNow(
                now, tool if kind == "tool_started" else "", kind in _ENDS
            )
    return found
