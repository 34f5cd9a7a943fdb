"""Hooks of a turn, in the order of their calls.

    context_provider (reads files)  ->  given.<name>, recorded before any model call
    ->  on_turn_start  ->  replies, calls  ->  save_state

A turn has interceptors only of capabilities with a recorded snapshot or with a part in the recorded inputs.
The record alone decides, so a turn that is resumed, replayed or explained has the same interceptors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_fields, accept_old_names
from lemming.kernel.base.contract import NewEntry, ToolCall, TurnReply
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.capability_state import CallNote, PendingApproval
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import Record, ToolFinished
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.journal.turn_report import End, Status, TurnReport
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.org.config import ORG_FILE, Config, OrgSettings, parse_capability_block
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.providers import Message, Request
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.context_provider import ContextProvider
from lemming.kernel.turn.guards import (
    ApprovalBroker,
    ApprovalOutcome,
    ApprovalRequest,
    BatchContext,
    CallBatcher,
    PayloadWithDigests,
    SharedResource,
    TaintTracker,
    ToolCallGuard,
    TrustLabeler,
    TurnGuard,
)
from lemming.kernel.turn.prompt_prefix import TickContext
from lemming.kernel.turn.turn_context import (
    CapabilityStatus,
    Drive,
    NoSettings,
    Rejected,
    ReplyHold,
    RetentionHold,
    SkipReason,
    StatusContext,
    TickLimits,
    TurnContext,
    VisibleContext,
)
from lemming.kernel.turn.turn_values import Purpose, Steps, TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.turn.strategy import Turn
    from lemming.kernel.turn.turn_state import TurnState

__all__ = [
    "ApprovalBroker",
    "ApprovalOutcome",
    "Capability",
    "CapabilityStatus",
    "ContextProvider",
    "Drive",
    "NoSettings",
    "Rejected",
    "SkipReason",
    "StatusContext",
    "TurnContext",
    "TurnInterceptor",
    "VisibleContext",
]  # fmt: skip


@accept_old_fields
class TurnInterceptor:
    """Interceptor of a turn for one capability.

    Pure: values in, values out; side effects go through the turn state.

    After a crash the turn runs again with the recorded answers, and the interceptor reaches the same state.
    """

    def __init__(self, name: str, turn_state: TurnState, snapshot: Json) -> None:
        self.name, self.turn_state, self.snapshot = name, turn_state, snapshot

    def on_turn_start(self) -> End | None:
        """Run before the turn's first model call; return the end of the turn if the turn ends here, else
        None.

        Tools are called through `turn_state.call_tool`, models through `turn_state.ask`: each call is
        recorded before the next step.
        """
        return None

    def strategy(self, turn: Turn, plugins: tuple[str, ...] | None) -> Steps | None:
        """Return the step generator that replaces `react`, or None.

        The first capability with a generator wins.
        """
        return None

    def wrap_run(self, turn: Turn, drive: Drive, steps: Steps) -> End:
        """Wrap the run of the strategy: call `drive` with the steps, and return the end of the turn.

        An override may judge the result and run more steps.
        """
        return drive(steps)

    def validate_reply(self, reply: TurnReply) -> None:
        """Raise `ContractError` for an unusable reply. The model is asked again if repairs are left."""

    def validate_entries(self, entries: list[NewEntry]) -> list[NewEntry | list[str]]:
        """Return each entry of a reply as it is written, or the list of problems in the payload.

        Only one interceptor overrides this hook.
        """
        return [*entries]

    def attach_digests(self, payloads: Sequence[Json], at: str) -> Sequence[PayloadWithDigests]:
        """Return the payloads with the digests of their attached files.

        Files are read through the turn state.
        """
        return [PayloadWithDigests(payload) for payload in payloads]

    def after_reply(
        self, first: int, written: int, effects_before: Mapping[str, FileEffect], *, has_seen: bool
    ) -> None:
        """Run after a reply has been staged and the calls have run.

        The turn's entries from index `first` on are new.

        `written`: number of these entries that the reply itself wrote, without the entries of the calls.
        `effects_before`: the staged files before the memories of the reply. `has_seen`: True if a model gave
        the reply, False if the strategy made the reply itself.
        """

    def guard(self) -> TurnGuard | None:
        """Return the guard of this turn, or None.

        The guard runs after all other checks; only one interceptor has a guard.
        """
        return None

    def before_call(self, call: ToolCall) -> ToolCall | Rejected:
        """Allow, change or reject a tool call before it runs. Gates check the call that this hook returns."""
        return call

    def handle_call(self, call: ToolCall, at: str) -> bool:
        """Handle a call that belongs to this capability and return True; return False for a call of a tool."""
        return False

    def after_call(self, index: int, call: ToolCall, result: ToolResult) -> None:
        """Run after tool call number `index` of the turn.

        The result is recorded, and the call is never repeated.
        """

    def trust_label(self) -> str:
        """Return the current trust label of the turn, or an empty string. The first non-empty label wins."""
        return ""

    def before_write(self, files: dict[str, FileEffect]) -> dict[str, FileEffect]:
        """Return the staged files as they are written before a call with side effects, with label files
        added.
        """
        return files

    def render_result(self, result: Json) -> Json:
        """Return a call's result as the model sees it within the turn. The recorded result is unchanged."""
        return result

    def on_approval_required(self, new: NewEntry, approval: ApprovalRequest, at: str) -> None:
        """Handle an entry that needs approval. The entry is not written; a result informs the model."""

    def pending_state(self, new: NewEntry) -> Json:
        """Return the state to store until the request of this capability, written by a call, is answered:

        `SubRequest.held`.
        """
        return {}

    def on_limit_reached(self, verdict: Json) -> None:
        """Run when a limit with "ask" stops a model call."""

    def finalize(self) -> None:
        """Make the last changes to the staged entries and files. Nothing changes afterwards."""

    def extra_requests(self) -> list[Json]:
        """Return payloads of requests to append to the turn's own entries if the turn succeeds."""
        return []

    def on_requests_added(self, entries: Sequence[OutboxEntry]) -> None:
        """Run with the entries of the extra requests, as many as there was room for."""

    def on_turn_end(self, end: End, error: LemmingError | None) -> End:
        """Return the end of a turn that ends with `end`, through `error` or normally, and finish the writes.

        Called first when the turn is over. Gates do not check the writes of this hook.
        """
        return end

    def can_skip_response(self) -> bool:
        """Return True if the turn may end without a reply and leave the task unanswered."""
        return False

    def wait_reason(self) -> str:
        """Return a description of the wait of a waiting turn, or an empty string."""
        return ""

    def update_agent_state(self, state: AgentState, status: Status, end: End) -> None:
        """Update the agent state in place with the result of the turn. A failed turn changes nothing."""

    def complete_entry(self, new_entry: NewEntry, *, alone: bool) -> NewEntry | Rejected:
        """Return an entry with known fields filled in, before any check, or a rejection.

        `alone`: the entry is independent of the turn's task. Called for the engine's entries, too.
        """
        return new_entry

    def is_answered(self) -> bool:
        """Return True if the turn's task has an answer, so that no further model call is needed."""
        return False

    def before_entry(self, new: NewEntry, at: str) -> NewEntry | Rejected:
        """Allow, change or reject an outgoing entry.

        The entry is staged, not yet written. `at`: time of the reply.
        """
        return new

    def save_state(self, *, is_applied: bool, holds_all: bool) -> Json:
        """Return the complete state that the agent's ledger stores as `kept.<name>`, or {} to store nothing.

        `is_applied`: True if the turn's writes count, False if the turn failed. `holds_all`: the writes may
        count, because the files may have been written. After a crash before the ledger is written, the turn
        runs again.
        """
        state: Json = self.turn_state.inputs.state.kept.get(self.name, {})
        return state


@accept_old_names
class Capability:
    """Entry point of a capability for the engine: one stateless value per process.

    `name` is the name in the table, in records and in ledgers. For a plugin, `org_settings_type` is the
    dataclass of the block in `config/org.json`, `agent_settings_type` the dataclass of the block in a resume,
    and `after` names the capabilities that run before it.
    """

    name: str
    org_settings_type: type[Any] = NoSettings
    agent_settings_type: type[Any] = NoSettings
    after: tuple[str, ...] = ()

    def org_settings(self, config: Config) -> Any:
        """Return the capability's block of `config/org.json`, or None if there is no block.

        Raises `ConfigError`.
        """
        return parse_capability_block(self.name, self.org_settings_type, config.org.capabilities, ORG_FILE)

    def agent_settings(self, agent: Agent) -> Any:
        """Return the capability's block of a resume, or None if there is no block. Raises `ConfigError`."""
        return parse_capability_block(
            self.name, self.agent_settings_type, agent.capabilities, paths.resume_file(agent.name)
        )

    def turn_policy(self, agent: Agent) -> TurnPolicy | None:
        """Return the turn policy of an agent whose model key names a provider of this capability, or None."""
        return None

    def entries_from_call(self, call: ToolCall) -> Sequence[NewEntry]:
        """Return the entries that a successful call of one of the tools writes.

        Uses only the recorded call.
        """
        return ()

    def context_provider(self, context: TurnContext) -> ContextProvider | None:
        """Return the context provider of a turn, or None if the capability takes no part."""
        return None

    def interceptor(self, turn_state: TurnState, snapshot: Json) -> TurnInterceptor:
        """Return the interceptor of a turn that began with this snapshot."""
        return TurnInterceptor(self.name, turn_state, snapshot)

    def approval_broker(
        self, tick_context: TickContext, inputs: TurnInputs, finished: Mapping[int, ToolFinished]
    ) -> ApprovalBroker | None:
        """Return the approval broker of a turn, or None.

        The broker is asked live, before a call runs; the decision is recorded as the call's result.
        """
        return None

    def resolve_model(self, snapshot: Json, key: str) -> ModelEntry | None:
        """Return the model entry of a key of the own, which no line of a file defines, or None."""
        return None

    def before_model_call(
        self,
        request: Request,
        entry: ModelEntry,
        inputs: TurnInputs,
        base: Path,
        unwritten_files: Mapping[str, bytes],
    ) -> Request:
        """Return a model request with content that no record stores, read from files."""
        return request

    def tool_call_guard(self, tick_context: TickContext, inputs: TurnInputs) -> ToolCallGuard | None:
        """Return the guard of a turn's tool calls, or None. Only capabilities in current use are asked."""
        return None

    def tick_limits(
        self,
        tick_context: TickContext,
        journal: Journal,
        order: Sequence[str],
        reports: Mapping[str, TurnReport],
    ) -> TickLimits | None:
        """Return the spending limits of a tick's turns, or None for no limits.

        `reports`: the finished turns. The first capability wins.
        """
        return None

    def call_batcher(self, batch: BatchContext) -> CallBatcher | None:
        """Return the batcher of a tick's model calls, or None to make each call immediately.

        The engine asks the capability that the run names, else the capability with records in the tick's
        journal.
        """
        return None

    def shared_resources(
        self, agents: Mapping[str, Agent], settings: OrgSettings
    ) -> Iterable[SharedResource]:
        """Return the resources besides files that turns of these agents share, so that the turns run in
        order.
        """
        return ()

    def trust_labeler(self, tick_context: TickContext) -> TrustLabeler | None:
        """Return the source of trust labels, or None. Only one capability has labels."""
        return None

    def taint_tracker(self, tick_context: TickContext, inputs: TurnInputs) -> TaintTracker | None:
        """Return the taint tracker of a turn's live calls, or None."""
        return None

    def resume_blocker(self, inputs: TurnInputs, tick_context: TickContext) -> str:
        """Return the reason an interrupted turn cannot resume as recorded, or an empty string."""
        return ""

    def on_turn_abandoned(
        self, state: AgentState, inputs: TurnInputs, records: Iterable[Record], error: str
    ) -> AgentState:
        """Return the agent state after a turn was abandoned by an error, based on the turn's records."""
        return state

    def parse_purpose(self, raw: Json) -> Purpose | None:
        """Return the purpose of a turn from the record.

        Raises `ValueError` for invalid JSON. Only one capability parses purposes.
        """
        return None

    def reply_hold(self, mail: MailView) -> ReplyHold | None:
        """Return the reply hold, which keeps expired entries that still await a reply, or None."""
        return None

    def results_after_abandon(
        self, inputs: TurnInputs, records: Iterable[Record], results: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the results of an abandoned turn, by the records, for the next turn."""
        return results

    def validate_state(self, state: Json) -> None:
        """Raise `ValueError` for foreign state in a ledger.

        Called on reading a ledger, for shipped capabilities only.
        """

    def validate_pending_state(self, pending_state: Json) -> None:
        """Raise `ValueError` for foreign pending state of a request.

        Called on reading a ledger, for shipped capabilities only.
        """

    def skip_reason(
        self, org: Organisation, agent: Agent, open_requests: Sequence[OpenRequest]
    ) -> SkipReason | None:
        """Return the reason an agent cannot continue these requests while an external event is pending, or
        None.
        """
        return None

    def sub_requests(self, state: Json) -> Sequence[SubRequest]:
        """Return sub-requests recorded in the capability's state rather than in the agent's requests."""
        return ()

    def limit_raises(self, state: Json, line: str) -> Mapping[str, Json]:
        """Return the raises of the limit in a line, by the request that asked for each raise."""
        return {}

    def can_decide(self, payload: Mapping[str, Any]) -> bool:
        """Return True if a response with this payload decides a request of the capability."""
        return True

    def pending_approvals(self, org: Organisation, requests: Iterable[Any]) -> Mapping[str, PendingApproval]:
        """Return the items that wait for a person, by request, among the open requests shown in `requests`."""
        return {}

    def call_note(self, state: Json) -> CallNote:
        """Return the note to show with a call that has this recorded state."""
        return CallNote("", "", "")

    def validate_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield problems in the organisation's use of the capability.

        `only`: restrict the check to one agent.
        """
        yield from ()

    def retention_hold(self, org: Organisation, config: Config, survey: Survey) -> RetentionHold | None:
        """Return the retention hold, which keeps entries past their retention, or None."""
        return None

    def tool_references(self, source: OrgSettings | Agent) -> Iterable[str]:
        """Return the tool names or patterns in the key of the settings or of a resume."""
        return ()

    def validate_references(self, agent: Agent | None, names: Any) -> Iterator[tuple[str, str, str]]:
        """Yield location, message and hint of each reference to an unknown name.

        `agent`: check the resume of this agent, or the settings if None.
        """
        yield from ()

    def validate_settings(self, base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
        """Yield further problems in the key of a resume, or of the settings if `agent` is None."""
        yield from ()

    def validate_files(self, base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
        """Yield problems in the files of an agent, whether or not the agent uses it.

        Shipped capabilities only.
        """
        yield from ()

    def external_roots(self, agents: Iterable[Agent]) -> Iterable[str]:
        """Return folders outside the usual ones that the capability reads.

        Copies and history include these folders.
        """
        return ()

    def external_files(self, base: OrgPath, agents: Iterable[Agent]) -> Iterable[str]:
        """Return the existing files below the external roots."""
        return ()

    def auxiliary_prompts(self, snapshot: Json) -> Mapping[str, Sequence[Message]]:
        """Return the prompts asked before the turn's own, by purpose. Limits reserve for these prompts."""
        return {}

    def validate_agent(self, agent: Agent, config: Config) -> Iterator[Problem]:
        """Yield problems in an agent's use of the capability, for `lemming validate`."""
        yield from ()

    def wrap_rename(self, base: OrgPath, old_name: str, new_name: str) -> AbstractContextManager[None]:
        """Move the capability's file state along with renames inside the block. Runs again after a crash."""
        return nullcontext()

    def required_permissions(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[RequiredPermission]:
        """Yield the side effects a person must agree to. `servers`: servers named outside the agents."""
        yield from ()

    def status_lines(self, context: StatusContext) -> Iterable[CapabilityStatus]:
        """Return status lines for `lemming status` and cards for the web page. Read-only."""
        return ()
