"""Provider "clock": an agent without a model that sends requests for due calendar jobs."""

from __future__ import annotations

from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.providers import Backend, Reply, Request

TAG = "calendar"


class ClockProvider(Backend):
    """Answers with a request for each due job in the turn's values."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return the requests as entries of the contract. Raises `RequestRejected` for a prompt in prose."""
        try:
            values = parse(request.messages[-1]["content"])
            entries = [{"kind": "request", "payload": payload, "tags": [TAG]} for payload in values.get("jobs", ())]
        except (JsonProblem, AttributeError) as error:
            hint = 'set "prompt": "values" in its entry in config/models.json'
            raise RequestRejected('the clock requires "prompt": "values"', where=request.agent, hint=hint) from error
        text = dump_compact({"outbox_entries": entries, "tool_calls": [], "memory_updates": [], "notes": ""})
        return Reply(text.decode(), input_tokens=0, output_tokens=0)
