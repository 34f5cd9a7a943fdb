"""What is said at the places of a turn where something passes, as journals, reports and tools have it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

At = Literal["in", "call", "result", "out", "spend"]
"""The places. `in`: what a turn is shown. `call`: a tool call. `result`: what it gave, before it is cut.
`out`: entries and memories. `spend`: a question to a model, before it is asked."""

Then = Literal["pass", "warn", "rewrite", "block", "ask", "stop"]
"""What becomes of it. `pass`, `block`, `stop` (the turn) settle it. `warn`, `rewrite` and `ask` let the next
one look: a person is asked only about what none of those behind blocks."""


class GateVerdict(NamedTuple):
    """What a gate said that was not to pass: its line, what it did, and about what, and why."""

    line: str
    at: At
    then: Then
    about: str
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as a journal holds it."""
        return self._asdict()
