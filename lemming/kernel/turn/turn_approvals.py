"""Questions of a turn to persons: what waits, what was approved, and what is left for later turns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.journal.person_requests import SPEND
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.pending_approvals import NAME, PendingAction, parse_pending_action
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.approved_calls import (
    bind_entries,
    list_grants,
    make_approved_calls,
    mark_calls_made,
    request_entry_approval,
)
from lemming.kernel.turn.current_request import make_sub_request
from lemming.kernel.turn.turn_effects import AskModel, AskPerson, Outcome, Rejected, Suspended, WriteEntry

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState


class TurnApprovals:
    """Questions of a turn to persons, and the calls and entries that persons approved.

    `snapshot`: state of requests outside of calls (`asked`), persons to ask about new items (`new`, `spend`,
    `askable`), decisions on calls, and preapprovals.
    """

    def __init__(self, turn_state: TurnState) -> None:
        self.turn_state, self.snapshot = turn_state, turn_state.inputs.given.get(NAME, {})
        self._used_grants: list[tuple[Json, bool]] = []  # grants of the calls made, and True for side effects
        self._changed_files: list[str] = []  # files that changed since an entry was approved
        self._spending_requests: list[Json] = []  # payloads of requests to spend more
        self._written_requests: Sequence[OutboxEntry] = ()  # requests written at the end of the turn

    def start(self) -> End | None:
        """Make the approved calls. Each is recorded like any call, and so never made twice."""
        if self.snapshot.get("only"):
            self.turn_state.only_asks = True
            return "waits"
        decided = self.snapshot.get("decided")
        return make_approved_calls(self.turn_state, decided, self._changed_files) if decided else None

    def bind_entries(self, first: int) -> None:
        """Bind pending entries to the contents of their attached files."""
        bind_entries(self.turn_state, first, self.turn_state.answers[-1].at)

    def record_result(self, result: ToolResult, *, had_side_effects: bool) -> None:
        """Record the grant of an approved call."""
        if NAME in result.state:
            self._used_grants.append((result.state[NAME], had_side_effects))

    def ask(self, effect: AskPerson) -> Outcome:
        """Ask persons about an entry or a question to a model. A result tells the model what an entry waits for."""
        subject = effect.subject
        if isinstance(subject, AskModel) and "verdict" in effect.facts:
            self._ask_to_spend(effect.facts["verdict"])
            return Suspended(effect)
        if not isinstance(subject, WriteEntry):
            return Rejected(f"{effect.reason}: no person can be asked about this")
        askable = self.snapshot.get("askable", {})
        people = askable.get(effect.asked_by)
        if people is None:  # no gate asks
            people = [name for name in askable.get("", ()) if effect.persons is None or name in effect.persons]
        turn_state = self.turn_state
        index = len(turn_state.results)
        # The calls of this reply have their numbers already. A turn started by 0.2.0 keeps its numbering.
        number = turn_state.call_numbers.reserve(index) if self.snapshot.get("numbered") else index
        identity = f"{turn_state.inputs.tick}/{turn_state.inputs.agent.name}/{number}"
        request_entry_approval(turn_state, identity, subject.new, effect, people, subject.at, self._changed_files)
        return Suspended(effect)

    def pending_state(self, new: NewEntry) -> Json:
        """Return the state to store with a request to a person until it is answered."""
        return {NAME: parse_pending_action(new.payload)}

    def _ask_to_spend(self, verdict: Json) -> None:
        """Ask for a raise of the limit that stops a model call.

        Pending and denied raises are not asked again.
        """
        line, turn_state = verdict["line"], self.turn_state
        question = self.snapshot.get("spend", {}).get(line)
        if not question or not question["people"]:
            return
        args = {**question["more"], "of": verdict["about"]}
        for sub_request in self._sub_requests:
            call = sub_request.held[NAME]
            if (call["tool"], call["gate"], call["args"]) == (SPEND, line, args) and sub_request.end != "approved":
                return
        agent, tick = turn_state.inputs.agent.name, turn_state.inputs.tick
        action = PendingAction.from_limit(tick, agent, args, line, verdict["why"])
        expires = (question["expires"],) if "expires" in question else ()
        amounts = verdict.get("amounts")
        self._spending_requests.append(
            action.build_request(question["people"], expires, self.snapshot["at"], amounts=amounts)
        )
        turn_state.asks_persons = True
        turn_state.only_asks = not (turn_state.answers or turn_state.results)

    @property
    def _sub_requests(self) -> list[SubRequest]:
        return [to_value(SubRequest, raw) for raw in self.snapshot.get("asked", ())]

    def make_requests(self, first: int, room: int) -> list[OutboxEntry]:
        """Return the requests to persons after the turn's first `first` entries, at most `room`."""
        payloads = [*self.snapshot.get("new", ()), *self._spending_requests]
        inputs, at = self.turn_state.inputs, str(self.snapshot.get("at", ""))
        self._written_requests = [
            OutboxEntry(inputs.entry_id(number), inputs.tick, inputs.agent.name, "request", payload, [], at)
            for number, payload in enumerate(payloads[:room], first)
        ]
        return [*self._written_requests]

    def wait_reason(self) -> str:
        """Return the persons who must decide before anything is shown, as text."""
        if not self.turn_state.only_asks:
            return ""
        if self.turn_state.asks_persons:
            return self.turn_state.pause_reason
        names = sorted({name for entry in self._written_requests for name in entry.targets})
        return f"nothing is shown before {' or '.join(names)} decides"

    def update_agent_state(self, state: AgentState, status: Status, end: End) -> None:
        """End the wait for calls with side effects that a failed turn made."""
        if status == "failed":
            # The call took effect although its turn failed: its approval must not make it a second time.
            outside_grants = [grant for grant, is_outside in self._used_grants if is_outside]
            made_ids = {item["id"] for grant in outside_grants for item in list_grants(grant)}
            state.requests = mark_calls_made(state.requests, made_ids)

    def save_state(self, *, is_applied: bool, holds_all: bool) -> Json:
        """Return the state of requests outside of calls, the used preapprovals, and the denials."""
        new = [
            make_sub_request(entry, to, {NAME: parse_pending_action(entry.payload)})
            for entry in (self._written_requests if is_applied else ())
            for to in sorted(entry.targets)
        ]
        sub_requests = [*self.snapshot.get("asked", ()), *(item.as_json() for item in new)]
        # An approval used for a side effect, or for files that may exist, is used up even if the turn failed.
        used_grants = [grant for grant, is_outside in self._used_grants if holds_all or is_outside]
        used_entries = [item["entry"] for grant in used_grants for item in list_grants(grant)]
        used_entries = [*self.snapshot.get("used", ()), *used_entries]
        state = {"asked": sub_requests, "used": used_entries, "denied": self.snapshot.get("denied", ())}
        return {key: value for key, value in state.items() if value}
