"""Whom entries are addressed to, held against the agents that there are. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from lemming.kernel.base.jsontext import nearest
from lemming.kernel.messages import OutboxEntry

MOST_LISTED = 20
_RESUME = re.compile(r"agents/([^/]+)/resume\.json")


def find_unknown_targets(
    entry: OutboxEntry, everyone: Collection[str], written: Iterable[str]
) -> dict[str, str]:
    """Return a remark for each name in an entry's target that is no agent's, by that name.

    `everyone`: the agents there were as the tick began; `written`: the files that the turn writes, of which
    some may be the resumes of new agents.
    """
    if not entry.targets:
        return {}
    created = [found[1] for place in written if (found := _RESUME.fullmatch(place))]
    known = {name.lower(): name for name in (*everyone, *created)}
    unknown = sorted(entry.targets - known.keys() - {entry.agent})
    return {name: _words_for(name, sorted({*known.values()} - {entry.agent})) for name in unknown}


def _words_for(name: str, others: list[str]) -> str:
    listed = f"agents: {', '.join(others)}" if 0 < len(others) <= MOST_LISTED else ""
    hint = nearest(name, others) or listed
    return f'there is no agent "{name[:100]}"{f": {hint}" if hint else ""}'
