"""What an agent waits for, and which agents are stopped: the same facts for `status`, `doctor` and the page.

An agent whose turn a gate holds up until a person decides is not stopped: the decision is what it needs.
"""

from __future__ import annotations

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.begun import Asked
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.mail.capability_notes import asked_beside
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.turns_not_done import NotDone, read_turns_not_done


def pending_questions(state: AgentState) -> list[Asked]:
    """Return the questions of an agent that have no answer yet, approvals included."""
    questions = [asked for begun in state.requests for asked in begun.open]
    return questions + [asked for asked in asked_beside(state) if not asked.end]


def pending_text(state: AgentState) -> str:
    """Return the answer or approval that an agent waits for, in words; empty when it waits for nothing."""
    questions = pending_questions(state)
    if tools := sorted({str(held.get("tool")) for asked in questions for held in asked.held.values()}):
        return f"waits for approval: {', '.join(tools)}"
    return f"waits for {', '.join(sorted({asked.to for asked in questions}))}" if questions else ""


def find_stopped_agents(org: OrgPath) -> dict[str, NotDone]:
    """Return the agents whose latest due turn failed or could not be taken, by name."""
    return {
        name: turn for name, turn in read_turns_not_done(org).items() if not _waits_for_approval(org, turn)
    }


def _waits_for_approval(org: OrgPath, turn: NotDone) -> bool:
    """Return True for a turn that a limit stopped and for which an approval is pending."""
    if turn.status != "skipped" or turn.error != "LimitReached":
        return False
    try:
        return any(asked.held for asked in pending_questions(read_state(org, turn.agent)))
    except CorruptState:
        return False
