"""Common part of the frameworks' scripts: read turn names from standard input, write the outcomes.

Standard library only: the scripts run in separate environments without LeMMing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal

from benchmarks.models.shop import FUNCTIONS
from benchmarks.models.turn import Outcome, Turn, is_valid
from benchmarks.models.turns import TURNS

MAX_STEPS, MAX_TOKENS = 8, 200
TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
Play = Callable[[Turn, Outcome], None]
"""Plays a turn: notes on the outcome what the agent does; an exception is why it failed."""


def main(prepare: Callable[[str, str], Play]) -> None:
    """Play the turns named on standard input, a name per line.

    `prepare` receives the server and the model.
    """
    play = prepare(*sys.argv[1:3])
    turns = {turn.name: turn for turn in TURNS}
    for line in sys.stdin:
        outcome = Outcome()
        try:
            play(turns[line.strip()], outcome)
        except Exception as error:  # noqa: BLE001 - whatever a framework raises, the turn has failed
            outcome.is_valid, outcome.problem = False, f"{type(error).__name__}: {error}"[:500]
        print(json.dumps(outcome.to_json()), flush=True)


def list_functions(turn: Turn, outcome: Outcome) -> list[Callable[..., Any]]:
    """Return the tools of a turn as functions with recorded calls. Sending and remembering are tools, too."""
    functions = [_record_calls(function, outcome) for function in FUNCTIONS if function.__name__ in turn.tools]
    if turn.readers:
        functions.append(_make_send(turn, outcome))
    return [*functions, _make_remember(outcome)] if turn.may_remember else functions


def make_form(turn: Turn) -> Any:
    """Return the form of a turn as a pydantic model, or None for a turn without a form."""
    from pydantic import create_model

    types: dict[str, Any] = {name: (_to_type(schema), ...) for name, schema in turn.fields.items()}
    return create_model("Answer", **types) if types else None


def record_answer(turn: Turn, outcome: Outcome, answer: Any) -> None:
    """Record the final text of an agent as the answer, if the turn has a request."""
    last = Outcome(answer={"text": answer} if isinstance(answer, str) else dict(answer))
    outcome.is_valid = is_valid(last)
    if turn.request:
        outcome.answer = last.answer


def _to_type(schema: Mapping[str, Any]) -> Any:
    return Literal[tuple(schema["enum"])] if "enum" in schema else TYPES[schema["type"]]


def _record_calls(function: Callable[..., str], outcome: Outcome) -> Callable[..., str]:
    @wraps(function)
    def call(**args: Any) -> str:
        outcome.calls.append([function.__name__, args])
        return function(**args)

    return call


def _make_send(turn: Turn, outcome: Outcome) -> Callable[..., str]:
    def send(to: str, text: str) -> str:
        """Send a message."""
        outcome.sent.append([to, text])
        return "sent"

    send.__annotations__ = {"to": Literal[tuple(turn.readers)], "text": str, "return": str}
    return send


def _make_remember(outcome: Outcome) -> Callable[..., str]:
    def remember(fact: str) -> str:
        """Remember a new fact."""
        outcome.memories.append(fact)
        return "remembered"

    remember.__annotations__ = {"fact": str, "return": str}
    return remember
