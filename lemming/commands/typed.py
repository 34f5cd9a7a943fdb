"""What a person has typed: a JSON object, a text, or "-" for what comes on standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from lemming.base.errors import UsageError
from lemming.base.jsontext import JsonProblem, parse


def object_typed(text: str, what: str, such_as: str) -> dict[str, Any]:
    """Return the JSON object that a text is; raise `UsageError` that names `what` it was given for."""
    try:
        value = parse(text)
    except JsonProblem as error:
        raise UsageError(f"{what} is not JSON: {error.message}", hint=f"such as '{such_as}'") from error
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be a JSON object", hint=f"such as '{such_as}'")
    return value


def text_typed(words: Iterable[str] | None) -> str:
    """Return words as one text; of "-" alone what standard input has."""
    text = " ".join(words or ())
    return sys.stdin.read().rstrip("\n") if text == "-" else text
