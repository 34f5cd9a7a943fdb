"""Answer requests shown to a turn for the inbox, if no turn can answer them. Pure."""

from __future__ import annotations

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import LemmingError, error_name
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.following_entries import next_entry_id
from lemming.kernel.turn.loop_breaker import select_request_counts
from lemming.kernel.turn.preparation_effects import SelectContext
from lemming.kernel.turn.turn_context import TurnContext
from lemming.kernel.turn.turn_state import TurnState


def fail_shown_requests(turn_state: TurnState, error: LemmingError) -> None:
    """Answer the shown requests with a failure, because a permanent rejection would repeat in each turn.

    The turn's other output is discarded: no reader must find half of an answer.
    """
    turn_state.entries, turn_state.staged, turn_state.memory = [], {}, {}
    answers: list[OutboxEntry] = []
    for identity, asker in {**turn_state.inputs.open_requests, **turn_state.inputs.said_requests}.items():
        payload = {
            "reply_to": identity.rpartition("_")[2],
            "target": asker,
            "status": "failed",
            "text": f"{error_name(error)}: {error}",
        }
        entry_id = next_entry_id(turn_state.inputs, len(answers), [entry.id for entry in answers])
        answers.append(turn_state.to_entry(NewEntry("response", payload, []), entry_id, error.at))
    turn_state.failure_entries = answers


def has_answer(selected: SelectContext, context: TurnContext) -> bool:
    """Return True if a repeatedly asking agent is shown a new entry that may be an answer.

    A model without a turn for the request answers with any kind of entry, and may omit the target.
    """
    if not (context.state.loops and select_request_counts(context.state.loops)):
        return False
    name = context.agent.name
    payloads = [item.answer_payload for item in selected.task.outcomes] if selected.task else []
    relevant_entries = (item for item in selected.inbox.unread if item.kind not in ("request", "status"))
    payloads += [item.payload for item in relevant_entries if not item.targets or name in item.targets]
    return any(payload is not None and payload.get("status") != "failed" for payload in payloads)
