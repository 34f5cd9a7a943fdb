"""The names in a folder, kept from one look to the next (rules: `lemming.files.stamps`)."""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import NamedTuple

from lemming.files import fs
from lemming.files.descriptors import Around
from lemming.files.stamps import Identity, has_rested, identity_in, identity_of, is_exact

LISTED_AGAIN_AFTER_S = 60.0
"""For so long nobody lists a folder again that changes here alone."""


class Listing(NamedTuple):
    """The names in a folder, sorted, without hidden ones; none where there is no such folder.

    `is_settled`: a change since would show in the folder's identity. `changes`: so many were made here since
    the folder was listed, at `listed_s` of the monotonic clock.
    """

    identity: Identity
    is_settled: bool
    names: list[str]
    changes: int = 0
    listed_s: float = 0.0

    def with_name(self, name: str, around: Around) -> Listing:
        """Return what the folder holds after this process added a file, as far as that is certain.

        A name that somebody else adds in that very instant is overlooked until the folder is listed again:
        when its changes here come to a part of its size, when anything else changes in it, or when it was
        listed a minute ago.
        """
        place = bisect_left(self.names, name)
        if (after := self._after(around)).is_settled and self.names[place : place + 1] != [name]:
            self.names.insert(place, name)
        return after

    def without_name(self, name: str, around: Around) -> Listing:
        """Return what the folder holds after this process removed a file, as `with_name` does."""
        place = bisect_left(self.names, name)
        if (after := self._after(around)).is_settled and self.names[place : place + 1] == [name]:
            del self.names[place]
        return after

    def _after(self, around: Around) -> Listing:
        before, after = map(identity_in, around)
        is_known = self.is_settled and self.identity == before and is_exact(after)
        if not is_known or self.changes > len(self.names) // 16 + 16:
            return self._replace(is_settled=False)
        return Listing(after, True, self.names, self.changes + 1, self.listed_s)

    def still_holds(self, identity: Identity) -> bool:
        """Return whether a folder that is found with this identity holds these names."""
        if not self.is_settled or self.identity != identity:
            return False
        return not self.changes or time.monotonic() - self.listed_s < LISTED_AGAIN_AFTER_S


ABSENT = Listing((0, 0, 0, 0, 0), False, [])
"""What `list_again` gives where there is no folder."""


def list_again(path: str, before: Listing | None) -> Listing:
    """Return the names in a folder now: the very same value as before when nothing is new.

    Raises `OSError` for what is no folder; a link to one is none.
    """
    try:
        identity = identity_of(path)
        if before and before.still_holds(identity):
            return before
        now, listed_s = time.time_ns(), time.monotonic()
        names = fs.list_names(path)
        is_settled = has_rested(identity, now) and identity_of(path) == identity
    except FileNotFoundError:
        return ABSENT
    return Listing(identity, is_settled, names, listed_s=listed_s)
