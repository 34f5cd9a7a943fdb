"""What came of a step: an answer read out of a response or a tool's result, and whether it passes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.capabilities.answers.fitting import FittedAnswer, bare_word, fields_in, fitting, yes_or_no
from lemming.capabilities.conditions import when
from lemming.capabilities.plans.format import Choice, Member, Step, Verify
from lemming.capabilities.plans.references import as_text
from lemming.kernel.mail.answers import ENVELOPE, KEYS_OF_REQUESTS, OF_THE_ENGINE, answer_in, is_apart
from lemming.kernel.turn.verdict import VERDICT_SCHEMA

Json = dict[str, Any]

VERDICT: Json = {**VERDICT_SCHEMA, "required": ["passes"], "additionalProperties": True}
"""What who verifies a step answers: beside a text, and without a reason where it passes."""


def of_asking(member: Member, asked: Mapping[str, Any], who: str) -> FittedAnswer:
    """Return what came of a request that has ended, as the values of a turn tell of it."""
    end, payload = asked.get("end"), asked.get("answer")
    given = payload if isinstance(payload, dict) else {}
    if end in ("answered", "expired") and isinstance(payload, dict):
        return fitting(plain_answer(given, schema_for(member)), schema_for(member))
    words = str(given.get("text") or "").strip()
    why = {"expired": "nobody answered in time", "cancelled": "it was cancelled"}.get(str(end), str(end))
    if payload is None and end in ("failed", "refused"):
        words = "what it said is not to be seen from here; `lemming validate` says which line is missing"
    return FittedAnswer(None, f"{who}: {why}{f': {words}' if words else ''}")


def of_approving(member: Member, result: Mapping[str, Any]) -> FittedAnswer:
    """Return the outcome of a request that was not written: a person's no, or the answer in its place."""
    text = str(result["output"])
    if not result["success"]:
        return FittedAnswer(None, text)
    return fitting(plain_answer({"text": text}, schema_for(member)), schema_for(member))


def plain_answer(payload: Mapping[str, Any], schema: Json | None = None) -> Json:
    """Return what a payload says, without what the engine keeps in it; fields in a JSON text are fields.

    >>> plain_answer({"reply_to": "x", "text": '{"verdict": "good"}'})
    {'verdict': 'good', 'text': '{"verdict": "good"}'}
    """
    if is_apart(schema):
        fields = {"text": payload["text"]} if "text" in payload else {}
        return {**fields_in(fields.get("text")), **fields, **answer_in(payload, schema)}
    own = {key: value for key, value in payload.items() if key not in OF_THE_ENGINE}
    return {**fields_in(own.get("text")), **own}


def of_a_run(last: Any) -> Json:
    """Return the payload of the answer that a run gives whose answer, or last step, came to this.

    Answers that have fields beside their text stay values beside the text: `items` of a step with `each`,
    the members of a band by name.
    """
    if isinstance(last, str):
        return {"text": last}
    is_one = isinstance(last, dict) and isinstance(last.get("text"), str)
    if is_one:
        return {key: value for key, value in last.items() if key != "status"}
    values = {"items": last} if isinstance(last, list) else last if isinstance(last, dict) else {}
    fields = {key: value for key, value in values.items() if key not in KEYS_OF_REQUESTS | ENVELOPE}
    return {**(fields if _has_more_than_text(values) else {}), "text": as_text(last)}


def _has_more_than_text(values: Mapping[str, Any]) -> bool:
    items = values.get("items")
    answers = items if len(values) == 1 and isinstance(items, list) else values.values()
    return not all(isinstance(it, Mapping) and it.keys() <= {"text"} for it in answers)


def of_calling(member: Member, result: Mapping[str, Any]) -> FittedAnswer:
    """Return what came of a tool call."""
    text = str(result.get("output", ""))
    if not result.get("success"):
        return FittedAnswer(None, f"{member.tool} failed: {text}")
    return fitting({**fields_in(text), "success": True, "text": text}, member.output)


def schema_for(member: Member) -> Json | None:
    """Return what an answer must satisfy: `output`, and the field that decides where the run goes on."""
    choice = member.choose if isinstance(member, Step) else None
    if choice is None or "." in choice.field_:
        return member.output
    return _with_choice(member.output, choice, has_else=isinstance(member, Step) and bool(member.else_))


def _with_choice(output: Json | None, choice: Choice, *, has_else: bool) -> Json:
    schema: Json = {"type": "object", **(output or {})}
    properties = dict(schema.get("properties", {}))
    properties.setdefault(choice.field_, {"type": "string", "enum": [*choice.to]})
    required = [*schema.get("required", [])]
    if choice.field_ not in required and not has_else:
        required.append(choice.field_)
    if has_else and output is None:  # what fits nothing goes the other way
        properties[choice.field_] = {"description": f"One of {', '.join(choice.to)}."}
    return {**schema, "properties": properties, **({"required": required} if required else {})}


def chosen(choice: Choice, answer: Any) -> str:
    """Return where an answer's field leads, whatever case a model wrote it in; empty for nowhere."""
    found = when.field_of(answer, choice.field_)
    if found is when.MISSING or isinstance(found, (dict, list)):
        return ""
    word = str(found).strip() if not isinstance(found, bool) else str(found).lower()
    if word in choice.to:
        return choice.to[word]
    return {bare_word(value): to for value, to in choice.to.items()}.get(bare_word(word), "")


def of_verifying(verify: Verify, outcome: FittedAnswer, known: Mapping[str, Any]) -> str:
    """Return why a step's answer does not pass; empty when it does. What says neither does not pass."""
    answer = outcome.answer
    if answer is None:
        return outcome.why
    text = str(answer.get("text") or "").strip()
    reasons = str(answer.get("reason") or text)
    if verify.when is not None:
        return "" if when.holds(verify.when, {**known, "answer": answer}) else reasons or "not passed"
    if verify.tool:
        return ""
    passes = answer.get("passes", yes_or_no(next(iter(text.split()), "")))
    if passes is True:
        return ""
    if passes is False:
        return reasons.removeprefix("fail").lstrip(" :.,") or "no reason was given"
    return f"it was neither passed nor failed: {text[:500]}"
