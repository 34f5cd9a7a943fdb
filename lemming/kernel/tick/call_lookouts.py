"""The walk through those who look at the calls of one turn: each looks at what the one before leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lemming.kernel.base.contract import ToolCall
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.places import Asking, CallLookout, Held, Holder, Passed, Trusted


class CallLookouts(NamedTuple):
    """Those who look at the calls of one turn; `holder` gives who says what becomes of one that waits."""

    all: Sequence[CallLookout]
    holder: Callable[[], Holder]

    def before(
        self,
        call: ToolCall,
        tool: Tool,
        context: ToolContext,
        trusted: Trusted,
        make: Callable[[ToolCall], ToolResult],
    ) -> Passed | ToolResult:
        """Return a call as it may be made, or the result that it has because it may not.

        `make` makes one, which tells beforehand what a call would change that only tells the engine so.
        """

        def hold(call: ToolCall, asking: Asking) -> Held:
            return self.holder().hold(call, asking, context, lambda: make(call))

        passed = Passed(call)
        for lookout in self.all:
            found = lookout.before(passed.call, tool, context, trusted, hold)
            if isinstance(found, ToolResult):
                return replace(found, verdicts=(*passed.verdicts, *found.verdicts))
            verdicts = (*passed.verdicts, *found.verdicts)
            passed = Passed(found.call, verdicts, {**passed.kept, **found.kept})
        return passed

    def after(
        self, call: ToolCall, tool: Tool, base: Path, trusted: Trusted, result: ToolResult
    ) -> ToolResult:
        """Return the whole of what a call gave as it may be shown."""
        for lookout in self.all:
            result = lookout.after(call, tool, base, trusted, result)
        return result
