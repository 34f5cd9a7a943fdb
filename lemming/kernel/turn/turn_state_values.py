"""Values of a turn's state. `lemming.kernel.turn.turn_state` changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import LemmingError, LimitReached, Paused, TurnTooLong
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.journal.turn_report import STATUS_OF, End, Status, ToolUseJson
from lemming.kernel.journal.write_offs import NO_WRITE_OFF
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.settings_blocks import LoopSettings
from lemming.kernel.providers import Message
from lemming.kernel.turn.call_numbers import CallNumbers
from lemming.kernel.turn.notices import Notices, without_notices
from lemming.kernel.turn.repeated_calls import RepeatDetector
from lemming.kernel.turn.turn_effects import Allowed, AskPerson, Event, ShowResult
from lemming.kernel.turn.turn_values import Answer, AnswerSource, TurnInputs

DEFAULT_LOOP_SETTINGS = LoopSettings()
"""Default limits of the loop breaker, for records without them."""
PAUSING_ERRORS = (LimitReached, Paused, TurnTooLong)

if TYPE_CHECKING:
    from lemming.kernel.turn.effect_chain import EffectChain


def _no_requests() -> Any:
    raise AssertionError("the turn has not begun")


class TurnStateValues:
    """Values of a turn's state.

    `answers`: the answers of models. `staged`: files to write, by path. `written_ahead`: files already
    written before a call with side effects. `results`: results of tool calls. The model has seen the first
    `shown_count`, and never sees the ones in `hidden_indexes`. `accepted_count`: number of applied replies.
    `forced_end`: end of the turn regardless of the strategy. `remaining_work`: description of the work left
    for the next turn.
    """

    # Python is slow at an object with more than thirty attributes, and this one is made for every turn.
    __slots__ = (
        "accepted_count",
        "answer_violation",
        "answers",
        "approvals",
        "approved_questions",
        "asks_persons",
        "auxiliary_answers",
        "call_ids",
        "call_numbers",
        "call_questions",
        "capabilities",
        "chain",
        "check_count",
        "conversation",
        "entries",
        "events",
        "external_results",
        "failed_attempts",
        "failure_entries",
        "forced_end",
        "found_tools",
        "has_answer",
        "has_withdrawn",
        "hidden_indexes",
        "inputs",
        "is_handed_off",
        "loops",
        "make_requests",
        "may_skip_response",
        "memory",
        "misaddressed_entries",
        "notes",
        "notices",
        "only_asks",
        "pending_indexes",
        "pending_states",
        "plugins",
        "remaining_work",
        "remarks",
        "repeats",
        "report_fields",
        "requests",
        "results",
        "shown_count",
        "source",
        "staged",
        "stop_error",
        "strategy_turn",
        "task",
        "told_entries",
        "tools_used",
        "transferred",
        "trust_label",
        "verdicts",
        "write_off",
        "written_ahead",
    )  # fmt: skip

    def __init__(self, inputs: TurnInputs, source: AnswerSource) -> None:
        self.inputs, self.source, self.task = inputs, source, inputs.task
        self.capabilities: Any = None  # `TurnCapabilities`, once the turn is taken
        self.chain: EffectChain | None = None  # of the capabilities that handle effects
        self.approvals: Any = None  # `TurnApprovals`, where persons are asked, or have approved something
        self.may_skip_response = False  # leaves its request open
        self.make_requests: Callable[[], Any] = _no_requests
        self.requests: Any = None  # `TurnRequests`, where the turn has any; it is built on this state
        self.plugins: tuple[str, ...] | None = None
        self.strategy_turn: Any = None  # the turn as strategies see it, once it runs
        self.events: list[Event] = []  # of turns with capabilities
        self.check_count = 0  # of check functions called
        self.accepted_count = self.shown_count = self.failed_attempts = 0
        self.notes = self.remaining_work = ""
        self.forced_end: End | None = None
        self.stop_error: LemmingError | None = None
        self.is_handed_off = False
        self.answer_violation = ""  # reason that the last reply's answer was rejected
        self.write_off = NO_WRITE_OFF
        self.answers: list[Answer] = []
        self.auxiliary_answers: dict[str, list[Answer]] = {}  # of these, answers to questions of capabilities
        # Outputs of the turn.
        self.entries: list[OutboxEntry] = []
        self.misaddressed_entries: dict[str, NewEntry] = {}  # of these, by id, entries for agents that do not exist
        self.staged: dict[str, FileEffect] = {}
        self.written_ahead: dict[str, FileEffect] = {}
        self.memory: dict[str, FileEffect] = {}
        self.transferred: dict[str, float] = {}  # by the resume that says so
        # Results of its calls.
        self.results: list[dict[str, Any]] = []
        self.call_ids: list[str] = []  # ids of the results at the provider
        self.conversation: list[Message] | None = None  # with the model, since it was asked for a reply
        self.found_tools: list[Mapping[str, Any]] = []  # the tools that they found, as models are told of them
        self.call_numbers = CallNumbers(source.has_call)
        self.call_questions: tuple[AskPerson, ...] = ()  # to persons, about the current call
        self.approved_questions = 0  # of these
        self.hidden_indexes: set[int] = set()
        self.tools_used: list[ToolUseJson] = []
        self.external_results: list[dict[str, Any]] = []
        self.notices = Notices()  # of the current reply
        failed_calls = (inputs.task.begun if inputs.task else inputs.state).in_vain
        self.loops = inputs.loops or DEFAULT_LOOP_SETTINGS
        self.repeats = RepeatDetector(failed_calls, self.loops.stop_after)
        self.has_withdrawn = False  # entries of an earlier reply, whose ids are free again
        self.told_entries: list[str] = []  # identities of urgent entries that a model has seen
        self.trust_label = ""  # of the turn so far; empty without tracking
        # For the report.
        self.remarks: list[str] = []
        self.verdicts: list[dict[str, Any]] = []
        self.report_fields: dict[str, Any] = {}  # by capabilities, as fields of its report
        # Requests.
        self.only_asks = False  # it asks persons, and shows no agent anything
        self.asks_persons = False  # because a question was stopped
        self.has_answer = False  # it shows something that may answer the agent's question
        self.pending_indexes: dict[str, int] = {}  # entries that ask, with the number of the result
        self.pending_states: dict[str, dict[str, Any]] = {}  # pending state of capabilities until an entry is answered
        self.failure_entries: list[OutboxEntry] = []  # of a turn that did not come off: that there is no answer

    @property
    def unshown_results(self) -> list[dict[str, Any]]:
        """Results that the model has not seen."""
        if self.shown_count == len(self.results):
            return []
        return [self.results[index] for index in self.unshown_indexes]

    @property
    def actionable_results(self) -> Sequence[dict[str, Any]]:
        """Results that justify another model call: no notices, except after a first useless reply."""
        unshown = self.unshown_results
        return without_notices(unshown) if unshown and not self.notices.should_retry else unshown

    @property
    def unshown_indexes(self) -> list[int]:
        """Indexes of the results that the model has not seen but should see."""
        return [index for index in range(self.shown_count, len(self.results)) if index not in self.hidden_indexes]

    @property
    def has_unshown_results(self) -> bool:
        """True if there is an unshown result, including results for calls of the backend."""
        return self.shown_count < len(self.results)

    @property
    def is_answered(self) -> bool:
        """True if the turn's task has an answer."""
        return self.requests is not None and bool(self.requests.is_answered)

    @property
    def pause_reason(self) -> str:
        """Reason against further calls other than the agent's credits, or an empty string."""
        return str(self.stop_error) if isinstance(self.stop_error, PAUSING_ERRORS) else ""

    @property
    def call_count(self) -> int:
        """Number of model calls, including calls without an answer."""
        return len(self.answers) + self.failed_attempts

    @property
    def can_skip_response(self) -> bool:
        """True if the turn may end without a reply and leave the task open."""
        return self.may_skip_response

    def get_status(self, end: End) -> Status:
        """Return the status of a turn with this end. Without an answer nothing can resume."""
        return "skipped" if end in ("out_of_credits", "paused") and not self.answers else STATUS_OF[end]

    def render_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result as the model sees it within the turn."""
        if self.chain is None or ShowResult not in self.chain:
            return result
        outcome = self.chain.dispatch(ShowResult(result=result))
        if isinstance(outcome, Allowed) and isinstance(outcome.effect, ShowResult):
            return outcome.effect.result
        return {**result, "output": f"[withheld: {getattr(outcome, 'reason', 'a person must decide first')}]"}

    def set_prompt(self, prompt: list[Message]) -> None:
        """Replace the prompt of the turn."""
        self.inputs = replace(self.inputs, prompt=prompt)

    def set_dialogue(self, dialogue: Sequence[Message]) -> None:
        """Put the messages of a dialogue behind the prompt of the turn."""
        self.inputs = replace(self.inputs, dialogue=dialogue)
