"""Strategies of your own: what a module needs that brings one. Format and examples: docs/strategies.md."""

from __future__ import annotations

from lemming.capabilities.strategies.registry import Beforehand, strategy
from lemming.kernel.base.contract import MemoryUpdate, NewEntry, ToolCall, TurnReply
from lemming.kernel.journal.report import End
from lemming.kernel.providers import Message
from lemming.kernel.turn.strategy import Called, Turn
from lemming.kernel.turn.values import Act, Answer, Ask, Step, Steps

__all__ = [
    "Act",
    "Answer",
    "Ask",
    "Beforehand",
    "Called",
    "End",
    "MemoryUpdate",
    "Message",
    "NewEntry",
    "Step",
    "Steps",
    "ToolCall",
    "Turn",
    "TurnReply",
    "strategy",
]
