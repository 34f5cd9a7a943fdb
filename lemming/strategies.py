"""Public names for a module with a custom strategy. Format and examples: docs/plans.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.base.contract import MemoryUpdate, NewEntry, ToolCall, TurnReply
from lemming.kernel.journal.turn_report import End
from lemming.kernel.providers import Message
from lemming.kernel.turn.strategy import CallResult, Turn
from lemming.kernel.turn.turn_values import Act, Answer, Ask, Step, Steps
from lemming.libraries.strategy_registry import StrategyInputs, strategy

__all__ = [
    "Act",
    "Answer",
    "Ask",
    "CallResult",
    "End",
    "MemoryUpdate",
    "Message",
    "NewEntry",
    "Step",
    "Steps",
    "StrategyInputs",
    "ToolCall",
    "Turn",
    "TurnReply",
    "strategy",
]

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)
