"""How far what a tool call gives is trusted: by the tool, and by the files that its calls look at."""

from __future__ import annotations

from dataclasses import replace

from lemming.contract import ToolCall
from lemming.tick.snapshot import Snapshot
from lemming.tools import ToolResult
from lemming.trust.authors import Authors
from lemming.turn.values import TurnInputs


def with_trust(snapshot: Snapshot, inputs: TurnInputs, call: ToolCall, result: ToolResult) -> ToolResult:
    """Return a result that says how far it is trusted, where that is less than what agents write."""
    authors = Authors(snapshot.config, snapshot.survey.agents)
    word = authors.of_tool(call.tool)
    return replace(result, trust={"is": word}) if word and authors.order.is_low(word) else result
