"""How the parts of a prompt are told apart by how far they are trusted, where that is tracked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from lemming.kernel.mail.task import Ended
from lemming.kernel.messages import OutboxEntry

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
