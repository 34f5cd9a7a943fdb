"""An organisation: the folder, and everything this process has read from it.

No module keeps knowledge about a folder in a module variable: two organisations in one process share nothing,
and cached knowledge is dropped together with its `Organisation`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.object_cache import ObjectCache
from lemming.kernel.base.version import __version__
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import FileCache


@accept_old_names
class Organisation(ObjectCache):
    """One organisation's folder, with this process's caches.

    An organisation is path-like: every function with an organisation's path as a parameter accepts one, and
    then reads again only changed files.
    """

    def __init__(self, base_path: str | os.PathLike[str]) -> None:
        self.base = paths.as_base(base_path)
        self.files = FileCache(self.base)
        self._caches: dict[Any, Any] = {}

    @classmethod
    def from_path(cls, base_path: str | os.PathLike[str]) -> Organisation:
        """Return the organisation itself if `base_path` is one, else a new organisation with empty caches."""
        return base_path if isinstance(base_path, Organisation) else cls(base_path)

    def close(self) -> None:
        """Close all caches with a `close` method. They are created again on demand."""
        for cache in list(self._caches.values()):
            if callable(close := getattr(cache, "close", None)):
                close()

    def __fspath__(self) -> str:
        return str(self.base)

    def __str__(self) -> str:
        return str(self.base)

    def __truediv__(self, relative: str) -> Path:
        return self.base / relative

    def __repr__(self) -> str:
        return f"Organisation({str(self.base)!r})"


OrgPath = Path | Organisation
"""An organisation, or the path of its folder. With the first, only changed files are read again."""


NEWEST_FORMAT = 3
_LIMIT_BYTES = 1 << 20


def require_known_format(base_path: str | os.PathLike[str]) -> None:
    """Raise `ConfigError` for an organisation with a format of a newer version: docs/formats.md, "Format".

    Called before anything is written. Other problems of the file are reported elsewhere.
    """
    try:
        settings_json = parse(fs.read_bytes(f"{os.fspath(base_path)}/{paths.ORG_FILE}", _LIMIT_BYTES), allow_bom=True)
    except (OSError, JsonProblem):
        return
    declared = settings_json.get("format") if isinstance(settings_json, dict) else None
    if type(declared) is int and declared > NEWEST_FORMAT:
        raise ConfigError(
            f"format must be at most {NEWEST_FORMAT} for LeMMing {__version__}, got {declared}",
            where=paths.ORG_FILE,
            hint="run `pip install -U lemming-engine`; nothing has been changed",
        )
