"""Verdicts of gates in a turn, as stored in journals and reports and shown by tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

At = Literal["in", "call", "result", "out", "spend"]
"""Stages of a gate. `in`: content shown to a turn. `call`: a tool call. `result`: its result, before
truncation. `out`: entries and memories. `spend`: a model call, before it is made."""

Then = Literal["pass", "warn", "rewrite", "block", "ask", "stop"]
"""Outcomes of a gate. `pass`, `block` and `stop` (the turn) are final. After `warn`, `rewrite` and `ask` the
next gate decides; a person is asked only about content that no later gate blocks."""

UNPASSED_REMARKS = ("unverified: ", "let through: ")
"""Opening of the remarks on an entry sent without having passed: with a tag, or without one."""


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
