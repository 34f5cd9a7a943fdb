"""The clock, as the brain of an agent: it asks for the jobs of the calendar that are due."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.providers import Backend, Reply, Request

TAG = "calendar"


class ClockProvider(Backend):
    """Answers with a request for each job that the turn's values say is due."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return the requests as entries of the contract. Raises `RequestRejected` for a prompt in prose."""
        try:
            values = parse(request.messages[-1]["content"])
            entries = [_entry(payload) for payload in values.get("jobs", ())]
        except (JsonProblem, AttributeError) as error:
            hint = 'its line in config/models.json needs "prompt": "values"'
            raise RequestRejected("the clock takes values", where=request.agent, hint=hint) from error
        text = compact({"outbox_entries": entries, "tool_calls": [], "memory_updates": [], "notes": ""})
        return Reply(text.decode(), input_tokens=0, output_tokens=0)


def _entry(payload: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "request", "payload": payload, "tags": [TAG]}
