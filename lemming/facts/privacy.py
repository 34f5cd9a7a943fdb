"""Who on this machine may read an organisation's journals, outboxes and memories: for `doctor`."""

from __future__ import annotations

import stat
from pathlib import Path

from lemming.files.modes import PRIVATE_LEDGERS, PRIVATE_PLACES


def places_open_to_all(base: Path) -> list[str]:
    """Return the private places that everybody on the machine may look into, if they get so far."""
    if not all(_mode(above) & stat.S_IXOTH for above in (base.resolve(), *base.resolve().parents)):
        return []
    return [
        place
        for place in (*PRIVATE_PLACES, *PRIVATE_LEDGERS)
        if any(_is_open(base, found) for found in base.glob(place))
    ]


def _is_open(base: Path, place: Path) -> bool:
    mode = _mode(place)
    if not mode & (stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH):
        return False
    return all(_mode(base / folder) & stat.S_IXOTH for folder in place.relative_to(base).parents)


def _mode(path: Path) -> int:
    """Return a path's mode; 0, so open to nobody, for a link and for what cannot be looked at."""
    try:
        found = path.lstat().st_mode
    except OSError:
        return 0
    return 0 if stat.S_ISLNK(found) else found
