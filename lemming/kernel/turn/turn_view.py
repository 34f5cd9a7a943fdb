"""A turn as a capability sees it: read-only, but for a few verbs that add to its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lemming.kernel.files.field_types import Json
from lemming.kernel.turn.turn_effects import Event

if TYPE_CHECKING:
    from lemming.kernel.agents import Agent
    from lemming.kernel.messages import OutboxEntry
    from lemming.kernel.providers import Message
    from lemming.kernel.turn.guards import CheckFinding, CheckFunctions
    from lemming.kernel.turn.live_phase import LivePhase
    from lemming.kernel.turn.turn_state import TurnState
    from lemming.kernel.turn.turn_values import Answer, Purpose, TurnInputs

T = TypeVar("T")


class TurnView:
    """A turn as one capability sees it.

    `snapshot`: what the capability's `prepare` returned, as recorded. Everything here follows from the journal: a
    turn that is resumed or replayed shows the same.
    """

    __slots__ = ("_folds", "_state", "name", "snapshot")

    def __init__(self, name: str, state: TurnState, snapshot: Json) -> None:
        self.name, self.snapshot, self._state = name, snapshot, state
        self._folds: dict[Any, tuple[int, Any]] = {}

    @property
    def inputs(self) -> TurnInputs:
        """The recorded inputs of the turn."""
        return self._state.inputs

    @property
    def agent(self) -> Agent:
        """The agent that takes the turn."""
        return self._state.inputs.agent

    @property
    def tick(self) -> int:
        """The number of the tick."""
        return self._state.inputs.tick

    @property
    def request(self) -> Purpose | None:
        """The request that the turn serves, or None."""
        return self._state.task

    @property
    def live(self) -> LivePhase:
        """The live phase, for `RunTool` and the other effects of `live_effects`. Raises `TypeError` elsewhere."""
        raise TypeError("only interceptors of live effects may look at files and at the tick")

    @property
    def state(self) -> Json:
        """The capability's own state in the agent's ledger as the turn began, or {}."""
        state: Json = self._state.inputs.state.kept.get(self.name, {})
        return state

    @property
    def trust_label(self) -> str:
        """Current trust label of the turn, or an empty string without tracking."""
        return self._state.trust_label

    @property
    def entries(self) -> Sequence[OutboxEntry]:
        """The entries that the turn has written up to now, in order."""
        return tuple(self._state.entries)

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """The results of the turn's calls up to now: tool, args, success, output."""
        return tuple(self._state.results)

    def fold(self, add: Callable[[T, Event], T], first: T) -> T:
        """Return the fold of a pure function over the events so far; only new events cost anything."""
        folded: tuple[int, T] = self._folds.get(add, (0, first))
        count, value = folded
        for event in self._state.events[count:]:
            value = add(value, event)
        self._folds[add] = len(self._state.events), value
        return value

    # --- records ------------------------------------------------------------------------------------

    def add_verdicts(self, verdicts: Iterable[Json]) -> None:
        """Add verdicts to the turn's report."""
        self._state.verdicts += verdicts

    def remark(self, text: str) -> None:
        """Add a remark, of at most 500 characters, to the turn's report."""
        self._state.remarks.append(text[:500])

    def report(self, key: str, value: Any) -> None:
        """Set a field of the turn's report."""
        self._state.report_fields[key] = value

    def get_report(self, key: str) -> Any:
        """Return a field of the turn's report, or None."""
        return self._state.report_fields.get(key)

    # --- questions, answered from the journal first -----------------------------------------------------

    def call_function(self, name: str, content: Json, functions: CheckFunctions) -> CheckFinding | None:
        """Return the finding of a check function. Raises `CheckFunctionError`."""
        number, self._state.check_count = self._state.check_count, self._state.check_count + 1
        return self._state.source.call_function(number, name, content, functions)

    def ask(
        self, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None, *, by: str = ""
    ) -> Answer:
        """Ask a model for the capability itself; the answer is no reply, and its cost is counted for `by`.

        `model`: a key of `config/models.json`, empty for the agent's own. Raises `OutOfCredits` or `ProviderError`.
        """
        return self._state.ask(messages, model, schema, by=by or self.name)

    def list_answers(self, by: str) -> Sequence[Answer]:
        """Return the answers that a capability asked for in this turn."""
        return tuple(self._state.auxiliary_answers.get(by, ()))
