"""Pruning: remove journals, rotated logs and archived items older than the retention settings.

The engine needs none of them: no ledger, entry, resume or interrupted tick refers to items of that age.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.journal.journal_segments import SEALED_FOLDER, segments
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.journal_sealing import remove_segment

Kind = Literal["journals", "log", "aside"]
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d{6})[.\d]*Z")


@dataclass(frozen=True)
class PrunableItem:
    """An item to remove. `why`: the setting or the age behind the removal."""

    kind: Kind
    path: str
    bytes: int
    why: str

    def as_json(self) -> dict[str, Any]:
        """Return the item as JSON values."""
        return asdict(self)


def find_prunable_items(
    base: OrgPath, config: Config, *, older_than_s: float, keep_journals: int | None, current_time: datetime
) -> list[PrunableItem]:
    """Return the items to remove.

    `keep_journals`: number of ticks with journals to keep, overriding the settings. Logs and archived items must be
    older than `older_than_s` seconds.
    """
    age_limit = current_time.timestamp() - older_than_s
    kept_ticks = config.org.kept_journals if keep_journals is None else keep_journals
    journals = [] if kept_ticks is None else _find_old_journals(base, load_tick(base), kept_ticks)
    return [*journals, *_find_old_logs(base, age_limit), *_find_archived_items(base, age_limit)]


def remove_item(base: OrgPath, item: PrunableItem) -> None:
    """Remove an item. Raises: DiskError."""
    if item.kind == "aside":
        fs.remove_tree(Path(base), item.path)
    elif item.kind == "journals":
        remove_segment(base, item.path)
    else:
        fs.remove(Path(base), item.path)


def _find_old_journals(base: OrgPath, tick: int, kept_ticks: int) -> Iterator[PrunableItem]:
    """Yield the journal segments with only old ticks; the engine would remove these segments in time."""
    for name, first, last in segments(base):
        if last < tick - kept_ticks:
            path = f"{SEALED_FOLDER}/{name}"
            reason = f"ticks {first} to {last}; journals of {kept_ticks} ticks are kept"
            yield PrunableItem("journals", path, _path_size(base, path), reason)


def _find_old_logs(base: OrgPath, age_limit: float) -> Iterator[PrunableItem]:
    agents = filter(paths.AGENT_NAME.match, list_agent_folders(base))
    for log in (paths.ENGINE_LOG, *map(paths.activity_log, agents)):
        path = f"{log}.1"
        try:
            status = os.lstat(base / path)
        except OSError:
            continue
        if status.st_mtime < age_limit:
            yield PrunableItem("log", path, status.st_size, f"full since {_format_day(status.st_mtime)}")


def _find_archived_items(base: OrgPath, age_limit: float) -> Iterator[PrunableItem]:
    """Yield items archived by repairs, rewinds and removals, by the time in the folder name."""
    for name in fs.list_names(base / paths.ARCHIVE_FOLDER):
        match = _TIME.match(name)
        if match is None or (base / paths.ARCHIVE_FOLDER / name).is_symlink():
            continue
        archived_at = datetime.strptime(match[1], "%Y-%m-%dT%H%M%S").replace(tzinfo=UTC).timestamp()
        if archived_at < age_limit:
            path = f"{paths.ARCHIVE_FOLDER}/{name}"
            yield PrunableItem("aside", path, _path_size(base, path), f"set aside on {_format_day(archived_at)}")


def _path_size(base: OrgPath, path: str) -> int:
    top = base / path
    files = [os.path.join(folder, file) for folder, _, files in walk(top) for file in files] if top.is_dir() else [top]
    return sum(os.lstat(file).st_size for file in files)


def _format_day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")
