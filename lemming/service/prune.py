"""What is kept beyond the settings, and taking it away: journals, logs that were full, what was set aside.

Nothing here is needed to go on: not by a ledger, an entry, a resume, nor by a tick that was interrupted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.journal.sealing import SEALED, remove_segment, segments
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick

Kind = Literal["journals", "log", "aside"]
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d{6})[.\d]*Z")


@dataclass(frozen=True)
class Surplus:
    """One thing that may go. `why`: which setting or age says so."""

    kind: Kind
    path: str
    bytes: int
    why: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def find_surplus(
    base: OrgPath, config: Config, *, older_than_s: float, keep_journals: int | None, now: datetime
) -> list[Surplus]:
    """Return what may go. `keep_journals`: of so many ticks journals stay, instead of what the settings say.

    Logs and what was set aside must be older than `older_than_s`.
    """
    before = now.timestamp() - older_than_s
    kept = config.org.kept_journals if keep_journals is None else keep_journals
    journals = [] if kept is None else _journals(base, load_tick(base), kept)
    return [*journals, *_logs(base, before), *_set_aside(base, before)]


def remove(base: OrgPath, surplus: Surplus) -> None:
    """Take one thing away. Raises `DiskError`."""
    if surplus.kind == "aside":
        fs.remove_tree(Path(base), surplus.path)
    elif surplus.kind == "journals":
        remove_segment(base, surplus.path)
    else:
        fs.remove(Path(base), surplus.path)


def _journals(base: OrgPath, tick: int, kept: int) -> Iterator[Surplus]:
    """Yield packed journals of which every tick is older: those that the engine would remove in time."""
    for name, first, last in segments(base):
        if last < tick - kept:
            path = f"{SEALED}/{name}"
            why = f"ticks {first} to {last}; journals of {kept} ticks are kept"
            yield Surplus("journals", path, _size(base, path), why)


def _logs(base: OrgPath, before: float) -> Iterator[Surplus]:
    """Yield logs that were full and have a successor."""
    agents = filter(paths.AGENT_NAME.match, agent_folders(base))
    for log in (paths.ENGINE_LOG, *map(paths.activity_log, agents)):
        path = f"{log}.1"
        try:
            status = os.lstat(base / path)
        except OSError:
            continue
        if status.st_mtime < before:
            yield Surplus("log", path, status.st_size, f"full since {_day(status.st_mtime)}")


def _set_aside(base: OrgPath, before: float) -> Iterator[Surplus]:
    """Yield what repairs, rewinds and removals moved away, by the time in the folder's name."""
    for name in fs.list_names(base / paths.ASIDE):
        at = _TIME.match(name)
        if at is None or (base / paths.ASIDE / name).is_symlink():
            continue
        moment = datetime.strptime(at[1], "%Y-%m-%dT%H%M%S").replace(tzinfo=UTC).timestamp()
        if moment < before:
            path = f"{paths.ASIDE}/{name}"
            yield Surplus("aside", path, _size(base, path), f"set aside on {_day(moment)}")


def _size(base: OrgPath, path: str) -> int:
    top = base / path
    if not top.is_dir():
        return os.lstat(top).st_size
    return sum(
        os.lstat(os.path.join(folder, name)).st_size for folder, _, names in walk(top) for name in names
    )


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")
