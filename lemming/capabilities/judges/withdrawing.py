"""What a turn's replies wrote and remembered, apart from what its tools did: it can be taken back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lemming.kernel.files.effects import FileEffect

if TYPE_CHECKING:
    from lemming.kernel.messages import OutboxEntry
    from lemming.kernel.turn.draft import Draft


@dataclass
class Own:
    """What the replies of a draft wrote: entries by identity, and memories by place, with what stood there.

    `is_sent_back`: what it says did not pass, and is taken back by the next reply.
    """

    entries: set[str] = field(default_factory=set)
    memories: dict[str, FileEffect | None] = field(default_factory=dict)
    is_sent_back: bool = False
    has_withdrawn: bool = False

    @property
    def says_anything(self) -> bool:
        """Whether there is anything to judge."""
        return bool(self.entries or self.memories)

    def note(self, draft: Draft, entries: Iterable[OutboxEntry], before: Mapping[str, FileEffect]) -> None:
        """Take note of what a reply wrote; `before`: the files that were staged before its memories."""
        self.entries.update(entry.identity for entry in entries)
        for place, effect in draft.memory.items():
            if draft.staged.get(place) is effect and before.get(place) is not effect:
                self.memories.setdefault(place, before.get(place))

    def withdraw(self, draft: Draft) -> None:
        """Take it all back; what was on the disk before a call that reaches outside stays there."""
        draft.entries = [entry for entry in draft.entries if entry.identity not in self.entries]
        self.forget(draft)
        self.entries.clear()
        self.is_sent_back, self.has_withdrawn = False, True
        if draft.seams.watch:
            draft.seams.watch.taken_back()

    def forget(self, draft: Draft) -> None:
        """Take the memories back alone."""
        for place, before in self.memories.items():
            if draft.staged.get(place) is draft.memory[place]:
                del draft.staged[place]
                if before is not None:
                    draft.staged[place] = before
            if place not in draft.settled:
                del draft.memory[place]
        self.memories.clear()

    def flag(self, draft: Draft, tag: str) -> None:
        """Put a tag on the entries; memories, which bear none, are not kept."""
        draft.entries = [
            replace(entry, tags=[*dict.fromkeys([*entry.tags, tag])])
            if entry.identity in self.entries
            else entry
            for entry in draft.entries
        ]
        for place in self.memories:
            key = place.rpartition("/")[2].removesuffix(".json")
            draft.remarks.append(f"memory {key} was not kept: it is {tag}")
        self.forget(draft)
