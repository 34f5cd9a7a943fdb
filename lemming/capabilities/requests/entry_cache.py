"""Which entries say anything of requests, kept in `.lemming/requests.json`: to tell, all must be read.

An outbox is as it was when it was kept if every file in it has the identity that it had then. So an edit in
place shows, and in a copy nothing is believed. The file may be deleted at any moment, and is made again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import compact, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import LONGEST_LINE_BYTES
from lemming.kernel.files.stamps import has_rested, identity_in, opened

WORTH_KEEPING = 1000
"""So many entries are read in less time than it takes to look whether they have changed."""

FORM = b"1"
"""What is kept in another form, by another version, is not believed: count it up."""


class OutboxStamp(NamedTuple):
    """What files an outbox held, and what tells that they are still the same; empty: that is in doubt."""

    digest: str
    files: list[str]


def stamp_of(base: Path, author: str, *, since_ns: int | None = None) -> OutboxStamp:
    """Look at every file of an outbox; with `since_ns`, in doubt where one may have changed since then."""
    try:
        with opened(base / paths.outbox_folder(author)) as folder:
            files = sorted(os.listdir(folder))
            lstat = os.lstat  # not `status_of`: there may be a hundred thousand
            identities = [identity_in(lstat(file, dir_fd=folder)) for file in files]
    except OSError:
        return OutboxStamp("", [])
    if since_ns is not None and not all(has_rested(it, since_ns) for it in identities):
        return OutboxStamp("", files)
    return OutboxStamp(
        sha256(repr((files, identities)).encode("utf-8", "surrogateescape")).hexdigest(), files
    )


def read_kept(base: Path) -> dict[str, tuple[str, list[str]]]:
    """Return, by author, how an outbox stood and the files in it that matter; empty where nothing is kept."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, DiskError):
        raw = fs.read_bytes(base / paths.REQUESTS_FILE, LONGEST_LINE_BYTES)
        check, _, whole = raw.partition(b"\n")
        if check == _check(whole):  # torn or edited, it is not believed
            found = parse(whole, limit_bytes=LONGEST_LINE_BYTES)
            return {author: (str(digest), [*map(str, files)]) for author, (digest, files) in found.items()}
    return {}


def keep(base: Path, kept: Mapping[str, tuple[str, list[str]]]) -> None:
    """Keep that; where nothing can be written, nothing is."""
    whole = compact(kept)
    with contextlib.suppress(OSError, DiskError):
        fs.publish(base, paths.REQUESTS_FILE, b"%b\n%b" % (_check(whole), whole))


def _check(whole: bytes) -> bytes:
    return sha256(FORM + whole).hexdigest().encode()
