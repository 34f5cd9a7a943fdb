"""Upgrade of an organisation's files to the newest format.

Format 1 is the unmarked format of 0.1.0, format 2 has no zip files of journals, format 3 has limits unknown to programs of
format 2. All are read and run. An upgrade rewrites the files of earlier versions, so earlier programs refuse the
organisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.journal.journal_segments import SEALED_FOLDER, segments
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import NEWEST_FORMAT, OrgPath
from lemming.libraries.journal_sealing import repack_segment
from lemming.libraries.settings_edits import edit_file


def plan_upgrade(base: OrgPath) -> dict[str, str]:
    """Return the steps of an upgrade by file; an organisation in the newest format has none. Raises: ConfigError."""
    if load_config(base).org.format == NEWEST_FORMAT:
        return {}
    zip_files = [f"{SEALED_FOLDER}/{segment.name}" for segment in segments(base) if segment.name.endswith(".zip")]
    steps = dict.fromkeys(zip_files, "journals packed as 0.1.0 did: packed anew")
    return {**steps, paths.ORG_FILE: f'"format": {NEWEST_FORMAT}'}


def upgrade_files(base: OrgPath, files: Iterable[str]) -> None:
    """Rewrite files in the newest format. An interrupted upgrade can be repeated. The caller holds the lock.

    Raises: CorruptState for an unreadable segment, DiskError. Remaining files stay readable.
    """
    for file in files:
        if file != paths.ORG_FILE:
            repack_segment(base, file)
            continue
        with edit_file(base, paths.ORG_FILE) as org_file:
            settings: dict[str, Any] = parse(org_file.raw, allow_bom=True)
            org_file.publish(dump_pretty({**settings, "format": NEWEST_FORMAT}), sync=True)
