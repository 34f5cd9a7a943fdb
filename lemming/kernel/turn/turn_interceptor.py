"""The interceptor of a turn: the hooks between the start of a turn and the saving of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.contract import NewEntry, ToolCall, TurnReply
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.effect_chain import Interceptor
from lemming.kernel.turn.guards import PayloadWithDigests
from lemming.kernel.turn.turn_context import Drive, Rejected
from lemming.kernel.turn.turn_effects import AskModel, CallTool, Effect, EffectPerformed, Interception
from lemming.kernel.turn.turn_values import Steps
from lemming.kernel.turn.turn_view import TurnView

if TYPE_CHECKING:
    from lemming.kernel.turn.strategy import Turn
    from lemming.kernel.turn.turn_state import TurnState


class TurnInterceptor:
    """Interceptor of a turn for one capability.

    Pure: values in, values out; side effects go through the turn state.

    After a crash the turn runs again with the recorded answers, and the interceptor reaches the same state.
    """

    handles: Sequence[type[Effect]] = ()
    """Types of effects that `intercept` gets."""
    facts: Sequence[str] = ()
    """Facts that it may write into effects."""

    def __init__(self, name: str, turn_state: TurnState, snapshot: Json) -> None:
        self.name, self.turn_state, self.snapshot = name, turn_state, snapshot

    capability: Any = None  # with `intercept` and `reduce` of its own

    def as_link(self) -> Interceptor:
        """Return the part of the effect chain."""
        if self.handles or not (self.capability and self.capability.handles):
            return Interceptor(self.name, self.handles, self.facts, self.intercept)
        intercept = partial(self.capability.intercept, turn=self._view)
        return Interceptor(self.name, self.capability.handles, self.capability.facts, intercept)

    @cached_property
    def _view(self) -> TurnView:
        return TurnView(self.name, self.turn_state, self.snapshot)

    def reduce_state(self, state: Json, is_applied: bool) -> Json:
        """Return the capability's state after the events of the turn that count."""
        if self.capability is None:
            return state
        for event in self.turn_state.events:
            if is_applied or (isinstance(event, EffectPerformed) and isinstance(event.effect, (CallTool, AskModel))):
                state = self.capability.reduce(state, event, self._view)
        return state

    def intercept(self, effect: Any) -> Interception:
        """Return the outcome of an effect, None to take no part, or a generator that yields effects.

        `outcome = yield effect`, changed or not, passes the effect on to the rest of the chain.
        """
        return None

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

    def save_state(self, *, is_applied: bool, holds_all: bool) -> Json:
        """Return the complete state that the agent's ledger stores as `kept.<name>`, or {} to store nothing.

        `is_applied`: True if the turn's writes count, False if the turn failed. `holds_all`: the writes may
        count, because the files may have been written. After a crash before the ledger is written, the turn
        runs again.
        """
        state: Json = self.turn_state.inputs.state.kept.get(self.name, {})
        return state
