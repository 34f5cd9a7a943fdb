"""Values of a turn's state. `lemming.kernel.turn.turn_state` changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import LemmingError, LimitReached, Paused, TurnTooLong
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.turn_report import STATUS_OF, End, Status
from lemming.kernel.journal.write_offs import NO_WRITE_OFF, WriteOff
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.current_request import has_handoff
from lemming.kernel.obligations.grants import parse_pending_action
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.providers import Message
from lemming.kernel.turn.effect_chain import NO_CHAIN, EffectChain
from lemming.kernel.turn.loop_breaker import RepeatDetector
from lemming.kernel.turn.turn_effects import Event, ShowResult
from lemming.kernel.turn.turn_results import TurnResults
from lemming.kernel.turn.turn_values import Answer, AnswerSource, TurnInputs

PAUSING_ERRORS = (LimitReached, Paused, TurnTooLong)


@dataclass(slots=True, eq=False)  # Python is slow at an object with more than thirty attributes outside slots
class TurnStateValues:
    """Values of a turn's state.

    `answers`: the answers of models. `staged`: files to write, by path. `written_ahead`: files already
    written before a call with side effects. `accepted_count`: number of applied replies.
    `forced_end`: end of the turn regardless of the strategy.
    """

    inputs: TurnInputs
    source: AnswerSource
    chain: EffectChain = NO_CHAIN  # of its capabilities, a `TurnChain` then
    approvals: Any = None  # `TurnApprovals`, where persons are asked, or have approved something
    has_requests: bool = False  # it serves, shows or can create requests
    strategy_turn: Any = None  # the `Turn` that strategies see: its conversation and its note
    events: list[Event] = field(default_factory=list)  # of turns with capabilities
    accepted_count: int = 0
    failed_attempts: int = 0
    forced_end: End | None = None
    stop_error: LemmingError | None = None
    is_handed_off: bool = False
    may_skip_response: bool = False  # it may end without a reply, and leave its request open
    answer_violation: str = ""  # reason that the last reply's answer was rejected
    write_off: WriteOff = NO_WRITE_OFF
    answers: list[Answer] = field(default_factory=list)
    # Outputs of the turn.
    entries: list[OutboxEntry] = field(default_factory=list)
    misaddressed_entries: dict[str, NewEntry] = field(default_factory=dict)  # by id, for agents that do not exist
    staged: dict[str, FileEffect] = field(default_factory=dict)
    written_ahead: dict[str, FileEffect] = field(default_factory=dict)
    memory: dict[str, FileEffect] = field(
        default_factory=dict
    )  # those of `staged` and `written_ahead` that are memories
    transferred: dict[str, float] = field(
        default_factory=dict
    )  # credits given to other agents, by the resume that grants them
    failure_entries: list[OutboxEntry] = field(default_factory=list)  # of a failed turn: that there is no answer
    results: TurnResults = field(init=False)
    repeats: RepeatDetector = field(init=False)
    # For the report.
    remarks: list[str] = field(default_factory=list)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    report_fields: dict[str, Any] = field(default_factory=dict)  # by capabilities, as fields of its report
    # Requests.
    only_asks: bool = False  # it asks persons, and shows no agent anything
    asks_persons: bool = False  # because a question was stopped
    last_requests: list[NewEntry] = field(default_factory=list)  # to persons, written beside the other entries
    pending_indexes: dict[str, int] = field(default_factory=dict)  # by entry that asks: place of its result, from 1
    pending_states: dict[str, dict[str, Any]] = field(default_factory=dict)  # of capabilities, by entry that asks

    def __post_init__(self) -> None:
        inputs, self.results = self.inputs, TurnResults(self.source.has_call)
        failed_calls = (inputs.current_request.begun if inputs.current_request else inputs.state).in_vain
        self.repeats = RepeatDetector(failed_calls, inputs.loops)

    @property
    def is_answered(self) -> bool:
        """True if the turn's request has an answer."""
        request = self.inputs.current_request
        return request is not None and request.is_answered(self.entries)

    @property
    def trust_label(self) -> str:
        """Trust label of the turn so far, or an empty string without tracking."""
        return str(self.report_fields.get("trust", {}).get("is", ""))

    @property
    def pause_reason(self) -> str:
        """Reason against further calls other than the agent's credits, or an empty string."""
        return str(self.stop_error) if isinstance(self.stop_error, PAUSING_ERRORS) else ""

    @property
    def call_count(self) -> int:
        """Number of model calls, including calls without an answer."""
        return len(self.answers) + self.failed_attempts

    @property
    def cost(self) -> float:
        """Cost of the turn so far, in the unit of the budget of its request."""
        request = self.inputs.current_request
        if request is None:
            return 0.0
        return request.sum_costs(self.answers, self.write_off if request.counts_open_budgets else NO_WRITE_OFF)

    def get_status(self, end: End) -> Status:
        """Return the status of a turn with this end. Without an answer nothing can resume."""
        return "skipped" if end in ("out_of_credits", "paused") and not self.answers else STATUS_OF[end]

    def render_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result as the model sees it within the turn."""
        if ShowResult not in self.chain.handled:
            return result
        shown = self.chain.decide(ShowResult(result=result))
        return shown.result if isinstance(shown, ShowResult) else {**result, "output": f"[withheld: {shown.reason}]"}

    # From here on: changes, also by other modules of the turn, which never assign to the state.

    def begin(self, chain: EffectChain, strategy_turn: Any, approvals: Any, *, has_requests: bool) -> None:
        """Set the parts of the turn."""
        self.chain = chain
        self.approvals = approvals
        self.strategy_turn = strategy_turn
        self.has_requests = has_requests

    def remark(self, *remarks: str) -> None:
        """Add remarks to the report of the turn."""
        self.remarks += remarks

    def report(self, key: str, value: Any) -> None:
        """Set a field of the turn's report."""
        self.report_fields[key] = value

    def set_prompt(self, prompt: list[Message], dialogue: Sequence[Message] | None = None) -> None:
        """Replace the prompt of the turn, and the messages behind it unless `dialogue` is None."""
        self.inputs = replace(
            self.inputs, prompt=prompt, dialogue=self.inputs.dialogue if dialogue is None else dialogue
        )

    def set_payload(self, index: int, payload: dict[str, Any]) -> None:
        """Change the payload of an entry, and the action that waits for its answer."""
        entry = self.entries[index]
        self.entries[index] = replace(entry, payload=payload)
        if entry.identity in self.pending_states:
            self.pending_states[entry.identity] = {DECISION_RULES: parse_pending_action(payload)}

    def move_awaited(self, positions: Mapping[int, int]) -> None:
        """Let entries wait for results at other positions, by the position up to now."""
        self.pending_indexes = {entry: positions.get(at, at) for entry, at in self.pending_indexes.items()}

    def mark_written_ahead(self, files: Mapping[str, FileEffect]) -> None:
        """Note that files are on the disk: a later change is not the tools'."""
        self.written_ahead.update(files)
        self.staged.clear()

    def show_nothing(self) -> None:
        """Let the turn only ask persons: it shows no agent anything."""
        self.only_asks = True

    def note_handoff(self) -> None:
        """Note if an entry hands the request of the turn to another agent."""
        self.is_handed_off = has_handoff(self.entries)

    def stop(self, error: LemmingError) -> None:
        """Note the error because of which the turn makes no further calls of models."""
        self.stop_error = error
