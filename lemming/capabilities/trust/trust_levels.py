"""Trust labels and their order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

TRUST = "trust"
"""The name of the capability, in records that are by capability."""
AGENT = "agent"
"""The label of agents' own texts. Only lower labels are written down."""
TAG = "trust:"
"""Prefix of the trust tag of an entry."""


class SourcedLabel(NamedTuple):
    """A trust label and the source of the label: an entry, a file or a result."""

    label: str
    source: str


@dataclass(frozen=True)
class TrustOrder:
    """The trust labels of an organisation, the least trusted first."""

    labels: Sequence[str]

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {label: rank for rank, label in enumerate(self.labels)}

    def rank(self, label: str) -> int:
        """Return the rank of a label. An unknown label has the lowest rank."""
        return self._ranks.get(label, 0)  # an unknown label is trusted least

    def normalize(self, label: str) -> str:
        """Return a label unchanged if the order contains the label, else the least trusted label."""
        # A label that the settings no longer name must not become a trusted one.
        return label if label in self._ranks else self.labels[0]

    def lowest(self, labels: Iterable[str]) -> str:
        """Return the least trusted of several labels, or the most trusted label for no labels."""
        return min(map(self.normalize, labels), key=self.rank, default=self.labels[-1])

    def is_untrusted(self, label: str) -> bool:
        """Return True if a label is below the label of agents, which requires an explicit mark."""
        return self.rank(label) < self.rank(AGENT)

    def lowest_in_tags(self, tags: Iterable[str]) -> str:
        """Return the least trusted label in the tags, or the most trusted label for no labels."""
        return self.lowest(tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG))


def strip_label_tags(tags: Iterable[str]) -> list[str]:
    """Return tags without trust tags: only the engine's trust tags count."""
    return [tag for tag in tags if not tag.strip().lower().startswith(TAG)]
