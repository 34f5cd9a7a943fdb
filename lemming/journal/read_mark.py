"""What an agent has been shown: one tick per line of its `read_outboxes`, and the few entries beyond that.

So it does not grow with history. It stands in the agent's ledger; format: docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lemming.messages import EntryName


@dataclass(slots=True)  # made for every turn, and a frozen one takes three times as long
class ReadMark:
    """What an agent has been shown, or knows because it was addressed to others.

    `through`: for each name (or "*") of its `read_outboxes`, and for authors of whom a reader of all was
    shown more, the tick up to which everything was shown. `also`: ids that the engine gave, of entries shown
    beyond that. `by_hand`: identities of entries with other ids, which may come again in another tick or by
    another author; None in a mark of version 0.1, which has their ids in `also`. `unusable`: identities of
    entries that could not be read; they are tried again.
    """

    through: Mapping[str, int] = field(default_factory=dict)
    also: frozenset[str] = frozenset()
    unusable: frozenset[str] = frozenset()
    by_hand: frozenset[str] | None = None

    @classmethod
    def of(cls, through: Mapping[str, int], shown: Iterable[EntryName], bad: Iterable[EntryName]) -> ReadMark:
        """Return a mark for ticks, the entries shown beyond them, and those that could not be read."""
        also, by_hand = [], []
        for name in shown:
            if name.is_derived:
                also.append(name.id)
            else:
                by_hand.append(name.identity)
        unusable = frozenset([name.identity for name in bad])
        return cls(through, frozenset(also), unusable, frozenset(by_hand))

    def covers(self, name: EntryName) -> bool:
        """Return whether an entry was shown already."""
        if name.is_derived:
            is_through = name.tick <= self.tick_of(name.author) and name.id not in self.unusable
            return is_through or name.id in self.also
        if self.by_hand is not None:
            return name.identity in self.by_hand
        return name.id in self.also and name.tick <= max(self.through.values(), default=-1) + 1

    def tick_of(self, author: str) -> int:
        """Return the tick up to which everything of this author was shown; -1 when nothing was."""
        of_author, of_all = self.through.get(author, -1), self.through.get("*", -1)
        return of_author if of_author > of_all else of_all

    def renamed(self, old: str, new: str, entries: Iterable[tuple[EntryName, EntryName]]) -> ReadMark:
        """Return the mark once an author has another name: what was shown of it stays shown.

        `entries` are all of its entries, each as it was named before and as it is named now.
        """
        through = {new if author == old else author: tick for author, tick in self.through.items()}
        shown = [now for before, now in entries if self.covers(before)]
        if self.by_hand is None:
            return ReadMark(through, self.also | {name.id for name in shown}, self.unusable)
        also = self.also | {name.id for name in shown if name.is_derived}
        by_hand = self.by_hand | {name.identity for name in shown if not name.is_derived}
        return ReadMark(through, also, self.unusable, by_hand)

    def as_json(self) -> dict[str, Any]:
        """Return the mark for the ledger."""
        plain: dict[str, Any] = {"through": dict(sorted(self.through.items())), "also": sorted(self.also)}
        if self.unusable:
            plain["unusable"] = sorted(self.unusable)
        if self.by_hand is not None:
            plain["by_hand"] = sorted(self.by_hand)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ReadMark:
        """Return the mark that `as_json` described."""
        by_hand = plain.get("by_hand")
        return cls(
            dict(plain.get("through", {})),
            frozenset(plain.get("also", ())),
            frozenset(plain.get("unusable", ())),
            None if by_hand is None else frozenset(by_hand),
        )
