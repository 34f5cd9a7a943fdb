"""Memories as turns saw them when they began: one that a person has set since is not written over."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from lemming.kernel.base.errors import Problem
from lemming.kernel.files import fs
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.memory import MEMORY_LIMIT_BYTES
from lemming.kernel.org.organisation import Organisation

_ROUND_A_VALUE_BYTES = 64 << 10
"""What a file of a memory has beside its value, at the most."""


class MemoriesSeen:
    """The memories of the agents that have turns in a tick, by agent and file, as digests.

    Of a turn that a crash cut off nobody knows what it saw: it writes what it wrote.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Mapping[str, str] | None] = {}
        self._written: dict[str, str] = {}  # by turns of this tick

    def begin(self, agent: str, digests: Mapping[str, str] | None) -> None:
        """Take note of what an agent's turn saw; None: nobody knows."""
        self._seen[agent] = digests

    def has_changed(self, org: Organisation, agent: str, effect: FileEffect, digest: str) -> bool:
        """Return True if somebody has changed the memory that an effect would write, since the turn began.

        `digest`: that of the effect's content.
        """
        seen, path = self._seen.get(agent), effect.path
        if seen is None or effect.root or not path.startswith(f"agents/{agent}/memory/"):
            return False
        expected = (seen.get(_key_of(path)), self._written.get(path), digest)
        # The file was read as the turn began: nearly always its stamp tells that it is as it was.
        known = org.files.find_unchanged_digest(path)
        if known and known in expected:
            return False
        try:
            raw = fs.read_bytes(f"{org}/{path}", MEMORY_LIMIT_BYTES + _ROUND_A_VALUE_BYTES)
        except OSError:  # it is not there, or cannot be read: the effect says what becomes of that
            return False
        return sha256(raw).hexdigest() not in expected

    def wrote(self, place: str, digest: str) -> None:
        """Take note of what a turn has written: all turns of the agent in the tick may write over it."""
        self._written[place] = digest


def _key_of(path: str) -> str:
    return path[path.rindex("/") + 1 :].removesuffix(".json")


def to_memory_warning(agent: str, effect: FileEffect, tick: int) -> Problem:
    """Return a warning about a memory that was not written, because a person set it during the turn."""
    return Problem(
        f'{agent} wrote its memory "{_key_of(effect.path)}" in tick {tick}, and somebody had set it during '
        "the turn: that value stays",
        effect.path,
        hint=f"`lemming tick {tick}` shows what the turn wrote",
        severity="warning",
    )
