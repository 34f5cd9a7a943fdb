"""How far a turn is trusted as it goes on, and what it writes made to say so. Pure.

A turn is trusted as far as the least trusted of what it was shown. Whatever it writes bears that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lemming.capabilities.trust.marks import mark_effect
from lemming.capabilities.trust.words import AGENT, TAG, TRUST, Part, TrustOrder, without_words
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.values import TurnInputs

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

    def __init__(self, recorded: Mapping[str, Any], agent: str, tick: int) -> None:
        self.order = TrustOrder(tuple(recorded["order"]))
        self.word: str = self.order.known(recorded["is"])
        self.sources = [Part(each["is"], each["of"]) for each in recorded.get("from", ())]
        self._agent, self._tick = agent, tick
        self._bears: dict[str, Part] = {}  # files that hold what was there before, by place
        self._marked: set[str] = set()  # files that have a mark by now
        self._below: set[str] = set()  # folders in which a call may have written anything

    @classmethod
    def of(cls, inputs: TurnInputs) -> TurnTrust:
        """Return how far a turn is trusted as its record says it begins."""
        return cls(inputs.given[TRUST], inputs.agent.name, inputs.tick)

    def lower(self, word: str, source: str) -> None:
        """Note what the turn was given."""
        if self.order.rank(word) < self.order.rank(self.word):
            self.word, self.sources = self.order.known(word), []
        if self.order.is_low(word) and word == self.word and len(self.sources) < MOST_NAMED:
            self.sources.append(Part(word, source))

    def take(self, told: Mapping[str, Any]) -> None:
        """Note what a call has given: how far its result is trusted, and the files that it touched."""
        for source in told.get("from", ()):
            self.lower(source["is"], source["of"])
        for place, source in told.get("bears", {}).items():
            self._bears[place] = Part(source["is"], source["of"])
        self._marked.update(told.get("marked", ()))
        self._below.update(told.get("below", ()))

    def told(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return a result as a model is told of it: each says how far it is trusted."""
        return {"trust": AGENT, **result}

    def kept(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result as the next turn is told of it: what was asked for is this turn's text too."""
        word = self.order.lowest((self.word, result.get("trust", AGENT)))
        return {**result, "trust": word} if self.order.is_low(word) else result

    def as_json(self) -> dict[str, Any]:
        """Return what a report says of it."""
        named = [{"is": word, "of": source} for word, source in dict.fromkeys(self.sources)]
        return {"is": self.word, **({"from": named} if named else {})}

    def of_entry(self, entry: OutboxEntry) -> OutboxEntry:
        """Return an entry of the turn with the engine's word for how far it is trusted, and nobody else's."""
        tags = self._tags(entry.tags)
        return entry if tags == entry.tags else replace(entry, tags=tags)

    def borne(self, staged: Mapping[str, FileEffect]) -> dict[str, FileEffect]:
        """Return files of the turn by place, each of which says how far it is trusted, or has a mark for it.

        A mark comes before its file: no file is ever there without.
        """
        borne = {mark.place: mark for mark in self.marks_below()}
        for place, effect in staged.items():
            if mark := self._mark_for(effect):
                borne[mark.place] = mark
            borne[place] = self._of_file(effect)
        return borne

    def marks_below(self) -> list[FileEffect]:
        """Return the marks of folders in which a call may have written anything."""
        if not self.order.is_low(self.word):
            return []
        return [self._mark_all(f"{folder}/") for folder in sorted(self._below)]

    def _mark_all(self, folder: str) -> FileEffect:
        before = self._bears.get(folder)
        if before and self.order.rank(before.word) < self.order.rank(self.word):
            return self._mark(folder, before.word, [before])
        return self._mark(folder, self.word, self.sources)

    def _of_file(self, effect: FileEffect) -> FileEffect:
        """Return a file of the turn, which says how far it is trusted if it is a memory or an entry."""
        kind = _kind_of(effect)
        if kind == "memory" and self.order.is_low(word := self._find_label(effect.place)):
            plain = {**parse(effect.content), "trust": word}
            return replace(effect, content=pretty(plain), says=plain)
        if kind == "outbox":
            plain = parse(effect.content)
            return replace(effect, content=pretty({**plain, "tags": self._tags(plain["tags"])}))
        return effect

    def _find_label(self, place: str) -> str:
        """Return the trust label of a file of the turn: no higher than that of the text it still holds."""
        before = self._bears.get(place)
        return self.order.lowest((self.word, before.word)) if before else self.word

    def _mark_for(self, effect: FileEffect) -> FileEffect | None:
        """Return the mark of a file; None where it needs none, and has none."""
        if effect.removes or _kind_of(effect):
            return None
        before = self._bears.get(effect.place)
        if before and self.order.rank(before.word) < self.order.rank(self.word):
            return self._mark(effect.place, before.word, [before])
        if self.order.is_low(self.word):
            return self._mark(effect.place, self.word, self.sources)
        return self._mark(effect.place, self.word, ()) if effect.place in self._marked else None

    def _mark(self, file: str, word: str, sources: Iterable[Part]) -> FileEffect:
        return mark_effect(file, word, self._tick, self._agent, dict.fromkeys(sources))

    def _tags(self, tags: list[str]) -> list[str]:
        own = [f"{TAG}{self.word}"] if self.order.is_low(self.word) else []
        return [*without_words(tags), *own]


def _kind_of(effect: FileEffect) -> str:
    """Return the folder of an agent whose files say themselves how far they are trusted; else nothing."""
    folders = effect.path.split("/")
    says_it = not effect.root and len(folders) == 4 and folders[0] == "agents"
    return folders[2] if says_it and folders[2] in ("memory", "outbox") else ""
