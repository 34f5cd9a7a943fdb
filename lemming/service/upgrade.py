"""The format of an organisation's files: what earlier versions wrote otherwise, written anew.

Format 1 is what 0.1.0 wrote, and says nothing of itself. Format 2 has no journals packed as zip files, format
3 what limits in ways that a program of format 2 does not know. All are read and run; an upgrade leaves behind
what only an earlier version wrote, and makes such a program refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.journal.sealing import SEALED, repack_segment, segments
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import ORG_FILE, load_config
from lemming.kernel.org.format import NEWEST_FORMAT
from lemming.kernel.org.organisation import OrgPath


def steps_of(base: OrgPath) -> dict[str, str]:
    """Return what an upgrade would do, by file; nothing in the newest format. Raises `ConfigError`."""
    if load_config(base).org.format == NEWEST_FORMAT:
        return {}
    old = [f"{SEALED}/{found.name}" for found in segments(base) if found.name.endswith(".zip")]
    packed = dict.fromkeys(old, "journals packed as 0.1.0 did: packed anew")
    return {**packed, ORG_FILE: f'"format": {NEWEST_FORMAT}'}


def upgrade(base: OrgPath, files: Iterable[str]) -> None:
    """Write these files anew; whoever is cut off does it again. The caller holds the lock.

    Raises `CorruptState` for a segment that cannot be read, `DiskError`. What was not done stays readable.
    """
    for file in files:
        if file != ORG_FILE:
            repack_segment(base, file)
            continue
        with changing_file(base, ORG_FILE) as opened:
            plain: dict[str, Any] = parse(opened.raw, allow_bom=True)
            opened.publish(pretty({**plain, "format": NEWEST_FORMAT}), sync=True)
