"""Turns that fail at the very end because their files or final state cannot be written.

An unreadable ledger line would block its agent for good. A state is therefore read back before any file of
the turn is written, and unreadable values keep their content from before the turn.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from lemming.kernel.base.errors import TurnBroke
from lemming.kernel.journal.ledger import AgentState, read_state, require_readable
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.turn_values import TurnOutcome


def to_write_failure(outcome: TurnOutcome, cause: str) -> TurnOutcome:
    """Return the outcome as a turn that failed while writing; some of its files may exist."""
    reason = f"not all files of the turn could be written: {cause}"
    return _to_failed_outcome(outcome, outcome.state_if_unwritten(), reason, "DiskError")


def require_readable_state(org: Organisation, outcome: TurnOutcome, earlier: AgentState | None = None) -> TurnOutcome:
    """Return the outcome, or a failed turn without files if its state could not be read back.

    `earlier`: the state left by the agent's previous turn in the same tick.
    """
    try:
        require_readable(outcome.state)
    except ValueError as error:
        previous_state = earlier or read_state(org, outcome.report.agent, before_tick=outcome.state.tick)
        reason = f"the turn's state for the next turn could not be read back: {error}"
        state = _keep_readable(outcome.state_if_unwritten(), previous_state)
        return _to_failed_outcome(outcome, state, reason, TurnBroke.__name__, files=[], removed=[], memory=[])
    return outcome


def _to_failed_outcome(
    outcome: TurnOutcome, state: AgentState, reason: str, error: str, **cleared_fields: list[Any]
) -> TurnOutcome:
    failed = {"status": "failed", "reason": reason, "error": error, "entries": [], **cleared_fields}
    return TurnOutcome(TurnReport(**{**vars(outcome.report), **failed}), state, lambda: state)


def _keep_readable(state: AgentState, previous_state: AgentState) -> AgentState:
    """Return the state with unreadable values replaced by those of the previous state."""
    readable = previous_state.copy()
    for state_field in fields(AgentState):
        candidate = replace(readable, **{state_field.name: getattr(state, state_field.name)})
        try:
            require_readable(candidate)
        except ValueError:
            continue
        readable = candidate
    return readable
