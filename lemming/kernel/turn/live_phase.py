"""The live phase of a turn: its effects, and the current tick, files and records.

    RunTool (may the call run?)  ->  StartTool (it starts)  ->  the tool, CheckResult  ->  recorded result
    SendRequest (may the model be asked?)  ->  the model  ->  recorded answer

Outcomes are part of the recorded result and are not computed again, so an interceptor of these effects may read current
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.object_cache import ObjectCache
from lemming.kernel.turn.turn_effects import Effect, LiveEffect

if TYPE_CHECKING:
    from pathlib import Path

    from lemming.kernel.journal.journal_file import Journal
    from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, ToolFinished
    from lemming.kernel.journal.turn_report import GateVerdict
    from lemming.kernel.journal.write_offs import WriteOff
    from lemming.kernel.obligations.current_request import CurrentRequest
    from lemming.kernel.org.model_entries import ModelEntry
    from lemming.kernel.org.organisation import OrgPath
    from lemming.kernel.providers import Request
    from lemming.kernel.tick_context import TickContext
    from lemming.kernel.tools import Tool, ToolResult
    from lemming.kernel.tools.tool_context import ToolContext
    from lemming.kernel.turn.turn_values import TurnInputs


@dataclass(frozen=True, kw_only=True)
class RunTool(LiveEffect):
    """A call about to run. The outcome's answer is the `ToolResult`.

    An interceptor that answers without yielding the effect prevents the run: with `Rejected`, `Deferred`, or `Allowed`
    and a result of its own. Neighbouring calls of tools that may run in parallel are all decided first, in order.
    """

    call: ToolCall
    tool: Tool
    context: ToolContext

    def with_args(self, args: Any) -> RunTool:
        """Return the effect with other arguments."""
        return self if args is self.call.args else replace(self, call=self.call._replace(args=args))


@dataclass(frozen=True, kw_only=True)
class StartTool(LiveEffect):
    """A call that starts now, decided and as it is made. The outcome's answer is the `ToolResult`.

    `tool` is None for a call of a tool that the agent does not have, which fails.
    """

    call: ToolCall
    tool: Tool | None
    context: ToolContext


@dataclass(frozen=True, kw_only=True)
class CheckResult(LiveEffect):
    """The whole result of a call, before it is cut to its limit and stored. Arrives on the tool's thread."""

    call: ToolCall
    tool: Tool
    context: ToolContext
    result: ToolResult


@dataclass(frozen=True, kw_only=True)
class SendRequest(LiveEffect):
    """A request about to be sent to a model. The outcome's answer is the `Reply`.

    `key`: the model's key in `config/models.json`. `number`: the call's number in the tick, from 0 in the first turn. A
    call that may have been billed and is made again is an effect of its own, for which a changed `request` is ignored.
    """

    key: str
    entry: ModelEntry
    request: Request
    number: int


LIVE_EFFECTS: Sequence[type[Effect]] = (RunTool, StartTool, CheckResult, SendRequest)


@dataclass
class TickScope(ObjectCache):
    """A tick in progress, for limits of all its turns: its journal, and the agents with a turn in order.

    `wait_for_earlier`: waits until earlier turns of other agents are over, for calls of tools with `runs_in_order`;
    returns False if the engine is to end. None where turns do not wait for each other in calls.
    """

    tick_context: TickContext
    journal: Journal
    order: Sequence[str]
    wait_for_earlier: Callable[[str], bool] | None = None
    _caches: dict[Any, Any] = field(default_factory=dict)


@accept_old_names
@dataclass
class LivePhase(ObjectCache):
    """The live phase of one turn.

    `tick`: the tick; None if the request is only shown and nothing is sent. `results`: recorded results of the
    turn's calls by number. `answers`: recorded answers of models. `get_unwritten_files` returns files of earlier turns that
    are not on disk yet, by path. `plan_call` makes a call that only plans changes of files. `count_spending` makes the
    engine reserve the highest cost of each request before it is sent, and returns what is reserved and not settled now.
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
    _caches: dict[Any, Any] = field(default_factory=dict)

    @property
    def current_request(self) -> CurrentRequest | None:
        """The request that the turn serves, or None."""
        return self.inputs.current_request

    @property
    def tick_context(self) -> TickContext:
        """The tick's view of the organisation."""
        assert self.tick, "only a turn that runs has a tick"
        return self.tick.tick_context

    def add_verdicts(self, verdicts: Iterable[GateVerdict]) -> None:
        """Add verdicts to the record of the call. "ask" counts only until persons have approved the call."""
        self.verdicts += verdicts
