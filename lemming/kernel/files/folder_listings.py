"""Listings of folders, read again only after the folder has changed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import StatusPair
from lemming.kernel.files.disk_errors import require_about_one_file
from lemming.kernel.files.stat_cache import Identity, file_identity, has_exact_mtime, has_stable_mtime, to_identity

RELIST_AFTER_S = 60.0
"""For so long nobody lists a folder again that changes here alone."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Listing:
    """The names in a folder, sorted, without hidden names; an empty list if there is no such folder.

    `is_settled`: True if a later change would change the folder's identity. `is_changed_here`: True if this
    process has changed the folder since it was listed, at `listed_s` of `time.perf_counter()`.
    """

    identity: Identity
    is_settled: bool
    names: list[str]
    is_changed_here: bool = False
    listed_s: float = 0.0

    def after_change(self, statuses: StatusPair) -> Listing | None:
        """Return the listing after a change by this process alone, with the same names, or None.

        None means that another process changed the folder, and a new listing is needed. A name added by
        another process in the very instant of the change is overlooked until the next change in the folder,
        or until the listing is a minute old.
        """
        status_before, status_after = statuses
        if self.identity != to_identity(status_before):
            return None
        identity = to_identity(status_after)
        return Listing(identity, self.is_settled and has_exact_mtime(identity), self.names, True, self.listed_s)

    def is_current(self, identity: Identity) -> bool:
        """Return True if the listing is valid for a folder with this identity."""
        if not self.is_settled or self.identity != identity:
            return False
        return not self.is_changed_here or time.perf_counter() - self.listed_s < RELIST_AFTER_S


ABSENT = Listing((0, 0, 0, 0, 0), False, [])
"""The listing of a missing folder."""


def refresh_listing(path: str, earlier: Listing | None) -> Listing:
    """Return the names in a folder; the same value as `earlier` if nothing changed.

    Raises `OSError` if the path is not a folder or is a link.
    """
    try:
        identity = file_identity(path)
        if earlier and earlier.is_current(identity):
            return earlier
        current_ns, listed_s = time.time_ns(), time.perf_counter()
        names = fs.list_names(path)
        is_settled = has_stable_mtime(identity, current_ns) and file_identity(path) == identity
    except FileNotFoundError:
        return ABSENT
    return Listing(identity, is_settled, names, listed_s=listed_s)


def list_subfolders(folder: int) -> dict[str, bool]:
    """Return the visible subfolders of an open folder by name; the value is True for a link to a folder."""
    subfolders = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name[0] == ".":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    subfolders[name] = False
                elif entry.is_symlink() and _is_folder_link(entry):
                    subfolders[name] = True
    except OSError as error:
        require_about_one_file("agents", error)
        raise
    return subfolders


def _is_folder_link(link: os.DirEntry[str]) -> bool:
    try:
        return link.is_dir()
    except OSError as error:  # a cycle of links
        require_about_one_file(link.path, error)
        return False
