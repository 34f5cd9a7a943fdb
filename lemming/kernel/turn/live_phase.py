"""The live phase of a turn: the tick, the files as they are, and the records up to now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from lemming.kernel.journal.journal_file import Journal
    from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, ToolFinished
    from lemming.kernel.journal.verdicts import GateVerdict
    from lemming.kernel.journal.write_offs import WriteOff
    from lemming.kernel.org.organisation import OrgPath
    from lemming.kernel.tools import ToolResult
    from lemming.kernel.turn.live_effects import RunTool
    from lemming.kernel.turn.prompt_prefix import TickContext
    from lemming.kernel.turn.turn_values import Purpose, TurnInputs

T = TypeVar("T")


class EarlierTurns(Protocol):
    """The turns that a call of a tool with `runs_in_order` must follow."""

    def wait_for_earlier(self, name: str) -> bool:
        """Wait until these turns of other agents are over. Return False if the engine is to end."""
        ...


@dataclass
class TickScope:
    """A tick in progress, for limits of all its turns: its journal, and the agents with a turn in order.

    `progress`: the turns that are over, where turns of the tick wait for each other only in certain calls.
    """

    tick_context: TickContext
    journal: Journal
    order: Sequence[str]
    progress: EarlierTurns | None = None
    _caches: dict[object, Any] = field(default_factory=dict)

    def get_cache(self, kind: Callable[[TickScope], T]) -> T:
        """Return an object of the tick, created once."""
        if kind not in self._caches:
            self._caches[kind] = kind(self)  # turns ask for it under the turn lock
        cached: T = self._caches[kind]
        return cached


@dataclass
class LivePhase:
    """The live phase of one turn.

    `tick`: the tick; None if the request is only shown and nothing is sent. `results`: recorded results of the
    turn's calls by number. `answers`: recorded answers of models. `unwritten_files`: files of earlier turns that are not
    on disk yet, by path. `plan_call` makes a call that only plans changes of files. `count_spending` makes the engine
    reserve the highest cost of each request before it is sent, and returns what is reserved and not settled now.
    `verdicts` and `grants` (approvals, by capability) are those of the current call.
    """

    inputs: TurnInputs
    base: Path | OrgPath
    tick: TickScope | None = None
    results: Mapping[int, ToolFinished] = field(default_factory=dict)
    answers: Mapping[int, ModelReplied | ModelFailed] = field(default_factory=dict)
    get_unwritten_files: Callable[[], Mapping[str, bytes]] = dict
    plan_call: Callable[[RunTool], ToolResult] | None = None
    count_spending: Callable[[], Callable[[], WriteOff]] | None = None
    verdicts: list[GateVerdict] = field(default_factory=list)
    grants: dict[str, Any] = field(default_factory=dict)
    _caches: dict[object, Any] = field(default_factory=dict)

    @property
    def task(self) -> Purpose | None:
        """The request that the turn serves, or None."""
        return self.inputs.task

    @property
    def tick_context(self) -> TickContext:
        """The tick's view of the organisation."""
        assert self.tick, "nothing is sent"
        return self.tick.tick_context

    def get_cache(self, kind: Callable[[LivePhase], T]) -> T:
        """Return an object of the turn's live phase, created once."""
        if kind not in self._caches:
            self._caches[kind] = kind(self)
        cached: T = self._caches[kind]
        return cached

    def add_verdicts(self, verdicts: Iterable[GateVerdict]) -> None:
        """Add verdicts to the record of the call. "ask" counts only until persons have approved the call."""
        self.verdicts += verdicts
