"""Read position of an agent: one tick per item of its `read_outboxes`, plus the few entries beyond.

Its size therefore does not grow with history. It is stored in the agent's ledger; format: docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lemming.kernel.messages import EntryName


@dataclass(slots=True)  # made for every turn, and a frozen one takes three times as long
class ReadMark:
    """The set of entries already shown to an agent, or known to be addressed to other agents.

    `through`: the tick up to which all entries with engine-generated ids were shown, for each name (or "*")
    of the agent's `read_outboxes`, and for authors of whom a reader of all outboxes was shown more. `also`:
    entries beyond this tick, and entries with other ids, as `EntryName.identity`. `unusable`: unreadable
    entries; they are tried again. Earlier versions wrote bare ids into both, and `by_hand` beside them.
    """

    through: Mapping[str, int] = field(default_factory=dict)
    also: frozenset[str] = frozenset()
    unusable: frozenset[str] = frozenset()
    by_hand: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.by_hand is not None:
            self.also, self.by_hand = self.also | self.by_hand, None

    def has_seen(self, name: EntryName) -> bool:
        """Return True if an entry was already shown."""
        if self.also and self._is_listed(name):
            return True
        # A hand-made id may appear under any tick, even one that was shown long ago: no tick covers it.
        return name.has_engine_id and name.tick <= self.last_seen_tick(name.author) and not self.is_unreadable(name)

    def _is_listed(self, name: EntryName) -> bool:
        if name.identity in self.also:
            return True
        # A bare id means an entry of its time: the same id under a later tick is another entry to show.
        is_same_entry = name.has_engine_id or name.tick <= max(self.through.values(), default=-1) + 1
        return is_same_entry and name.id in self.also

    def is_unreadable(self, name: EntryName) -> bool:
        """Return True if an entry could not be read when it was due to be shown."""
        return bool(self.unusable) and not self.unusable.isdisjoint((name.identity, name.id))

    def last_seen_tick(self, author: str) -> int:
        """Return the tick up to which all entries of an author were shown; -1 if none were."""
        author_tick, all_tick = self.through.get(author, -1), self.through.get("*", -1)
        return author_tick if author_tick > all_tick else all_tick

    @property
    def has_bare_ids(self) -> bool:
        """True if an earlier version wrote the mark; its ids must then be matched to entries."""
        if not (self.also or self.unusable):
            return False
        return not all("/" in identity for identity in (*self.also, *self.unusable))

    def with_identities(self, names: Iterable[EntryName]) -> ReadMark:
        """Return the same mark with identities, for the given entries."""
        also, failed, by_ticks = [], [], ReadMark(self.through)
        for name in names:
            if self.is_unreadable(name):
                failed.append(name.identity)
            if self.has_seen(name) and not (by_ticks.has_seen(name) and not self.is_unreadable(name)):
                also.append(name.identity)
        return ReadMark(self.through, frozenset(also), frozenset(failed))

    def with_entries(self, identities: Iterable[str]) -> ReadMark:
        """Return the mark after these entries were shown, too."""
        return ReadMark(self.through, self.also.union(identities), self.unusable)

    def rename_author(self, old: str, new: str, entries: Iterable[tuple[EntryName, EntryName]]) -> ReadMark:
        """Return the mark after an author was renamed; the author's shown entries stay shown.

        `entries`: all of the author's entries, each with the old and the new name.
        """
        through = {**self.through}
        if old in through:  # a mark under the new name is a former agent's
            through[new] = through.pop(old)
        shown_identities = {new_name.identity for old_name, new_name in entries if self.has_seen(old_name)}
        return ReadMark(through, self.also | shown_identities, self.unusable)

    def as_json(self) -> dict[str, Any]:
        """Return the mark for the ledger."""
        through = self.through if len(self.through) < 2 else dict(sorted(self.through.items()))
        plain: dict[str, Any] = {"through": {**through}, "also": sorted(self.also) if self.also else []}
        if self.unusable:
            plain["unusable"] = sorted(self.unusable)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ReadMark:
        """Return the mark from its JSON form, of this version or an earlier version."""
        also = frozenset((*plain.get("also", ()), *plain.get("by_hand", ())))
        return cls(dict(plain.get("through", {})), also, frozenset(plain.get("unusable", ())))
