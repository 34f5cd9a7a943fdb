"""Validation and repair of an answer against a schema. Pure.

Models give the right content in slightly wrong forms: fields in a JSON text, another case, null for absent fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lemming.kernel.base.json_schema.schema_violations import (
    Violation,
    describe_violations,
    find_violations,
    resolve_ref,
)
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.answer_payload import ANSWER_KEY, needs_answer_key, parse_answer


class RepairedAnswer(NamedTuple):
    """A valid answer, or the reason for the absence."""

    answer: Json | None
    reason: str = ""


def repair_payload(payload: Json, schema: Json) -> tuple[Json, list[Violation]]:
    """Return a payload whose answer satisfies a schema, or the unchanged payload with the violations.

    >>> repair_payload({"text": '{"verdict": "Good"}'}, {"properties": {"verdict": {"enum": ["good"]}}})
    ({'text': '{"verdict": "Good"}'}, [])
    >>> schema = {'properties': {'verdict': {'enum': ['good']}}, 'required': ['verdict']}
    >>> repair_payload({"text": '{"verdict": "Good"}'}, schema)[0]["verdict"]
    'good'
    """
    violations = find_violations(schema, parse_answer(payload, schema))
    if violations and isinstance(nested := payload.get(ANSWER_KEY), Mapping) and needs_answer_key(schema):
        answer = repair_answer({**nested}, schema).answer
        return (
            ({**payload, ANSWER_KEY: answer}, [])
            if answer is not None
            else (payload, _prefix_pointers(ANSWER_KEY, violations))
        )
    if violations:
        for attempt in _repair_candidates({**extract_json_object(payload.get("text")), **payload}, schema):
            if not describe_violations(schema, parse_answer(attempt, schema)):
                return attempt, []
    return payload, violations


def _prefix_pointers(key: str, violations: list[Violation]) -> list[Violation]:
    return [violation._replace(pointer=f"/{key}{violation.pointer}") for violation in violations]


def repair_answer(answer: Json, schema: Json | None) -> RepairedAnswer:
    """Return an answer that satisfies a schema, repaired if necessary, or the reason for failure.

    A word from an enumeration may be written in another case, and may be the whole text of the answer.
    """
    if schema is None or not (violations := describe_violations(schema, answer)):
        return RepairedAnswer(answer)
    for attempt in _repair_candidates(answer, schema):
        if not describe_violations(schema, attempt) or (
            "text" in attempt and not describe_violations(schema, without_text(attempt))
        ):
            return RepairedAnswer(attempt)
    return RepairedAnswer(None, f"the answer is not what was asked for: {'; '.join(violations)}")


def extract_json_object(text: Any) -> Json:
    """Return the JSON object in a text, with or without a code fence, or an empty dict."""
    if not isinstance(text, str):
        return {}
    bare = text.strip()
    if bare.startswith("```"):
        bare = bare.removeprefix("```json").strip("`").strip()
    if not bare.startswith("{"):
        return {}
    try:
        value = parse(bare)
    except JsonProblem:
        return {}
    return value if isinstance(value, dict) else {}


def _repair_candidates(answer: Json, schema: Json) -> Iterator[Json]:
    yield answer
    listed = _normalize_enums(answer, schema)
    yield listed
    yield _drop_optional_nulls(listed, schema, schema)


def _normalize_enums(answer: Json, schema: Json) -> Json:
    """Return an answer with enumerated values spelled as in the schema."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return answer
    only_required = required[0] if isinstance(required, list) and len(required) == 1 else None
    listed = dict(answer)
    for name, field in properties.items():
        raw = answer.get("text") if name == only_required and name not in answer else answer.get(name)
        first = _first_word(raw) if name not in answer else None
        if isinstance(field, dict) and field.get("type") == "boolean" and isinstance(raw, str):
            booleans = [
                value_or_none for text in (raw, first or "") if (value_or_none := parse_boolean(text)) is not None
            ]
            listed |= {name: booleans[0]} if booleans else {}
        values = field.get("enum") if isinstance(field, dict) else None
        for value in values if isinstance(values, list) and isinstance(raw, str) else ():
            if isinstance(value, str) and normalize_word(value) in (normalize_word(str(raw)), first):
                listed[name] = value
    return listed


def _first_word(text: Any) -> str | None:
    """Return the first word of a text followed by an explanation: "fail" of "fail: it is too long"."""
    first = next(iter(text.split()), "") if isinstance(text, str) else ""
    return normalize_word(first) if first.endswith((":", ".", ",")) else None


def _drop_optional_nulls(value: Any, schema: Any, root: Json) -> Any:
    """Return a value without nulls for optional fields."""
    if isinstance(schema, dict) and "$ref" in schema:
        schema = resolve_ref(root, schema["$ref"])
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [_drop_optional_nulls(item, schema.get("items"), root) for item in value]
    properties, required = schema.get("properties"), schema.get("required", ())
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    needed = {*required, *(key for key in value if key not in properties)}
    return {
        key: _drop_optional_nulls(item_value, properties.get(key), root)
        for key, item_value in value.items()
        if item_value is not None or key in needed
    }


def parse_boolean(text: str) -> bool | None:
    """Return the boolean value of a word, or None for other words.

    >>> parse_boolean("Pass."), parse_boolean("no"), parse_boolean("perhaps")
    (True, False, None)
    """
    return {"true": True, "yes": True, "pass": True, "false": False, "no": False, "fail": False}.get(
        normalize_word(text)
    )


def normalize_word(text: str) -> str:
    """Return a word in one case, without the decoration that models add."""
    return text.strip(" .!:,*\n\"'").casefold()


def without_text(answer: Mapping[str, Any]) -> Json:
    """Return an answer's fields without the text, which schemas need not declare."""
    return {key: value for key, value in answer.items() if key != "text"}
