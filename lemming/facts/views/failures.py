"""How turns ended, and how often an agent has failed in a row: a tick that is over is looked at once."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile
from typing import Any

from lemming.base.errors import CorruptState
from lemming.base.jsontext import JsonProblem, parse
from lemming.facts.views.glances import glances_at
from lemming.files.descriptors import LONGEST_LINE_BYTES
from lemming.journal.file import journal_ticks, raw_journal
from lemming.org.organisation import Organisation

MOST_TICKS, MOST_KEPT = 50, 2000
_FAILED = re.compile(
    rb'^\{"type":"turn_(?:committed|skipped)","epoch":\d+,"agent":"([a-z0-9_-]+)","status":"(\w+)"',
    re.MULTILINE,
)


def failures_in_a_row(org: Organisation, agent: str, before: int) -> int:
    """Return how many turns of an agent failed in a row before a tick, as far as is looked back."""
    ticks = [tick for tick in journal_ticks(org, with_sealed=False) if tick < before][-MOST_TICKS:]
    ends = (glance.statuses.get(agent) for glance in reversed(glances_at(org, ticks)))
    return sum(1 for _ in takewhile(lambda end: end == "failed", filter(None, ends)))


class EndsInWords:
    """Why turns ended as they did and what they did, by their last records: `org.own(EndsInWords)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self.of = lru_cache(MOST_KEPT)(self._read)

    def _read(self, tick: int, agent: str) -> dict[str, Any]:
        """Return the `reason` of how a turn ended, and what it `did` in words; both empty where unknown."""
        try:
            raw = raw_journal(self._org, tick)
            found = next((it for it in _FAILED.finditer(raw) if it[1] == agent.encode()), None)
            end = raw.find(b"\n", found.start()) if found else 0
            line = parse(raw[found.start() : end], limit_bytes=LONGEST_LINE_BYTES) if found else None
        except (CorruptState, JsonProblem):
            line = None
        if not isinstance(line, dict):
            return {"reason": "", "did": ""}
        return {"reason": str(line.get("reason") or ""), "did": _did(line) or "wrote nothing"}


def _did(line: dict[str, Any]) -> str:
    files = [str(it["path"] if isinstance(it, dict) else it) for it in line.get("files") or ()]
    written = [path for path in files if "/outbox/" not in path and "/memory/" not in path]
    entries, memories = len(line.get("entries") or ()), [*(line.get("memory") or ())]
    parts = [f"said {_counted(entries, 'thing')}"] if entries else []
    parts += [f"wrote {path.rpartition('/')[2]}" for path in written[:2]]
    parts += [f"and {len(written) - 2} more files"] if len(written) > 2 else []
    parts += [f"remembered {key}" for key in memories[:2]]
    return ", ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
