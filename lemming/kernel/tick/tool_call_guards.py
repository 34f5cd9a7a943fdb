"""Run the tool-call guards of a turn in order; each guard checks the result of the previous guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lemming.kernel.base.contract import ToolCall
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.guards import (
    AllowedCall,
    ApprovalBroker,
    ApprovalOutcome,
    ApprovalRequest,
    ToolCallGuard,
    TurnTrust,
)


class ToolCallGuards(NamedTuple):
    """The tool-call guards of a turn, and the broker that decides pending calls."""

    guards: Sequence[ToolCallGuard]
    get_broker: Callable[[], ApprovalBroker]

    def before_call(
        self,
        call: ToolCall,
        tool: Tool,
        context: ToolContext,
        turn_trust: TurnTrust,
        make_call: Callable[[ToolCall], ToolResult],
    ) -> AllowedCall | ToolResult:
        """Return the call as allowed, or the result that replaces a blocked call.

        `make_call` makes the call. The broker uses `make_call` to preview the changes of a call that only
        plans for the engine.
        """

        def request_approval(call: ToolCall, approval_request: ApprovalRequest) -> ApprovalOutcome:
            return self.get_broker().request_approval(call, approval_request, context, lambda: make_call(call))

        allowed = AllowedCall(call)
        for guard in self.guards:
            verdict = guard.before_call(allowed.call, tool, context, turn_trust, request_approval)
            if isinstance(verdict, ToolResult):
                return replace(verdict, verdicts=(*allowed.verdicts, *verdict.verdicts))
            verdicts = (*allowed.verdicts, *verdict.verdicts)
            allowed = AllowedCall(verdict.call, verdicts, {**allowed.states, **verdict.states})
        return allowed

    def after_call(
        self, call: ToolCall, tool: Tool, base: Path, turn_trust: TurnTrust, result: ToolResult
    ) -> ToolResult:
        """Return the full result of a call in the form allowed to be shown."""
        for guard in self.guards:
            result = guard.after_call(call, tool, base, turn_trust, result)
        return result
