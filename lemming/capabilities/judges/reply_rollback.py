"""Writes of a turn's replies, separate from effects of tools, so they can be withdrawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lemming.ext import CarriedOut
from lemming.kernel.files.effects import FileEffect

if TYPE_CHECKING:
    from lemming.ext import TurnView


@dataclass
class DraftWrites:
    """Writes of a draft's replies: entries by identity, and memories by path with the earlier staged effect.

    `is_sent_back`: the draft was rejected and is withdrawn with the next reply.
    """

    entries: set[str] = field(default_factory=set)
    memories: dict[str, FileEffect | None] = field(default_factory=dict)
    is_sent_back: bool = False

    @property
    def has_content(self) -> bool:
        """Return True if there is a draft to judge."""
        return bool(self.entries or self.memories)

    def record(self, reply: CarriedOut) -> None:
        """Record the writes of a reply."""
        self.entries.update(reply.reply_entries)
        for path, previous_file in reply.memories.items():
            self.memories.setdefault(path, previous_file)

    def withdraw(self, turn: TurnView) -> None:
        """Withdraw all writes. Files already on disk before a call with outside effects stay."""
        turn.withdraw({*self.entries}, {**self.memories})
        self.entries.clear()
        self.memories.clear()
        self.is_sent_back = False

    def tag_entries(self, turn: TurnView, tag: str) -> None:
        """Add a tag to the entries. Memories cannot have tags and are withdrawn."""
        turn.tag_entries(self.entries, tag)
        for path in self.memories:
            key = path.rpartition("/")[2].removesuffix(".json")
            turn.remark(f"memory {key} was not kept: it is {tag}")
        if self.memories:
            turn.withdraw((), {**self.memories})
        self.memories.clear()
