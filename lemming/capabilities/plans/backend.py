"""An agent whose brain is a file: `agents/<name>/plan.json` answers, and no model is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.capabilities.plans.format import AgentPlan
from lemming.capabilities.plans.next_step import advance
from lemming.capabilities.plans.outcomes import plain_answer
from lemming.capabilities.plans.plan_problems import sound_plan
from lemming.capabilities.plans.proposals import followed, plan_of
from lemming.capabilities.plans.run import Run, run_in, run_key
from lemming.kernel.base.errors import ConfigError, RequestRejected
from lemming.kernel.base.json_schema.violations import misfits
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Backend, Message, Reply, Request

VALUES_LIMIT_BYTES = 64 << 20
NOTHING_TO_DO = {"notes": "nothing was asked"}

Json = dict[str, Any]


class PlanProvider(Backend):
    """Takes the values of a turn and says what the plan does next."""

    keeps_deadline = True
    can_be_down = False

    def __init__(self, *, base: Path | None = None) -> None:
        self._base = base or Path()

    def complete(self, request: Request) -> Reply:
        """Return what the plan does next. Raises `ConfigError` for a plan or a run that is not sound."""
        values = values_in(request.messages)
        reply = NOTHING_TO_DO
        if values["request"] is not None:
            plan = sound_plan(Organisation.at(self._base), request.agent)
            reply = _next(plan, values)
        return Reply(text=compact(reply).decode(), input_tokens=0, output_tokens=0, model="plan")


def _next(plan: AgentPlan, values: Json) -> Json:
    request = values["request"]
    key = run_key(request["id"])
    found = (values.get("memory") or {}).get(key)
    try:
        run = (
            Run(request=request["id"], asker=request["from"], began=values["tick"])
            if found is None
            else run_in(found)
        )
    except ValueError as error:
        where = f"agents/{values['agent']['name']}/memory/{key}.json"
        raise ConfigError(
            f"no run of a plan: {error}", where=where, hint="mend it, or remove it: it begins anew"
        ) from error
    # a run that has begun goes on, even if the plan asks for other fields by now
    begins_with = plan.input if found is None else None
    if begins_with is not None and (wrong := misfits(begins_with, plain_answer(request["payload"]))):
        return _refusal(f"it is not what this plan asks for: {'; '.join(wrong)}")
    proposed = plan_of(request["payload"], plan)
    if proposed is None:
        return advance(plan, run, values).as_json()
    try:
        sound = followed(proposed, plan)
    except ConfigError as error:
        return _refusal(f"the plan that came with it is not sound: {error}")
    return advance(sound, run, values).as_json()


def _refusal(why: str) -> Json:
    return {
        "outbox_entries": [{"kind": "response", "payload": {"status": "refused", "text": why}, "tags": []}]
    }


def values_in(messages: list[Message]) -> Json:
    """Return the values of a turn, in a later step of it with what the earlier ones came to.

    Raises `RequestRejected` for messages that hold none.
    """
    try:
        values: Json = parse(messages[0]["content"], limit_bytes=VALUES_LIMIT_BYTES)
        memory = dict(values.get("memory") or {})
        for message in messages[1:]:
            said = parse(message["content"], limit_bytes=VALUES_LIMIT_BYTES)
            if message["role"] == "assistant":
                memory |= {update["key"]: update["value"] for update in said.get("memory_updates", ())}
            else:
                values["results"] = said["results"]
        return {**values, "request": values["request"], "memory": memory, "tick": values["tick"]}
    except (JsonProblem, LookupError, TypeError, AttributeError) as error:
        hint = '"prompt": "values" in the line of the model key in config/models.json'
        raise RequestRejected("a plan takes the values of a turn", hint=hint) from error
