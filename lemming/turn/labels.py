"""How the parts of a prompt are told apart by how far they are trusted, where that is tracked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from lemming.mail.tasks import Ended
from lemming.messages import OutboxEntry

Json = dict[str, Any]
NOTHING: Mapping[str, str] = {}


class Labels:
    """The labels of a prompt whose parts are not told apart: there are none."""

    line: Callable[[OutboxEntry], str] = staticmethod(attrgetter("line"))
    """Returns an entry on one line; of a plain prompt without a call of its own."""

    def entry(self, entry: OutboxEntry) -> Json:
        """Return an entry as JSON values."""
        return entry.as_json()

    def ended(self, ended: Ended, plain: Json) -> Json:
        """Return what became of something that was asked."""
        return plain

    def memory(self, key: str, plain: Json) -> Json:
        """Return a memory as JSON values."""
        return plain

    def of_entry(self, entry: OutboxEntry) -> str:
        """Return what stands before an entry in a prompt for small models."""
        return ""

    def of_memory(self, key: str) -> str:
        """Return what stands before a memory in a prompt for small models."""
        return ""

    def of_result(self, result: Mapping[str, Any]) -> str:
        """Return what stands before a result in a prompt for small models, or in a backend's own form."""
        return f"[trust: {result['trust']}] " if "trust" in result else ""

    def values(self) -> Json:
        """Return what a program is told beside the values of its turn."""
        return {}


PLAIN = Labels()


class TrustLabels(Labels):
    """Labels that say how far each part is trusted: every entry, and those memories that say so."""

    def __init__(self, of_entry: Callable[[OutboxEntry], str], memories: Mapping[str, str], own: str) -> None:
        self._of_entry, self._memories, self._own = of_entry, memories, own
        self.line = self._line

    def _line(self, entry: OutboxEntry) -> str:
        """Return an entry on one line, which begins with how far it is trusted."""
        return f'{{"trust": "{self._of_entry(entry)}", {entry.line[1:]}'

    def entry(self, entry: OutboxEntry) -> Json:
        """Return an entry as JSON values, with how far it is trusted."""
        return {**entry.as_json(), "trust": self._of_entry(entry)}

    def ended(self, ended: Ended, plain: Json) -> Json:
        """Return what became of something that was asked, with how far the answer is trusted."""
        told = ended.answer or ended.entry
        return {**plain, "trust": self._of_entry(told) if told else self._own}

    def memory(self, key: str, plain: Json) -> Json:
        """Return a memory as JSON values, with how far it is trusted."""
        return {**plain, "trust": self._memories.get(key, self._own)}

    def of_entry(self, entry: OutboxEntry) -> str:
        """Return what stands before an entry in a prompt for small models."""
        return f"[trust: {self._of_entry(entry)}] "

    def of_memory(self, key: str) -> str:
        """Return what stands before a memory in a prompt for small models."""
        return f"[trust: {self._memories.get(key, self._own)}] "

    def values(self) -> Json:
        """Return how far the memories are trusted that say so."""
        return {"trust": {"memory": dict(self._memories)}} if self._memories else {}
