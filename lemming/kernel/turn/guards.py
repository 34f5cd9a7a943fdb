"""Protocols and values of the checks that a turn's entries, memories, effects and calls pass.

Plain types, shared by the capabilities that check, ask persons and keep records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lemming.kernel.files.field_types import Json
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import LLMProvider, Reply, Request

if TYPE_CHECKING:
    from lemming.kernel.journal.engine_events import Observer
    from lemming.kernel.journal.journal_file import Journal


class PayloadWithDigests(NamedTuple):
    """An outgoing payload with the SHA-256 digests of the attached files, by path."""

    payload: Json
    files: Mapping[str, str] = MappingProxyType({})


class CheckFinding(NamedTuple):
    """Finding of a check: the reason the content may not pass, and the replacement of a rewrite."""

    why: str
    content: Any = None


class CheckFunctionError(Exception):
    """A check function failed. The message describes the failure."""


CheckFunctions = Callable[[tuple[str, ...]], Callable[[str, Json], CheckFinding | None]]
"""Returns the check functions of plugins, which are called by name."""


class BatchContext(NamedTuple):
    """Environment of a tick's model calls for a batcher, with the `journal` of their records.

    `make` makes a bare provider, `live` makes one call immediately, with retries. `journal` has the records
    of earlier attempts. If `sends` is False, the batcher only waits for batches of earlier attempts. `sleep`
    ends early when `stop` is set.
    """

    make: Callable[[ModelEntry], LLMProvider]
    live: Callable[[ModelEntry, Request], Reply]
    journal: Journal
    clock: Callable[[], datetime]
    notify: Observer
    stop: threading.Event
    sends: bool
    sleep: Callable[[float], object]


class CallBatcher(Protocol):
    """Batcher of a tick's model calls. Every method may be called from any thread."""

    def add_turns(self, turns: int = 1) -> None:
        """Count turns that may start, before the first model call."""

    def remove_turn(self) -> None:
        """Count a finished turn. Turns unblocked by the end have been added before."""

    def complete(self, entry: ModelEntry, request: Request) -> Reply:
        """Return a model's answer.

        Raises the errors of a live call, and `Unavailable` when the engine stops.
        """


class SharedResource(NamedTuple):
    """A resource besides files that turns of a tick share.

    A `bound` agent waits for earlier `counted` agents.

    `counted`: the agents that change the resource; they include all `bound` agents. `ordered`: agents whose turns begin
    in order and then run at once; only their calls of tools that run in turn order wait for the earlier turns.
    """

    name: str
    bound: AbstractSet[str]
    counted: AbstractSet[str]
    ordered: AbstractSet[str] = frozenset()


class TrustLabeler(Protocol):
    """Source of trust labels for prompt content; `default` is the label of unlabelled data."""

    default: str

    def normalize(self, label: str) -> str:
        """Return the label if it exists, else the least trusted label."""

    def lowest(self, labels: Iterable[str]) -> str:
        """Return the least trusted of several labels."""

    def entry_label(self, entry: OutboxEntry) -> str:
        """Return the trust label of an entry."""

    def memory_labels(self, agent_name: str, memories: Memories) -> Mapping[str, str]:
        """Return the trust labels of an agent's labelled memories, by key."""


VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"passes": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["passes", "reason"],
    "additionalProperties": False,
}
