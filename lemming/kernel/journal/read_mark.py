"""What an agent has been shown: one tick per line of its `read_outboxes`, and the few entries beyond that.

So it does not grow with history. It stands in the agent's ledger; format: docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lemming.kernel.messages import EntryName


@dataclass(slots=True)  # made for every turn, and a frozen one takes three times as long
class ReadMark:
    """What an agent has been shown, or knows because it was addressed to others.

    `through`: for each name (or "*") of its `read_outboxes`, and for authors of whom a reader of all was
    shown more, the tick up to which all entries were shown whose ids the engine gave. `also`: entries beyond
    that, and those with other ids, as `EntryName.identity`. `unusable`: those that could not be read; they
    are tried again. Earlier versions wrote ids alone into both, and `by_hand` beside them.
    """

    through: Mapping[str, int] = field(default_factory=dict)
    also: frozenset[str] = frozenset()
    unusable: frozenset[str] = frozenset()
    by_hand: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.by_hand is not None:
            self.also, self.by_hand = self.also | self.by_hand, None

    def covers(self, name: EntryName) -> bool:
        """Return whether an entry was shown already."""
        if self.also and self._names(name):
            return True
        # A chosen id may appear under any tick, also one that was shown long ago: no tick covers it.
        return name.is_derived and name.tick <= self.tick_of(name.author) and not self.failed_on(name)

    def _names(self, name: EntryName) -> bool:
        if name.identity in self.also:
            return True
        # A bare id means an entry of its time: the same id under a later tick is another, and must be shown.
        is_meant = name.is_derived or name.tick <= max(self.through.values(), default=-1) + 1
        return is_meant and name.id in self.also

    def failed_on(self, name: EntryName) -> bool:
        """Return whether an entry could not be read when it was to be shown."""
        return bool(self.unusable) and not self.unusable.isdisjoint((name.identity, name.id))

    def tick_of(self, author: str) -> int:
        """Return the tick up to which everything of this author was shown; -1 when nothing was."""
        of_author, of_all = self.through.get(author, -1), self.through.get("*", -1)
        return of_author if of_author > of_all else of_all

    @property
    def has_bare_ids(self) -> bool:
        """Whether an earlier version wrote it: which entries it means must be looked for."""
        if not (self.also or self.unusable):
            return False
        return not all("/" in identity for identity in (*self.also, *self.unusable))

    def resolved(self, names: Iterable[EntryName]) -> ReadMark:
        """Return the same mark with identities, as far as it is of these entries."""
        also, failed, by_ticks = [], [], ReadMark(self.through)
        for name in names:
            if self.failed_on(name):
                failed.append(name.identity)
            if self.covers(name) and not (by_ticks.covers(name) and not self.failed_on(name)):
                also.append(name.identity)
        return ReadMark(self.through, frozenset(also), frozenset(failed))

    def renamed(self, old: str, new: str, entries: Iterable[tuple[EntryName, EntryName]]) -> ReadMark:
        """Return the mark once an author has another name: what was shown of it stays shown.

        `entries` are all of its entries, each as it was named before and as it is named now.
        """
        through = {new if author == old else author: tick for author, tick in self.through.items()}
        shown = {now.identity for before, now in entries if self.covers(before)}
        return ReadMark(through, self.also | shown, self.unusable)

    def as_json(self) -> dict[str, Any]:
        """Return the mark for the ledger."""
        through = self.through if len(self.through) < 2 else dict(sorted(self.through.items()))
        plain: dict[str, Any] = {"through": {**through}, "also": sorted(self.also) if self.also else []}
        if self.unusable:
            plain["unusable"] = sorted(self.unusable)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ReadMark:
        """Return the mark that `as_json` described, of this version or an earlier one."""
        also = frozenset((*plain.get("also", ()), *plain.get("by_hand", ())))
        return cls(dict(plain.get("through", {})), also, frozenset(plain.get("unusable", ())))
