"""Prompt input of a turn: plain values from which prompts are built, with the labels of their trust."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from lemming.kernel.agents import Agent
from lemming.kernel.inboxes.inbox import Inbox
from lemming.kernel.inboxes.turn_agenda import RequestOutcome, Task
from lemming.kernel.journal.open_requests import Dialogue
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

    def entry_trust(self, entry: OutboxEntry) -> str:
        """Return the trust label of an entry, or an empty string without trust tracking."""
        return ""

    def memory_trust(self, key: str) -> str:
        """Return the trust label of a memory, or an empty string without trust tracking."""
        return ""

    def result_trust(self, result: Mapping[str, Any]) -> str:
        """Return the trust label of a result, or an empty string without trust tracking."""
        return ""

    def lowest_trust(self, labels: Iterable[str]) -> str:
        """Return the least trusted of several labels."""
        return ""

    def template_values(self) -> Json:
        """Return label values for programs, in addition to the values of their turn."""
        return {}


PLAIN = PromptLabels()


Lines = list[str]
"""The lines of a message; one item may have several lines."""


@dataclass(kw_only=True, slots=True)  # made for every turn, and a frozen one takes three times as long
class PromptInput:
    """Plain values of a turn's prompt, besides the prompt prefix.

    `source_paths`: files, and folders ending in /, of the sections after the instructions; the turn's trust
    depends on them. `job_memories`: memories that hold jobs, as pairs of agent and key. `dialogue`: messages
    of earlier turns for the same request, placed behind the prompt.
    """

    agent: Agent
    tick: int
    inbox: Inbox
    time: Sequence[str] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
    task: Task | None = None
    requests: Sequence[OutboxEntry] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)
    extra_values: Mapping[str, Any] = field(default_factory=dict)
    context: Sequence[tuple[str, str]] = ()
    sections: Sequence[str] = ()
    results: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    memory_chars: int = 16_000
    uses_wire_form: bool = False
    calls_tools: bool = False
    payload_rules: str = ""
    omitted_count: int = 0
    leading_sections: Sequence[tuple[str, str]] = ()
    labels: PromptLabels = PLAIN
    source_paths: Sequence[str] = ()
    job_memories: Sequence[tuple[str, str]] = ()
    dialogue: Dialogue | None = None


WITHHELD = "withheld"
"""Key of a payload with the reason why the rest is withheld."""


def withhold_payload(entry: OutboxEntry, reason: str) -> OutboxEntry:
    """Return an entry with the reason in place of its content. The tags are text of the author too."""
    address: dict[str, Any] = {key: entry.payload[key] for key in ("target", "reply_to") if key in entry.payload}
    return replace(entry, payload={**address, WITHHELD: reason}, tags=[])


def withhold_value(reason: str) -> str:
    """Return the text in place of a value that is withheld."""
    return f"[{WITHHELD}: {reason}]"
