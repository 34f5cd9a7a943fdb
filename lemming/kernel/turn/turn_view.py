"""A turn as a capability sees it: read-only, but for a few verbs that add to its records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.object_cache import ObjectCache
from lemming.kernel.files.field_types import Json
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.effect_guard import AFTER_END, is_plugin, lend
from lemming.kernel.turn.live_phase import LivePhase
from lemming.kernel.turn.turn_effects import Effect, Event, Withdraw

if TYPE_CHECKING:
    from lemming.kernel.agents import Agent
    from lemming.kernel.base.errors import LemmingError
    from lemming.kernel.files.file_effects import FileEffect
    from lemming.kernel.journal.turn_report import End, Status
    from lemming.kernel.messages import OutboxEntry
    from lemming.kernel.obligations.current_request import CurrentRequest
    from lemming.kernel.providers import Message
    from lemming.kernel.turn.strategy import Turn
    from lemming.kernel.turn.turn_state import TurnState
    from lemming.kernel.turn.turn_values import Answer, CheckFinding, CheckRun, TurnInputs

T = TypeVar("T")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class TurnView(ObjectCache):
    """A turn as one capability sees it.

    `snapshot`: what the capability's `prepare` returned, as recorded. Everything here follows from the journal: a
    turn that is resumed or replayed shows the same.
    """

    __slots__ = ("_caches", "_folds", "_handles", "_live", "_state", "name", "snapshot")

    def __init__(
        self, name: str, state: TurnState | LivePhase, snapshot: Json, handles: Collection[type[Effect]] = frozenset()
    ) -> None:
        self.name, self.snapshot, self._handles = name, snapshot, handles
        self._live = state if isinstance(state, LivePhase) else None
        self._state = cast("TurnState", state)  # of the live phase, a view shows the inputs alone
        self._folds: dict[Any, tuple[int, Any]] = {}
        self._caches: dict[Any, Any] = {}

    @property
    def inputs(self) -> TurnInputs:
        """The recorded inputs of the turn."""
        return self._state.inputs

    @property
    def agent(self) -> Agent:
        """The agent that takes the turn."""
        return lend(self.name, self, self._state.inputs.agent)

    @property
    def tick(self) -> int:
        """The number of the tick."""
        return self._state.inputs.tick

    @property
    def request(self) -> CurrentRequest | None:
        """The request that the turn serves, or None."""
        return self._state.inputs.current_request

    @property
    def remaining_entries(self) -> int:
        """Number of entries that the turn may still write."""
        return self._state.remaining_entries

    @property
    def awaited_count(self) -> int:
        """Number of questions that the turn has asked and that are answered in a later turn."""
        return len(self._state.pending_indexes)

    @property
    def pending_states(self) -> Sequence[Mapping[str, Json]]:
        """The pending actions of these questions, each by the capability that asks."""
        return tuple(self._state.pending_states.values())

    @property
    def live(self) -> LivePhase:
        """The live phase, for `RunTool` and any other `LiveEffect`. Raises `TypeError` elsewhere."""
        if self._live is None:
            raise TypeError("only interceptors of live effects may look at files and at the tick")
        return self._live

    @property
    def state(self) -> Json:
        """The capability's own state in the agent's ledger as the turn began, or {}."""
        state: Json = self._state.inputs.state.kept.get(self.name, {})
        return lend(self.name, self, state)

    @property
    def trust_label(self) -> str:
        """Current trust label of the turn, or an empty string without tracking."""
        return self._state.trust_label

    @property
    def entries(self) -> Sequence[OutboxEntry]:
        """The entries that the turn has written up to now, in order."""
        return tuple(self._lend(self._state.entries))

    @property
    def forced_end(self) -> End | None:
        """The end to which the turn must come without a further step, or None."""
        return self._state.forced_end

    @property
    def is_handed_off(self) -> bool:
        """True if the turn has handed its request to another agent."""
        return self._state.is_handed_off

    @property
    def can_skip_response(self) -> bool:
        """True if the turn may end without a reply and leave the request open."""
        return self._state.may_skip_response

    @property
    def strategy_turn(self) -> Turn:
        """The turn as strategies see it: its conversation and its next replies."""
        turn: Turn = self._state.strategy_turn
        return turn

    @property
    def answers(self) -> Sequence[Answer]:
        """The answers of models up to now."""
        return tuple(self._lend(self._state.answers))

    @property
    def cost(self) -> float:
        """The cost of the turn so far, in the unit of the budget of its request."""
        return self._state.cost

    @property
    def answer_violation(self) -> str:
        """The reason why the answer in the last reply is not what was asked for, or an empty string."""
        return self._state.answer_violation

    @property
    def asks_persons(self) -> bool:
        """True if a question to a model was stopped, and persons are asked about it."""
        return self._state.asks_persons

    @property
    def is_cycling(self) -> bool:
        """True if the turn only repeats calls."""
        return self._state.repeats.is_cycling

    def get_status(self, end: End) -> Status:
        """Return the status of the turn if it ends so."""
        return self._state.get_status(end)

    def make_entry(self, new: NewEntry, entries: Sequence[OutboxEntry], at: str) -> OutboxEntry:
        """Return the entry after these for the end of the turn. It is not written."""
        return self._state.to_entry(new, self._state.next_id(entries), at)

    def get_memory_file(self, path: str) -> FileEffect:
        """Return a memory that the turn has written, by path."""
        return self._state.memory[path]

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """The results of the turn's calls up to now: tool, args, success, output."""
        return tuple(self._lend(self._state.results.items))

    def _lend(self, values: list[T]) -> list[T]:
        """Return values of the turn; copies for a plugin, which could change them in place."""
        return deepcopy(values) if is_plugin(self.name) else values

    def iter_events(self, start: int = 0) -> Iterator[Event]:
        """Yield the events of the turn from `start` on that concern effects of the types that the capability handles."""
        return (event for event in self._state.events[start:] if type(event.effect) in self._handles)

    def fold(self, add: Callable[[T, Event], T], first: T) -> T:
        """Return the fold of a pure function over the events of the capability's types so far. New events cost once."""
        folded: tuple[int, T] = self._folds.get(add, (0, first))
        count, value = folded
        for event in self.iter_events(count):
            value = add(value, event)
        self._folds[add] = len(self._state.events), value
        return value

    # --- records ------------------------------------------------------------------------------------

    def add_verdicts(self, verdicts: Iterable[Json]) -> None:
        """Add verdicts to the turn's report."""
        self._state.verdicts += verdicts

    def remark(self, text: str) -> None:
        """Add a remark, of at most 500 characters, to the turn's report."""
        self._state.remark(text[:500])

    def report(self, key: str, value: Any) -> None:
        """Set a field of the turn's report."""
        self._state.report(key, value)

    def get_report(self, key: str) -> Any:
        """Return a field of the turn's report, or None."""
        return self._state.report_fields.get(key)

    def fail(self, error: LemmingError) -> End:
        """End the turn as failed, and return that end."""
        return self._state.fail(error)

    def fail_request(self, reason: str) -> None:
        """Answer the turn's request with the reason for its failure."""
        self._require_open()
        self._state.fail_request(reason)

    def reserve_number(self) -> int:
        """Return a number for an item that is no call, among the numbers of the turn's calls."""
        return self._state.results.numbers.reserve()

    # --- writes ---------------------------------------------------------------------------------------

    def write_entry(self, new: NewEntry, at: str, asked_by: ToolCall | None = None) -> OutboxEntry | None:
        """Write an entry, which passes the interceptors. Return the entry as written, or None.

        `asked_by`: a call whose result is the answer to the entry, a question.
        """
        self._require_open()
        state = self._state
        entry = state.stage_entry(new, at)
        if "hands_on" in new.payload:
            state.note_handoff()
        if entry is not None and asked_by is not None:
            state.add_result(asked_by.tool, asked_by.args, ToolResult(True), asked_by.id, is_entry=True)
            state.await_answer(entry)
        return entry

    def remember(self, key: str, value: Any, at: str) -> None:
        """Write a memory, which passes the interceptors as any does."""
        self._state.stage_memory(key, value, at)

    def withdraw(self, entries: Collection[str] = (), memories: Mapping[str, FileEffect | None] = NOTHING) -> None:
        """Take back entries and memories of replies, as in `Withdraw`."""
        self._require_open()
        self._state.chain.dispatch(Withdraw(entries=entries, memories=memories, by=self.name))

    def _require_open(self) -> None:
        """Raise `TypeError` while an `EndTurn` holds the turn's entries: an entry written beside them would be lost."""
        if self._state.chain.is_ending:
            raise TypeError(f"entries are written and taken back {AFTER_END}")

    def tag_entries(self, entries: Collection[str], tag: str) -> None:
        """Add a tag to entries of the turn, by their identities: they are taken back, and pass the interceptors again."""
        self._require_open()
        chosen = [entry for entry in self._state.entries if entry.identity in entries]
        self._state.chain.dispatch(Withdraw(entries=entries))
        for entry in chosen:
            self._state.write_again(replace(entry, tags=[*dict.fromkeys([*entry.tags, tag])]))

    def leave_result(self, tool: str, text: str) -> None:
        """Leave a text for the next turn for the same request, as the result of a call that failed."""
        self._state.results.leave(tool, ToolResult(False, text))

    def insert_message(self, message: Message) -> None:
        """Insert a message before the last one of the turn's prompt."""
        prompt = self._state.inputs.prompt
        self._state.set_prompt([*prompt[:-1], message, prompt[-1]])

    def mark_results_shown(self, count: int | None = None) -> int:
        """Count results as shown to the model, all or the first `count`. Return the number that counted before."""
        return self._state.results.mark_shown(count)

    def report_answer_violation(self, reason: str) -> None:
        """Note why the answer in the last reply is not what was asked for; an empty string if it is."""
        self._state.answer_violation = reason

    def call_tool(self, tool: str, args: Json, at: str) -> ToolResult:
        """Make a call for the capability itself. The model is told of a failure only."""
        state, call = self._state, ToolCall(tool, args)
        index, has_more_to_show = len(state.results.items), bool(state.results.actionable)
        state.call_tool(call, at)
        result = state.source.call_tool(state.results.numbers.last, call, at, {})
        if state.results.items[index]["success"] and not has_more_to_show:
            state.results.mark_shown()  # nothing to tell: it is no reason to ask the model once more
        return result

    def allow_silence(self) -> None:
        """Let the turn end without a reply, and leave its request open."""
        self._state.may_skip_response = True

    # --- questions, answered from the journal first -----------------------------------------------------

    def run_check(self, name: str, run: CheckRun, *, needs_files: bool = False) -> CheckFinding | None:
        """Return the finding of a check, recorded or live. Raises `CheckFunctionError`.

        `needs_files`: the turn's files are on the disk while it runs. A run that a kill cut off is made again.
        """
        state = self._state
        staged, at = state.stage_labels() if needs_files else None, state.answers[-1].at if state.answers else ""
        finding = state.source.run_check(name, run, at, staged)
        if staged is not None:
            state.mark_written_ahead(staged)
        return finding

    def ask(
        self, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None, *, by: str = ""
    ) -> Answer:
        """Ask a model for the capability itself; the answer is no reply, and its cost is counted for `by`.

        `model`: a key of `config/models.json`, empty for the agent's own. Raises `OutOfCredits` or `ProviderError`.
        """
        return self._state.ask(messages, model, schema, by=by or self.name)

    def list_answers(self, by: str) -> Sequence[Answer]:
        """Return the answers that a capability asked for in this turn."""
        return [answer for answer in self._state.answers if answer.asked_by == by]
