"""Labels of prompt parts by their trust, for organisations that track trust. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from lemming.kernel.inboxes.turn_task import RequestOutcome
from lemming.kernel.messages import OutboxEntry

Json = dict[str, Any]


class PromptLabels:
    """Labels of a prompt without trust tracking: every label is empty."""

    line: Callable[[OutboxEntry], str] = staticmethod(attrgetter("prompt_line"))
    """Returns an entry on one line; of a plain prompt without a call of its own."""

    def label_entry(self, entry: OutboxEntry) -> Json:
        """Return an entry as labelled JSON."""
        return entry.as_json()

    def label_outcome(self, outcome: RequestOutcome, raw: Json) -> Json:
        """Return the outcome of a sub-request as labelled JSON."""
        return raw

    def label_memory(self, key: str, raw: Json) -> Json:
        """Return a memory as labelled JSON."""
        return raw

    def entry_prefix(self, entry: OutboxEntry) -> str:
        """Return the text before an entry in a prompt for small models."""
        return ""

    def memory_prefix(self, key: str) -> str:
        """Return the text before a memory in a prompt for small models."""
        return ""

    def result_prefix(self, result: Mapping[str, Any]) -> str:
        """Return the text before a result in a prompt for small models or in a backend's own format."""
        return f"[trust: {result['trust']}] " if "trust" in result else ""

    def template_values(self) -> Json:
        """Return label values for programs, in addition to the values of their turn."""
        return {}


PLAIN = PromptLabels()
