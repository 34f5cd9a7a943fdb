"""At which reading of the clock each schedule was first seen: `.lemming/schedules.json`.

A schedule that is new, or was moved, makes up for nothing that was before it. The reading that the tick
before left does not tell that: that tick may not have known the schedule. The file changes when a schedule
does. Without it the schedules of now count as known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation

_LIMIT_BYTES = 16 << 20

Known = Mapping[str, tuple[str, str]]
"""By name: a schedule in words, and the reading at which it was first seen, empty where it always was."""


def find_first_reading(org: Organisation, name: str, schedule: str, since: str, at: str) -> str:
    """Return the reading after which moments of a schedule count, in a tick with these readings.

    That is `at`, so that none does, for a schedule that no tick has seen yet.
    """
    known = _known(org)
    if known is None or not since:
        return since
    seen, first = known.get(name, ("", ""))
    return max(since, first) if seen == schedule else at


def note_schedules(
    org: Organisation, schedules: Mapping[str, str], *, unsure: Collection[str], since: str, at: str
) -> None:
    """Take note of the schedules that there are, at a tick's reading; nothing is written where none is new.

    `unsure`: names whose schedules cannot be read now, and are what they were.
    """
    known = _known(org)
    before: Known = known or {}
    first = at if known is not None or not since else ""  # what a version before this one left is not new
    now = {name: it for name, it in before.items() if name in unsure}
    for name, schedule in schedules.items():
        now[name] = before[name] if before.get(name, ("",))[0] == schedule else (schedule, first)
    if now != before:
        plain = {name: {"schedule": it[0], "since": it[1]} for name, it in sorted(now.items())}
        fs.publish(org.base, paths.SCHEDULES_FILE, pretty(plain))


def _known(org: Organisation) -> Known | None:
    """Return the schedules that were seen; None where nobody wrote them down, or nobody can read them."""
    try:
        return org.files.value(paths.SCHEDULES_FILE, _decoded, limit_bytes=_LIMIT_BYTES)
    except FileNotFoundError:
        return None


def _decoded(raw: bytes) -> Known | None:
    try:
        plain: Any = parse(raw, limit_bytes=_LIMIT_BYTES)
        found = {name: (it["schedule"], it["since"]) for name, it in plain.items()}
    except (JsonProblem, ValueError, TypeError, LookupError, AttributeError):
        return None
    is_sound = all(isinstance(text, str) and (not at or is_timestamp(at)) for text, at in found.values())
    return found if is_sound else None
