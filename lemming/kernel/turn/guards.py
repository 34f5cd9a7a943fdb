"""Protocols and values of the checks that a turn's entries, memories, effects and calls pass.

Plain types, shared by the capabilities that check, ask persons and keep records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.times.parse_times import Expiry
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.inbox import Inbox
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import LLMProvider, Reply, Request
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext

if TYPE_CHECKING:
    from lemming.kernel.journal.engine_events import Observer
    from lemming.kernel.journal.journal_file import Journal


class ApprovalRequest(NamedTuple):
    """A required approval: by one of `persons` (None: by anybody), before the earliest time in `expires`.

    `line` is the first reason for the approval, `other_lines` are the further ones.
    """

    line: str
    reason: str = ""
    persons: Collection[str] | None = None
    expires: tuple[Expiry, ...] = ()
    other_lines: Collection[str] = ()


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


class ApprovalOutcome(NamedTuple):
    """Decision on a call that needs approval: the result, or None if the call may run.

    `states` is stored with the call in the journal, by capability.
    """

    result: ToolResult | None
    states: Mapping[str, Json] = MappingProxyType({})


ApprovalHandler = Callable[[ToolCall, ApprovalRequest], ApprovalOutcome]
"""Returns the outcome of a call that needs approval."""


class ApprovalBroker(Protocol):
    """Decides about the calls of a turn that need approval."""

    def request_approval(
        self, call: ToolCall, approval: ApprovalRequest, context: ToolContext, plan: Callable[[], ToolResult]
    ) -> ApprovalOutcome:
        """Return the decision on a call.

        `plan` runs a plan-only call, which just lists the files to write.
        """
        ...


class LowTrustValue(NamedTuple):
    """A value from an answer with less trust than the turn, and the trust label."""

    value: Any
    label: str


class TurnTrust(NamedTuple):
    """Current trust label of a turn and the source that lowered the trust; empty without tracking.

    `facts_of` returns the facts for gates about the origin of a call's arguments.
    """

    label: str = ""
    source: str = ""
    facts_of: Callable[[Any], Json] = lambda _: {}


class AllowedCall(NamedTuple):
    """A call that may run, with the verdicts and the recorded state of the approval."""

    call: ToolCall
    verdicts: Sequence[GateVerdict] = ()
    states: Mapping[str, Json] = MappingProxyType({})


class ToolCallGuard(Protocol):
    """Guard of a turn's tool calls at the time they run, with the current state of the files."""

    def before_call(
        self, call: ToolCall, tool: Tool, context: ToolContext, trust: TurnTrust, request_approval: ApprovalHandler
    ) -> AllowedCall | ToolResult:
        """Return the allowed call, or the result of a refused call."""
        ...

    def after_call(self, call: ToolCall, tool: Tool, base: Path, trust: TurnTrust, result: ToolResult) -> ToolResult:
        """Return the result of a call as it may be shown. The result is complete, not yet truncated."""
        ...


class SpendingLimits(Protocol):
    """Spending limits of a turn, consulted before and after each model call.

    The maximum cost of a call is reserved before the call and released once the actual cost is known.
    """

    def check_call(
        self, call: int, key: str, entry: ModelEntry, request: Request, *, trust: str = ""
    ) -> Iterator[GateVerdict]:
        """Yield verdicts on a model call before it runs. Raises `LimitReached` if the call must not run."""
        ...

    def reserve(self, key: str, entry: ModelEntry, request: Request) -> None:
        """Reserve the maximum cost of a model call before it runs."""
        ...

    def release(self, call: int) -> None:
        """Release the reservation of a model call: the call was not made, or the cost is known."""
        ...

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Charge the actual cost of a model call and the write-off of the reservations."""
        ...

    @property
    def unsettled(self) -> WriteOff:
        """Amount that the turn may have spent besides the answers: reservations and write-offs."""
        ...

    def write_off(self, call: int) -> WriteOff:
        """Return the write-off of a finished model call's reservations."""
        ...


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
        ...

    def remove_turn(self) -> None:
        """Count a finished turn. Turns unblocked by the end have been added before."""
        ...

    def complete(self, entry: ModelEntry, request: Request) -> Reply:
        """Return a model's answer.

        Raises the errors of a live call, and `Unavailable` when the engine stops.
        """
        ...


class SharedResource(NamedTuple):
    """A resource besides files that turns of a tick share.

    A `bound` agent waits for earlier `counted` agents.

    `counted`: the agents that change the resource; they include all `bound` agents.
    """

    name: str
    bound: AbstractSet[str]
    counted: AbstractSet[str]


IsPreapproved = Callable[[OutboxEntry], bool]
"""Returns True if a person has approved an entry for reading."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class ContextCandidates:
    """Candidates for the content of a turn. `render_results` returns the results for the task that passed."""

    task: Task | None
    inbox: Inbox
    requests: list[OutboxEntry]
    memories: Memories
    context: list[tuple[str, str]]
    render_results: Callable[[Task | None], Sequence[Mapping[str, Any]]]


class TrustLabeler(Protocol):
    """Source of trust labels for prompt content; `default` is the label of unlabelled data."""

    default: str

    def normalize(self, label: str) -> str:
        """Return the label if it exists, else the least trusted label."""
        ...

    def entry_label(self, entry: OutboxEntry) -> str:
        """Return the trust label of an entry."""
        ...

    def memory_labels(self, agent_name: str, memories: Memories) -> Mapping[str, str]:
        """Return the trust labels of an agent's labelled memories, by key."""
        ...


class TaintTracker(Protocol):
    """Taint tracker of a turn's calls: inspects each call before it runs, and the result."""

    @property
    def label(self) -> str:
        """Current trust label of the turn."""
        ...

    @property
    def source(self) -> str:
        """Source that lowered the turn's trust below the level of agents, or an empty string."""
        ...

    def argument_labels(self, args: Any) -> Json:
        """Return the trust labels of a call's arguments for gates."""
        ...

    @property
    def next_label(self) -> str:
        """Trust label after the turn has received the result of the last inspected call."""
        ...

    def inspect_call(self, call: ToolCall, tool: Tool | None, context: ToolContext) -> None:
        """Inspect the data that a call may read, before it runs."""
        ...

    def label_result(self, result: ToolResult) -> ToolResult:
        """Return the result of the last inspected call with the trust label, for the record."""
        ...

    def record_result(self, result: ToolResult) -> None:
        """Note the result of a call, recorded or live."""
        ...
