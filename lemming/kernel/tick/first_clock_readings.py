"""Clock readings at which each schedule was first seen: `.lemming/schedules.json`.

A new or changed schedule does not catch up on earlier due times. The previous tick's reading is not enough:
the previous tick may not have known the schedule. The file changes with the schedules. Without the file, the
current schedules count as known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation

_LIMIT_BYTES = 16 << 20

KnownSchedules = Mapping[str, tuple[str, str]]
"""By agent: the schedule as text, and its first reading; empty if it has always existed."""


def find_first_reading(org: Organisation, name: str, schedule: str, since: str, at: str) -> str:
    """Return the reading after which due times of a schedule count, in a tick with the given readings.

    For a schedule that is new in this tick, the result is `at`, so no due time counts.
    """
    known_schedules = _load_known(org)
    if known_schedules is None or not since:
        return since
    known_schedule, first = known_schedules.get(name, ("", ""))
    return max(since, first) if known_schedule == schedule else at


def record_schedules(
    org: Organisation, schedules: Mapping[str, str], *, unsure: Collection[str], since: str, at: str
) -> None:
    """Record the current schedules at a tick's reading; write nothing without changes.

    `unsure`: names with currently unreadable schedules, which keep their recorded values.
    """
    known_schedules = _load_known(org)
    previous_schedules: KnownSchedules = known_schedules or {}
    first = (
        at if known_schedules is not None or not since else ""
    )  # schedules recorded by an earlier version are not new
    current_schedules = {name: reading for name, reading in previous_schedules.items() if name in unsure}
    for name, schedule in schedules.items():
        current_schedules[name] = (
            previous_schedules[name] if previous_schedules.get(name, ("",))[0] == schedule else (schedule, first)
        )
    if current_schedules != previous_schedules:
        raw_schedules = {
            name: {"schedule": reading[0], "since": reading[1]} for name, reading in sorted(current_schedules.items())
        }
        fs.write_atomic(org.base, paths.SCHEDULES_FILE, dump_pretty(raw_schedules))


def _load_known(org: Organisation) -> KnownSchedules | None:
    """Return the recorded schedules, or None without a readable file."""
    try:
        return org.files.get_value(paths.SCHEDULES_FILE, _parse_schedules, limit_bytes=_LIMIT_BYTES)
    except FileNotFoundError:
        return None


def _parse_schedules(raw: bytes) -> KnownSchedules | None:
    try:
        raw_schedules: Any = parse(raw, limit_bytes=_LIMIT_BYTES)
        schedules = {name: (fields["schedule"], fields["since"]) for name, fields in raw_schedules.items()}
    except (JsonProblem, ValueError, TypeError, LookupError, AttributeError):
        return None
    is_valid = all(isinstance(text, str) and (not at or is_timestamp(at)) for text, at in schedules.values())
    return schedules if is_valid else None
