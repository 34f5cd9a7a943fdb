"""Effects of the live phase: what happens while the journal holds no result yet.

    RunTool (may the call run?)  ->  StartTool (it starts)  ->  the tool, CheckResult  ->  recorded result
    SendRequest (may the model be asked?)  ->  the model  ->  recorded answer

Outcomes are part of the recorded result and are not computed again, so an interceptor of these effects may read files
as they are now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lemming.kernel.base.contract import ToolCall
from lemming.kernel.turn.turn_effects import Effect, LiveEffect

if TYPE_CHECKING:
    from typing import Any

    from lemming.kernel.org.model_entries import ModelEntry
    from lemming.kernel.providers import Request
    from lemming.kernel.tools import Tool, ToolResult
    from lemming.kernel.tools.tool_context import ToolContext


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
