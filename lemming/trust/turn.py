"""How far a turn is trusted as it goes on, and what it writes made to say so. Pure.

A turn is trusted as far as the least trusted of what it was shown. Whatever it writes bears that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lemming.files.effects import FileEffect
from lemming.files.jsontext import parse, pretty
from lemming.messages import OutboxEntry
from lemming.trust.order import AGENT, TAG, Part, TrustOrder, without_words

MOST_NAMED = 16
"""Of what made a turn what it is, so many are named."""


def as_recorded(order: TrustOrder, shown: Iterable[Part], base: str = AGENT) -> dict[str, Any]:
    """Return what a journal says of how far a turn is trusted as it begins: the word, and what made it so."""
    low = {it.source: it.word for it in shown if order.rank(it.word) < order.rank(base)}
    word = order.lowest([base, *low.values()])
    named = [{"is": low[source], "of": source} for source in low if low[source] == word]
    return {"is": word, "order": [*order.words], **({"from": named[:MOST_NAMED]} if named else {})}


class TurnTrust:
    """How far a turn that is tracked is trusted by now, and what made it so."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.order = TrustOrder(tuple(recorded["order"]))
        self.word: str = self.order.known(recorded["is"])
        self.sources = [Part(each["is"], each["of"]) for each in recorded.get("from", ())]

    def lower(self, word: str, source: str) -> None:
        """Note what the turn was given."""
        if self.order.rank(word) < self.order.rank(self.word):
            self.word, self.sources = self.order.known(word), []
        if self.order.is_low(word) and word == self.word and len(self.sources) < MOST_NAMED:
            self.sources.append(Part(word, source))

    def as_json(self) -> dict[str, Any]:
        """Return what a report says of it."""
        named = [{"is": word, "of": source} for word, source in dict.fromkeys(self.sources)]
        return {"is": self.word, **({"from": named} if named else {})}

    def of_entry(self, entry: OutboxEntry) -> OutboxEntry:
        """Return an entry of the turn with the engine's word for how far it is trusted, and nobody else's."""
        tags = self._tags(entry.tags)
        return entry if tags == entry.tags else replace(entry, tags=tags)

    def of_file(self, effect: FileEffect) -> FileEffect:
        """Return a file of the turn, which says how far it is trusted if it is a memory or an entry."""
        folder = effect.path.split("/")
        if effect.root or effect.removes or len(folder) != 4 or folder[0] != "agents":
            return effect
        if folder[2] == "memory" and self.order.is_low(self.word):
            return effect._replace(content=pretty({**parse(effect.content), "trust": self.word}))
        if folder[2] == "outbox":
            plain = parse(effect.content)
            return effect._replace(content=pretty({**plain, "tags": self._tags(plain["tags"])}))
        return effect

    def borne(self, staged: Mapping[str, FileEffect]) -> dict[str, FileEffect]:
        """Return files of the turn by place, each of which says how far it is trusted."""
        return {place: self.of_file(effect) for place, effect in staged.items()}

    def _tags(self, tags: list[str]) -> list[str]:
        own = [f"{TAG}{self.word}"] if self.order.is_low(self.word) else []
        return [*without_words(tags), *own]
