"""Turns that fail at the very end: their files, or the state they leave, cannot be written.

A ledger's line that no reader takes would stop its agent for good. So a state is read back before anything
of its turn is written, and what could not be read again stays as it was before the turn.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from lemming.kernel.base.errors import TurnBroke
from lemming.kernel.journal.ledger import AgentState, read_state, require_readable
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.values import TurnOutcome


def to_write_failure(outcome: TurnOutcome, why: str) -> TurnOutcome:
    """Return the outcome of a turn that failed at the very end; some of its files may be there."""
    reason = f"its files could not all be written: {why}"
    return _failed(outcome, outcome.state_if_unwritten(), reason, "DiskError")


def with_readable_state(
    org: Organisation, outcome: TurnOutcome, earlier: AgentState | None = None
) -> TurnOutcome:
    """Return the outcome, as a failed turn without files where its state could not be read again.

    `earlier`: the state that the agent's turn before it in the same tick left.
    """
    try:
        require_readable(outcome.state)
    except ValueError as error:
        before = earlier or read_state(org, outcome.report.agent, before=outcome.state.tick)
        reason = f"what it leaves for its next turn could not be read again: {error}"
        state = _readable(outcome.state_if_unwritten(), before)
        return _failed(outcome, state, reason, TurnBroke.__name__, files=[], removed=[], memory=[])
    return outcome


def _failed(
    outcome: TurnOutcome, state: AgentState, reason: str, error: str, **told: list[Any]
) -> TurnOutcome:
    failed = {"status": "failed", "reason": reason, "error": error, "entries": [], **told}
    return TurnOutcome(TurnReport(**{**vars(outcome.report), **failed}), state, lambda: state)


def _readable(state: AgentState, before: AgentState) -> AgentState:
    """Return a state with the values of the one before where its own could not be read again."""
    readable = before.copy()
    for each in fields(AgentState):
        tried = replace(readable, **{each.name: getattr(state, each.name)})
        try:
            require_readable(tried)
        except ValueError:
            continue
        readable = tried
    return readable
