"""What is said at the places of a turn where something passes, as journals, reports and tools have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

At = Literal["in", "call", "result", "out", "spend"]
"""The places. `in`: what a turn is shown. `call`: a tool call. `result`: what it gave, before it is cut.
`out`: entries and memories. `spend`: a question to a model, before it is asked."""

Then = Literal["pass", "warn", "rewrite", "block", "ask", "stop"]
"""What becomes of it. `pass`, `block`, `stop` (the turn) settle it. `warn`, `rewrite` and `ask` let the next
one look: a person is asked only about what none of those behind blocks."""


class GateVerdict(NamedTuple):
    """What a gate said that was not to pass: its line, what it did, and about what, and why.

    `amounts`: the numbers behind the reason of a limit, as `spent`, `limit` and `call` (the most that the
    call can cost), each in `unit`; None for every other gate.
    """

    line: str
    at: At
    then: Then
    about: str
    why: str = ""
    amounts: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a journal holds it, without `amounts` where there are none."""
        values = self._asdict()
        if self.amounts is None:
            del values["amounts"]
        return values
