"""An organisation: its folder, and everything that this process has read of it.

No module keeps what it knows of a folder in a variable of its own: two organisations in one process share
nothing, and what is known of one goes with its `Organisation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lemming.kernel.base import paths
from lemming.kernel.files.stamps import FileCache

T = TypeVar("T")


class Organisation:
    """One organisation's folder, and what this process knows of it.

    It is a path too: whatever takes the path of an organisation takes one of these, and then reads again only
    what has changed since.
    """

    def __init__(self, base_path: str | os.PathLike[str]) -> None:
        self.base = paths.as_base(base_path)
        self.files = FileCache(self.base)
        self._owned: dict[Callable[[Organisation], Any], Any] = {}

    @classmethod
    def at(cls, base_path: str | os.PathLike[str]) -> Organisation:
        """Return the organisation itself if it is one already, else one of which nothing is known yet."""
        return base_path if isinstance(base_path, Organisation) else cls(base_path)

    def own(self, kind: Callable[[Organisation], T]) -> T:
        """Return the one instance of `kind` that is this organisation's; it is made when first asked for.

        So each module keeps what it knows of an organisation in a small class of its own.
        """
        owned: T | None = self._owned.get(kind)
        if owned is None:
            owned = self._owned.setdefault(kind, kind(self))  # for two threads the same one
        return owned

    def close(self) -> None:
        """End what is kept running for it: what has a `close`. It is begun anew when it is needed."""
        for owned in list(self._owned.values()):
            if callable(close := getattr(owned, "close", None)):
                close()

    def __fspath__(self) -> str:
        return str(self.base)

    def __str__(self) -> str:
        return str(self.base)

    def __truediv__(self, relative: str) -> Path:
        return self.base / relative

    def __repr__(self) -> str:
        return f"Organisation({str(self.base)!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it: its agents."""
        from lemming.kernel.org.notebook import organisation_as_html

        return organisation_as_html(self.base)


OrgPath = Path | Organisation
"""An organisation, or the path of its folder: who is given the first reads again only what has changed."""
