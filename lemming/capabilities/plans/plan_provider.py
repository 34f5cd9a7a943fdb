"""Provider for agents with a plan: `agents/<name>/plan.json` produces the replies, and no model is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.capabilities.plans.next_step import advance_run
from lemming.capabilities.plans.plan_format import AgentPlan
from lemming.capabilities.plans.plan_rules import load_valid_plan
from lemming.capabilities.plans.plan_run import PlanRun, parse_run, run_key
from lemming.capabilities.plans.step_outcomes import extract_answer
from lemming.ext import ConfigError
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.base.json_schema.schema_violations import describe_violations
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Backend, Message, Reply, Request

VALUES_LIMIT_BYTES = 64 << 20
NOTHING_TO_DO = {"notes": "nothing was asked"}

Json = dict[str, Any]


class PlanProvider(Backend):
    """Provider that advances a plan by the values of a turn."""

    keeps_deadline = True
    can_be_down = False

    def __init__(self, *, base: Path | None = None) -> None:
        self._base = base or Path()

    def complete(self, request: Request) -> Reply:
        """Return the plan's next reply. Raises: ConfigError for an invalid plan or run."""
        values = parse_turn_values(request.messages)
        reply = NOTHING_TO_DO
        if values["request"] is not None:
            plan = load_valid_plan(Organisation.from_path(self._base), request.agent)
            reply = _advance_run(plan, values)
        return Reply(text=dump_compact(reply).decode(), input_tokens=0, output_tokens=0, model="plan")


def _advance_run(plan: AgentPlan, values: Json) -> Json:
    request = values["request"]
    key = run_key(request["id"])
    stored_run = (values.get("memory") or {}).get(key)
    try:
        run = (
            PlanRun(request=request["id"], asker=request["from"], began=values["tick"])
            if stored_run is None
            else parse_run(stored_run)
        )
    except ValueError as error:
        location = f"agents/{values['agent']['name']}/memory/{key}.json"
        raise ConfigError(
            f"not a valid run of a plan: {error}",
            where=location,
            hint="correct the file, or remove it to restart the run",
        ) from error
    # a started run continues, even if the edited plan asks for other fields
    input_schema = plan.input if stored_run is None else None
    if input_schema is not None and (errors := describe_violations(input_schema, extract_answer(request["payload"]))):
        payload = {"status": "refused", "text": f"it is not what this plan asks for: {'; '.join(errors)}"}
        return {"outbox_entries": [{"kind": "response", "payload": payload, "tags": []}]}
    return advance_run(plan, run, values)


def parse_turn_values(messages: list[Message]) -> Json:
    """Return a turn's values, updated by its earlier steps. Raises: RequestRejected for messages without values."""
    try:
        values: Json = parse(messages[0]["content"], limit_bytes=VALUES_LIMIT_BYTES)
        memory = dict(values.get("memory") or {})
        for message in messages[1:]:
            content = parse(message["content"], limit_bytes=VALUES_LIMIT_BYTES)
            if message["role"] == "assistant":
                memory |= {update["key"]: update["value"] for update in content.get("memory_updates", ())}
            else:
                values["results"] = content["results"]
        return {**values, "request": values["request"], "memory": memory, "tick": values["tick"]}
    except (JsonProblem, LookupError, TypeError, AttributeError) as error:
        hint = 'set "prompt": "values" in its entry in config/models.json'
        raise RequestRejected('a plan requires "prompt": "values"', hint=hint) from error
