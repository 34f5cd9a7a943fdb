"""Writes of a turn's replies, separate from effects of tools, so they can be withdrawn. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lemming.kernel.files.effects import FileEffect
from lemming.kernel.turn.turn_effects import Withdraw

if TYPE_CHECKING:
    from lemming.kernel.messages import OutboxEntry
    from lemming.kernel.turn.turn_state import TurnState


@dataclass
class DraftWrites:
    """Writes of a draft's replies: entries by identity, and memories by path with the earlier staged effect.

    `is_sent_back`: the draft was rejected and is withdrawn with the next reply.
    """

    entries: set[str] = field(default_factory=set)
    memories: dict[str, FileEffect | None] = field(default_factory=dict)
    is_sent_back: bool = False
    has_withdrawn: bool = False

    @property
    def has_content(self) -> bool:
        """Return True if there is a draft to judge."""
        return bool(self.entries or self.memories)

    def record(
        self, turn_state: TurnState, entries: Iterable[OutboxEntry], previous_staged: Mapping[str, FileEffect]
    ) -> None:
        """Record the writes of a reply.

        `previous_staged`: effects staged before the memories of the reply.
        """
        self.entries.update(entry.identity for entry in entries)
        for path, effect in turn_state.memory.items():
            if turn_state.staged.get(path) is effect and previous_staged.get(path) is not effect:
                self.memories.setdefault(path, previous_staged.get(path))

    def withdraw(self, turn_state: TurnState) -> None:
        """Withdraw all writes. Files already on disk before a call with outside effects stay."""
        turn_state.entries = [entry for entry in turn_state.entries if entry.identity not in self.entries]
        self.discard_memories(turn_state)
        self.entries.clear()
        self.is_sent_back, self.has_withdrawn = False, True
        if turn_state.hooks.chain:
            turn_state.hooks.chain.dispatch(Withdraw())

    def discard_memories(self, turn_state: TurnState) -> None:
        """Withdraw the memories only."""
        for path, previous_effect in self.memories.items():
            if turn_state.staged.get(path) is turn_state.memory[path]:
                del turn_state.staged[path]
                if previous_effect is not None:
                    turn_state.staged[path] = previous_effect
            if path not in turn_state.written_ahead:
                del turn_state.memory[path]
        self.memories.clear()

    def tag_entries(self, turn_state: TurnState, tag: str) -> None:
        """Add a tag to the entries. Memories cannot have tags and are withdrawn."""
        turn_state.entries = [
            replace(entry, tags=[*dict.fromkeys([*entry.tags, tag])]) if entry.identity in self.entries else entry
            for entry in turn_state.entries
        ]
        for path in self.memories:
            key = path.rpartition("/")[2].removesuffix(".json")
            turn_state.remarks.append(f"memory {key} was not kept: it is {tag}")
        self.discard_memories(turn_state)
