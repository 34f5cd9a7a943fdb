"""Pending questions of agents, and stopped agents: the same data for `status`, `doctor` and the page.

An agent is not stopped while a gate waits for a person's approval: the agent only needs the decision.
"""

from __future__ import annotations

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.open_requests import SubRequest, iter_person_requests
from lemming.kernel.org.organisation import OrgPath
from lemming.operations.unfinished_turns import UnfinishedTurn, load_unfinished_turns


def list_pending_questions(state: AgentState) -> list[SubRequest]:
    """Return the unanswered questions of an agent, including approvals."""
    questions = [sub_request for open_request in state.requests for sub_request in open_request.open_sub_requests]
    return questions + [sub_request for sub_request in iter_person_requests(state.kept) if not sub_request.end]


def describe_pending(state: AgentState) -> str:
    """Return a description of the answer or approval an agent waits for, or an empty string."""
    questions = list_pending_questions(state)
    if tools := sorted({str(call.get("tool")) for sub_request in questions for call in sub_request.held.values()}):
        return f"waits for approval: {', '.join(tools)}"
    return f"waits for {', '.join(sorted({sub_request.to for sub_request in questions}))}" if questions else ""


def find_stopped_agents(org: OrgPath) -> dict[str, UnfinishedTurn]:
    """Return the latest due turn of each agent that failed or could not take the turn, by name."""
    return {name: turn for name, turn in load_unfinished_turns(org).items() if not _waits_for_approval(org, turn)}


def _waits_for_approval(org: OrgPath, turn: UnfinishedTurn) -> bool:
    """Return True if a limit stopped the turn and an approval is pending."""
    if turn.status != "skipped" or turn.error != "LimitReached":
        return False
    try:
        return any(sub_request.held for sub_request in list_pending_questions(read_state(org, turn.agent)))
    except CorruptState:
        return False
