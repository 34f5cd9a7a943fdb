"""`react`: ask, do what the reply says, and ask again with the results."""

from __future__ import annotations

from lemming.kernel.turn.strategy import Turn
from lemming.kernel.turn.values import Act, Steps


def react(turn: Turn) -> Steps:
    """Ask, do what the reply says, and ask again with the results, as often as the agent may in one turn."""
    messages = turn.prompt
    while True:
        reply = yield from turn.reply(messages)
        yield Act(reply)
        if not turn.has_more_to_do or turn.is_over:
            return "done"
        if turn.has_asked:
            return "waits"
