"""Requests that a turn for an inbox is shown among its entries, and that no turn would answer. Pure."""

from __future__ import annotations

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import LemmingError, name_of
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.hooks import next_entry_id
from lemming.kernel.turn.loop_breaker import requests_in
from lemming.kernel.turn.seams import Moment, Showing


def fail_shown_requests(draft: Draft, error: LemmingError) -> None:
    """Have a turn that was refused for good answer them: every further turn would be refused, too.

    Nothing else of what it wrote leaves: nobody is to find half of an answer.
    """
    draft.entries, draft.staged, draft.memory = [], {}, {}
    answers: list[OutboxEntry] = []
    for identity, asker in {**draft.inputs.open_requests, **draft.inputs.said_requests}.items():
        payload = {
            "reply_to": identity.rpartition("_")[2],
            "target": asker,
            "status": "failed",
            "text": f"{name_of(error)}: {error}",
        }
        entry_id = next_entry_id(draft.inputs, len(answers), [entry.id for entry in answers])
        answers.append(draft.as_entry(NewEntry("response", payload, []), entry_id, error.at))
    draft.last_words = answers


def has_answer(shown: Showing, moment: Moment) -> bool:
    """Return True if an agent that asks in vain is shown something new that may be an answer.

    A model that was not asked in a turn of its own answers by any kind of entry, and may name nobody.
    """
    if not (moment.state.loops and requests_in(moment.state.loops)):
        return False
    name = moment.agent.name
    said = [it.payload for it in shown.task.asked] if shown.task else []
    heard = (it for it in shown.inbox.unread if it.kind not in ("request", "status"))
    said += [it.payload for it in heard if not it.targets or name in it.targets]
    return any(payload is not None and payload.get("status") != "failed" for payload in said)
