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
        self._written: dict[tuple[str, str], str] = {}  # by turns of this tick

    def begin(self, agent: str, digests: Mapping[str, str] | None) -> None:
        """Take note of what an agent's turn saw; None: nobody knows."""
        self._seen[agent] = digests

    def is_set_since(self, org: Organisation, agent: str, effect: FileEffect) -> bool:
        """Return whether somebody has changed the memory that an effect would write, since the turn began."""
        seen = self._seen.get(agent)
        if seen is None or effect.root or not effect.path.startswith(f"agents/{agent}/memory/"):
            return False
        key = _key_of(effect)
        known = ("", seen.get(key, ""), effect.digest, self._written.get((agent, key), ""))
        try:
            raw = fs.read_bytes(f"{org}/{effect.path}", MEMORY_LIMIT_BYTES + _ROUND_A_VALUE_BYTES)
        except OSError:  # it is not there, or cannot be read: the effect says what becomes of that
            return False
        return sha256(raw).hexdigest() not in known

    def wrote(self, agent: str, effect: FileEffect) -> None:
        """Take note of what a turn has written: others of the agent in the tick may write over it."""
        if effect.path.startswith(f"agents/{agent}/memory/"):
            self._written[agent, _key_of(effect)] = effect.digest


def _key_of(effect: FileEffect) -> str:
    return effect.path.rpartition("/")[2].removesuffix(".json")


def kept_by_a_person(agent: str, effect: FileEffect, tick: int) -> Problem:
    """Return what a person is told of a memory that was not written, as it was set during the turn."""
    return Problem(
        f'{agent} wrote its memory "{_key_of(effect)}" in tick {tick}, and somebody had set it during '
        "the turn: that value stays",
        effect.path,
        hint=f"`lemming tick {tick}` shows what the turn wrote",
        severity="warning",
    )
