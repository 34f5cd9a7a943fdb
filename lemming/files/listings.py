"""The names in a folder, kept from one look to the next (rules: `lemming.files.stamps`)."""

from __future__ import annotations

import time
from typing import NamedTuple

from lemming.files import fs
from lemming.files.descriptors import Around
from lemming.files.stamps import Identity, has_rested, identity_in, identity_of, is_exact

LISTED_AGAIN_AFTER_S = 60.0
"""For so long nobody lists a folder again that changes here alone."""


class Listing(NamedTuple):
    """The names in a folder, sorted, without hidden ones; none where there is no such folder.

    `is_settled`: a change since would show in the folder's identity. `is_changed_here`: this process has
    changed it since it was listed, at `listed_s` of the monotonic clock.
    """

    identity: Identity
    is_settled: bool
    names: list[str]
    is_changed_here: bool = False
    listed_s: float = 0.0

    def after_change(self, around: Around) -> Listing | None:
        """Return the listing of a folder that this process changed and nobody else, `names` as they were.

        None when somebody did: the next look tells. A name that somebody adds in the very instant of the
        change is overlooked until anything else changes in the folder, or it was listed a minute ago.
        """
        before, after = map(identity_in, around)
        if self.identity != before:
            return None
        return self._replace(
            identity=after, is_settled=self.is_settled and is_exact(after), is_changed_here=True
        )

    def still_holds(self, identity: Identity) -> bool:
        """Return whether a folder that is found with this identity holds these names."""
        if not self.is_settled or self.identity != identity:
            return False
        return not self.is_changed_here or time.monotonic() - self.listed_s < LISTED_AGAIN_AFTER_S


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
