"""Outcomes of a step: the answer in a response or a tool result, and its verification. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.capabilities.output_schemas.payload_validation import (
    RepairedAnswer,
    extract_json_object,
    normalize_word,
    parse_boolean,
    repair_answer,
)
from lemming.capabilities.plans.plan_format import ChoiceSettings, StepAction, StepDefinition, VerifySettings
from lemming.capabilities.plans.value_paths import value_to_text
from lemming.ext import VERDICT_SCHEMA
from lemming.kernel.inboxes.answer_payload import ENGINE_KEYS, ENVELOPE, REQUEST_KEYS, needs_answer_key
from lemming.libraries.conditions import predicates
from lemming.obligations.answer_fields import parse_answer

Json = dict[str, Any]

VERDICT: Json = {**VERDICT_SCHEMA, "required": ["passes"], "additionalProperties": True}
"""Schema of a verifier's answer: a verdict beside a text; a pass needs no reason."""


def request_outcome(action: StepAction, sub_request: Mapping[str, Any], agent_name: str) -> RepairedAnswer:
    """Return the outcome of a finished request, from the values of a turn."""
    end, payload = sub_request.get("end"), sub_request.get("answer")
    answer_payload = payload if isinstance(payload, dict) else {}
    if end in ("answered", "expired") and isinstance(payload, dict):
        return repair_answer(extract_answer(answer_payload, build_answer_schema(action)), build_answer_schema(action))
    details = str(answer_payload.get("text") or "").strip()
    reason = {"expired": "nobody answered in time", "cancelled": "it was cancelled"}.get(str(end), str(end))
    if payload is None and end in ("failed", "refused"):
        details = "what it said is not to be seen from here; `lemming validate` says which line is missing"
    return RepairedAnswer(None, f"{agent_name}: {reason}{f': {details}' if details else ''}")


def approval_outcome(action: StepAction, result: Mapping[str, Any]) -> RepairedAnswer:
    """Return the outcome of an unwritten request: a person's rejection, or a substitute answer."""
    text = str(result["output"])
    if not result["success"]:
        return RepairedAnswer(None, text)
    return repair_answer(extract_answer({"text": text}, build_answer_schema(action)), build_answer_schema(action))


def extract_answer(payload: Mapping[str, Any], schema: Json | None = None) -> Json:
    """Return the content of a payload without the engine's own keys. Fields in a JSON text become fields.

    >>> extract_answer(dict(reply_to="x", text='{"verdict": "good"}'))
    {'verdict': 'good', 'text': '{"verdict": "good"}'}
    """
    if needs_answer_key(schema):
        fields = {"text": payload["text"]} if "text" in payload else {}
        return {**extract_json_object(fields.get("text")), **fields, **parse_answer(payload, schema)}
    payload_fields = {key: value for key, value in payload.items() if key not in ENGINE_KEYS}
    return {**extract_json_object(payload_fields.get("text")), **payload_fields}


def run_payload(last: Any) -> Json:
    """Return the payload of a run's answer, from its final value.

    Answers with fields beside their text stay values beside the text: `items` of a step with `each`, the
    actions of a parallel group by name.
    """
    if isinstance(last, str):
        return {"text": last}
    is_answer = isinstance(last, dict) and isinstance(last.get("text"), str)
    if is_answer:
        return {key: value for key, value in last.items() if key != "status"}
    values = {"items": last} if isinstance(last, list) else last if isinstance(last, dict) else {}
    fields = {key: value for key, value in values.items() if key not in REQUEST_KEYS | ENVELOPE}
    return {**(fields if _has_more_than_text(values) else {}), "text": value_to_text(last)}


def _has_more_than_text(values: Mapping[str, Any]) -> bool:
    items = values.get("items")
    answers = items if len(values) == 1 and isinstance(items, list) else values.values()
    return not all(isinstance(answer, Mapping) and answer.keys() <= {"text"} for answer in answers)


def call_outcome(action: StepAction, result: Mapping[str, Any]) -> RepairedAnswer:
    """Return the outcome of a tool call."""
    text = str(result.get("output", ""))
    if not result.get("success"):
        return RepairedAnswer(None, f"{action.tool} failed: {text}")
    return repair_answer({**extract_json_object(text), "success": True, "text": text}, action.output)


def build_answer_schema(action: StepAction) -> Json | None:
    """Return the schema of an answer: `output`, and the field for choosing the next step."""
    choice = action.choose if isinstance(action, StepDefinition) else None
    if choice is None or "." in choice.field_:
        return action.output
    return _with_choice(action.output, choice, has_else=isinstance(action, StepDefinition) and bool(action.else_))


def _with_choice(output: Json | None, choice: ChoiceSettings, *, has_else: bool) -> Json:
    schema: Json = {"type": "object", **(output or {})}
    properties = dict(schema.get("properties", {}))
    properties.setdefault(choice.field_, {"type": "string", "enum": [*choice.to]})
    required = [*schema.get("required", [])]
    if choice.field_ not in required and not has_else:
        required.append(choice.field_)
    if has_else and output is None:  # an answer without a match takes the other route
        properties[choice.field_] = {"description": f"One of {', '.join(choice.to)}."}
    return {**schema, "properties": properties, **({"required": required} if required else {})}


def choose_target(choice: ChoiceSettings, answer: Any) -> str:
    """Return the target for the field of an answer, ignoring case, or the empty string."""
    field_value = predicates.get_field(answer, choice.field_)
    if field_value is predicates.MISSING or isinstance(field_value, (dict, list)):
        return ""
    text = str(field_value).strip() if not isinstance(field_value, bool) else str(field_value).lower()
    if text in choice.to:
        return choice.to[text]
    return {normalize_word(value): to for value, to in choice.to.items()}.get(normalize_word(text), "")


def verification_error(verify: VerifySettings, outcome: RepairedAnswer, variables: Mapping[str, Any]) -> str:
    """Return the reason an answer fails verification, or the empty string. An unclear verdict fails."""
    answer = outcome.answer
    if answer is None:
        return outcome.reason
    text = str(answer.get("text") or "").strip()
    reasons = str(answer.get("reason") or text)
    if verify.when is not None:
        return "" if predicates.evaluate(verify.when, {**variables, "answer": answer}) else reasons or "not passed"
    if verify.tool:
        return ""
    passes = answer.get("passes", parse_boolean(next(iter(text.split()), "")))
    if passes is True:
        return ""
    if passes is False:
        return reasons.removeprefix("fail").lstrip(" :.,") or "no reason was given"
    return f"it was neither passed nor failed: {text[:500]}"
