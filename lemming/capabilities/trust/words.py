"""The words of trust in their order, and the lowest of several. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

TRUST = "trust"
"""What it is called where it is by capability."""
AGENT = "agent"
"""What an agent's own texts are; what is trusted less is written down, what is not needs no word."""
TAG = "trust:"
"""What the tag of an entry begins with that says how far it is trusted."""


class Part(NamedTuple):
    """How far something is trusted, and what made it so: an entry, a file, a result."""

    word: str
    source: str


@dataclass(frozen=True)
class TrustOrder:
    """The words, the least trusted first."""

    words: Sequence[str]

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {word: rank for rank, word in enumerate(self.words)}

    def rank(self, word: str) -> int:
        """Return the place of a word; one that is none of them is the least trusted."""
        return self._ranks.get(word, 0)  # what nobody knows is trusted least

    def known(self, word: str) -> str:
        """Return a word as it is, if it is one of them, else the least trusted."""
        return word if word in self._ranks else self.words[0]

    def lowest(self, words: Iterable[str]) -> str:
        """Return the least trusted of some words; the most trusted there is, for none."""
        return min(map(self.known, words), key=self.rank, default=self.words[-1])

    def is_low(self, word: str) -> bool:
        """Return whether what is trusted so has to bear it: less than an agent's own texts are."""
        return self.rank(word) < self.rank(AGENT)

    def in_tags(self, tags: Iterable[str]) -> str:
        """Return the least trusted word that tags name; the most trusted there is, where none does."""
        return self.lowest(tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG))


def without_words(tags: Iterable[str]) -> list[str]:
    """Return tags without those that say how far an entry is trusted: only the engine's count."""
    return [tag for tag in tags if not tag.strip().lower().startswith(TAG)]
