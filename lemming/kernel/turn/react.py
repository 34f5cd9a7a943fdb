"""`react`: ask, carry out the reply, ask again with the results."""

from __future__ import annotations

from lemming.kernel.turn.strategy import Turn
from lemming.kernel.turn.turn_values import Act, Steps


def react(turn: Turn) -> Steps:
    """Ask, carry out the reply, and ask again with the results, up to the turn's limit."""
    messages = turn.prompt
    while True:
        reply = yield from turn.ask_reply(messages)
        yield Act(reply)
        if not turn.has_more_to_do or turn.is_finished:
            return "done"
        if turn.has_asked:
            return "waits"
