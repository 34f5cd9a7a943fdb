"""Verdicts of gates in a turn, as stored in journals and reports and shown by tools."""

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
    """A gate's objection: the gate's line, its action (`then`), its subject and the reason.

    `amounts`: the numbers behind the reason of a limit, as `spent`, `limit` and `call` (the upper bound of
    the call's cost), each in `unit`; None for every other gate.
    """

    line: str
    at: At
    then: Then
    about: str
    why: str = ""
    amounts: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the verdict for the journal, without `amounts` if there are none."""
        values = self._asdict()
        if self.amounts is None:
            del values["amounts"]
        return values
