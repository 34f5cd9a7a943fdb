"""Targets of entries, checked against the existing agents. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.messages import OutboxEntry

MAX_LISTED = 20
_RESUME = re.compile(r"agents/([^/]+)/resume\.json")


def find_unknown_targets(entry: OutboxEntry, everyone: Collection[str], written_paths: Iterable[str]) -> dict[str, str]:
    """Return a remark for each target of an entry that names no agent, by name.

    `everyone`: names of the agents at the start of the tick. `written`: files that the turn writes, which may
    create agents.
    """
    if not entry.targets:
        return {}
    created = [match[1] for path in written_paths if (match := _RESUME.fullmatch(path))]
    names_by_lower = {name.lower(): name for name in (*everyone, *created)}
    unknown = sorted(entry.targets - names_by_lower.keys() - {entry.agent})
    return {name: _describe_unknown(name, sorted({*names_by_lower.values()} - {entry.agent})) for name in unknown}


def _describe_unknown(name: str, names: list[str]) -> str:
    listed = f"agents: {', '.join(names)}" if 0 < len(names) <= MAX_LISTED else ""
    hint = did_you_mean(name, names) or listed
    return f'there is no agent "{name[:100]}"{f": {hint}" if hint else ""}'
