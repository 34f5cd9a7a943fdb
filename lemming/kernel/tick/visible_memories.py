"""Memories at the start of each turn: a memory set by a person during the turn is not overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from lemming.kernel.base.errors import Problem
from lemming.kernel.files import fs
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.memory import MEMORY_LIMIT_BYTES
from lemming.kernel.org.organisation import Organisation

_OVERHEAD_BYTES = 64 << 10
"""Maximum bytes of a memory file beside its value."""


class SeenMemories:
    """Digests of the memories seen by the turns of a tick, by agent and file.

    For a turn interrupted by a crash the digests are unknown, and the turn writes its memories
    unconditionally.
    """

    def __init__(self) -> None:
        self._digests: dict[str, Mapping[str, str] | None] = {}
        self._written: dict[str, str] = {}  # digests of writes by turns of this tick

    def record_digests(self, agent: str, digests: Mapping[str, str] | None) -> None:
        """Record the memories seen by an agent's turn. `digests` is None if unknown."""
        self._digests[agent] = digests

    def has_changed(self, org: Organisation, agent: str, effect: FileEffect, digest: str) -> bool:
        """Return True if another author has changed an effect's memory file since the turn began.

        `digest`: the digest of the effect's content.
        """
        seen_digests, path = self._digests.get(agent), effect.path
        if seen_digests is None or effect.root or not path.startswith(f"agents/{agent}/memory/"):
            return False
        # The effect's own digest counts too: the same value from another author is no conflict.
        expected = (seen_digests.get(_memory_key(path)), self._written.get(path), digest)
        # The file was read as the turn began: its stamp nearly always shows that it is unchanged.
        current_digest = org.files.find_unchanged_digest(path)
        if current_digest and current_digest in expected:
            return False
        try:
            raw = fs.read_bytes(f"{org}/{path}", MEMORY_LIMIT_BYTES + _OVERHEAD_BYTES)
        except OSError:  # missing or unreadable: applying the effect decides
            return False
        return sha256(raw).hexdigest() not in expected

    def record_write(self, path_key: str, digest: str) -> None:
        """Record a turn's write: all turns of the agent in the tick may overwrite the file."""
        self._written[path_key] = digest


def _memory_key(path: str) -> str:
    return path[path.rindex("/") + 1 :].removesuffix(".json")


def to_memory_warning(agent: str, effect: FileEffect, tick: int) -> Problem:
    """Return a warning about a memory not written because a person set the memory during the turn."""
    return Problem(
        f'{agent} wrote its memory "{_memory_key(effect.path)}" in tick {tick}, but it was '
        "set from outside during the turn: the outside value stays",
        effect.path,
        hint=f"see what the turn wrote with `lemming tick {tick}`",
        severity="warning",
    )
