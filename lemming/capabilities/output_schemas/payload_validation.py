"""Schemas of a turn's entry payloads, from the agent's `output` and from the requests. Pure.

The model is told the schema, backends with constrained output receive the schema, and entries are validated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.capabilities.output_schemas.closed_schemas import close_payload_schema, closing_blocker
from lemming.capabilities.output_schemas.output_settings import get_output_settings
from lemming.ext import ConfigError, NewEntry, TurnInputs, resume_file
from lemming.kernel.agents import Agent
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.json_schema.schema_violations import (
    describe_violations,
    find_schema_flaw,
    list_errors,
    resolve_ref,
)
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.answer_payload import (
    ANSWER_KEY,
    ANSWER_KINDS,
    collect_properties,
    needs_answer_key,
    nest_answer,
)
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.reply_schemas import PayloadSchema
from lemming.libraries.conditions import predicates
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.obligations.answer_fields import parse_answer


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
        if answer is not None:
            return {**payload, ANSWER_KEY: answer}, []
        return payload, [item._replace(pointer=f"/{ANSWER_KEY}{item.pointer}") for item in violations]
    if violations:
        for attempt in _repair_candidates({**extract_json_object(payload.get("text")), **payload}, schema):
            if not describe_violations(schema, parse_answer(attempt, schema)):
                return attempt, []
    return payload, violations


def repair_answer(answer: Json, schema: Json | None) -> RepairedAnswer:
    """Return an answer that satisfies a schema, repaired if necessary, or the reason for failure.

    A word from an enumeration may be written in another case, and may be the whole text of the answer.
    """
    if schema is None or not (violations := describe_violations(schema, answer)):
        return RepairedAnswer(answer)
    for attempt in _repair_candidates(answer, schema):
        # Without the text, too, which schemas need not declare.
        bare = {key: value for key, value in attempt.items() if key != "text"}
        if not (describe_violations(schema, attempt) and describe_violations(schema, bare)):
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
    return parse_object_or_empty(bare)


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
            booleans = [boolean for text in (raw, first or "") if (boolean := parse_boolean(text)) is not None]
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


CHECKED_KINDS = ("report", "response")
"""The kinds of entries that must satisfy `output.schema` where no conditions say which."""
REFUSAL_STATUSES = ("failed", "refused")


class PayloadValidator:
    """Validates a turn's entries. `violation`: the last answer's problem, or "". `schemas`: by request identity."""

    def __init__(self, inputs: TurnInputs, schemas: Mapping[str, Json]) -> None:
        self._inputs, self._output, self._request = inputs, get_output_settings(inputs.agent), inputs.current_request
        self._schemas = schemas
        self.violation = ""

    def validate_entries(self, entries: list[NewEntry]) -> list[NewEntry | list[str]]:
        """Return each entry as written, or the violations of the payload as JSON pointers with messages."""
        self.violation = ""
        answers = self._find_answers(entries)
        results: list[NewEntry | list[str]] = []
        for index, new in enumerate(entries):
            schema = self._select_schema(new, is_answer=index in answers)
            if schema is None:
                results.append(new)
                continue
            payload, violations = repair_payload(new.payload, schema)
            if not violations and schema is self._requested_schema(new, is_answer=index in answers):
                payload = nest_answer(payload, schema)
            results.append(
                [f"{violation.pointer}: {violation.reason}" for violation in violations]
                or new._replace(payload=payload)
            )
            if violations and index in answers:
                described = (f"{item.pointer}: {item.reason}" if item.pointer else item.reason for item in violations)
                self.violation = "; ".join(described)
        return results

    def _find_answers(self, entries: list[NewEntry]) -> list[int]:
        """Return the indexes of the entries that will count as the answer to the turn's request."""
        request = self._request
        if request is None or not request.request:
            return []
        references = (None, request.reference, request.request)
        named = collect_properties(self._schemas.get(request.request))
        explicit = [
            index
            for index, entry in enumerate(entries)
            if entry.kind == "response" and (entry.payload.get("reply_to") in references or "reply_to" in named)
        ]
        candidates = [
            index
            for index, entry in enumerate(entries)
            if entry.kind in ANSWER_KINDS and entry.payload.get("target") in (None, request.asker, [], [request.asker])
        ]
        return explicit or candidates[-1:]

    def _select_schema(self, new: NewEntry, *, is_answer: bool) -> Json | None:
        """Return the schema of an entry's payload, or None to accept anything."""
        schema = self._requested_schema(new, is_answer=is_answer)
        if schema is None and self._output:
            entry = new._replace(kind="response") if is_answer else new
            schema = self._output.schema if requires_schema(self._output.when, entry) else None
        if new.kind == "response" and new.payload.get("status") in REFUSAL_STATUSES:
            # A form may have a field of that name: then it is an answer if it is of the form.
            is_field = "status" in collect_properties(schema) and schema is not None
            return schema if is_field and not repair_payload(new.payload, schema or {})[1] else None
        return schema

    def _requested_schema(self, new: NewEntry, *, is_answer: bool) -> Json | None:
        """Return the schema of the request that an entry answers, if any."""
        if is_answer and self._request:
            return self._schemas.get(self._request.request)
        if new.kind != "response":
            return None
        reply_to, open_requests = new.payload.get("reply_to"), self._inputs.open_requests
        matches = [identity for identity in open_requests if reply_to in (None, identity, identity.rpartition("_")[2])]
        return self._schemas.get(matches[0]) if len(matches) == 1 else None


def requires_schema(conditions: Sequence[Json], new: NewEntry) -> bool:
    """Return True if an entry must satisfy the agent's schema."""
    if not conditions:
        return new.kind in CHECKED_KINDS
    entry = {"kind": new.kind, "payload": new.payload, "tags": new.tags}
    return any(predicates.compile_condition(condition)(entry) for condition in conditions)


def can_require_schema(conditions: Sequence[Json], kind: MessageKind) -> bool:
    """Return True if entries of a kind can require the schema, depending on their content."""
    bare = NewEntry(kind, {}, [])
    return requires_schema(conditions, bare) or any(not _tests_kind(condition) for condition in conditions)


def collect_answer_schemas(requests: Iterable[OutboxEntry | None]) -> dict[str, Json]:
    """Return the valid answer schemas of requests, by identity."""
    return {request.identity: schema for request in requests if request and (schema := _answer_schema(request))}


def _answer_schema(request: OutboxEntry) -> Json | None:
    original = request.payload.get("asked")
    payload = original if isinstance(original, dict) and "hands_on" in request.payload else request.payload
    schema = payload.get("schema")
    return schema if isinstance(schema, dict) and not find_schema_flaw(schema)[0] else None


def build_payload_schemas(agent: Agent, answer_schema: Json | None) -> list[PayloadSchema]:
    """Return the payload schemas of an agent's entries, for backends with constrained output.

    `answer_schema`: schema of the answer to the turn's request. Raises `ConfigError` for an invalid `output`.
    """
    schemas = (
        [PayloadSchema(("response",), ("response",), _closed_properties(answer_schema, is_asked_for=True))]
        if answer_schema
        else []
    )
    if output := get_output_settings(agent):
        flaw, inside = find_schema_flaw(output.schema)
        if flaw:
            where = f"{resume_file(agent.name)} /output/schema{inside}"
            raise ConfigError(f"expected a JSON Schema: {flaw}", where=where, hint="correct it")
        kinds = [kind for kind in agent.turn.kinds if not (answer_schema and kind == "response")]
        possible_kinds = tuple(kind for kind in kinds if can_require_schema(output.when, kind))
        certain_kinds = tuple(kind for kind in possible_kinds if _selects_every_entry(output.when, kind))
        schemas += (
            [PayloadSchema(possible_kinds, certain_kinds, _closed_properties(output.schema))] if possible_kinds else []
        )
    return schemas


def _closed_properties(schema: Json, *, is_asked_for: bool = False) -> Json | None:
    if closing_blocker(schema):
        return None
    closed_form = close_payload_schema(schema)
    properties: Json = (
        {ANSWER_KEY: closed_form} if needs_answer_key(schema) and is_asked_for else closed_form["properties"]
    )
    return properties


def _selects_every_entry(conditions: Sequence[Json], kind: MessageKind) -> bool:
    return requires_schema(
        [condition for condition in conditions if _tests_kind(condition)], NewEntry(kind, {}, [])
    ) and (not conditions or any(map(_tests_kind, conditions)))


def _tests_kind(condition: Json) -> bool:
    return condition.get("field") == "kind"


def payload_instructions(
    agent: Agent, answer_schemas: Collection[Json], *, is_for_one: bool, uses_wire_form: bool
) -> Iterator[str]:
    """Yield the payload instructions for an ordinary model; none if any payload is accepted."""
    if answer_schemas:
        subject = "your response" if is_for_one else 'a response to a request that has a "schema"'
        yield f'The payload of {subject} must also have the fields that the request\'s "schema" asks for.'
        if any(map(needs_answer_key, answer_schemas)):
            yield f'They stand in an object under its key "{ANSWER_KEY}".'
    output = get_output_settings(agent)
    if output:
        subject = f"entries of kind {' and '.join(CHECKED_KINDS)}"
        if output.when:
            subject = f"entries for which one of these holds, {to_line([*output.when])},"
        yield f"The payload of {subject} must also satisfy this JSON Schema, beside its text:"
        yield to_line(output.schema)
    if uses_wire_form and (answer_schemas or output):
        yield "(Fields that have no place of their own go into data_json.)"


class Violation(NamedTuple):
    """A violation by a value, with the JSON pointer to the part."""

    pointer: str
    reason: str


def find_violations(schema: Json | bool, value: Any) -> list[Violation]:
    """Return a value's violations of a valid schema, each with its JSON pointer.

    >>> find_violations(dict(type="object", required=["verdict"]), {})
    [Violation(pointer='/verdict', reason='this key is required')]
    """
    violations = []
    for path, missing, reason in list_errors(schema, value):
        pointer = "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in (*path, *missing))
        violations.append(Violation(pointer, "this key is required" if missing else reason))
    return violations
