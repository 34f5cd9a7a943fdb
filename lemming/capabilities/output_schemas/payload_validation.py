"""Schemas of a turn's entry payloads, from the agent's `output` and from the requests. Pure.

The model is told the schema, backends with constrained output receive the schema, and entries are validated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lemming.capabilities.output_schemas.answers_settings import OutputSettings, get_output_settings
from lemming.capabilities.output_schemas.closed_schemas import close_payload_schema, closing_blocker
from lemming.capabilities.output_schemas.payload_coercion import repair_payload
from lemming.ext import ConfigError, NewEntry, TurnInputs, resume_file
from lemming.kernel.agents import Agent
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.json_schema.schema_violations import Violation, find_schema_flaw
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

CHECKED_KINDS = ("report", "response")
"""The kinds of entries that must satisfy `output.schema` where no conditions say which."""
REFUSAL_STATUSES = ("failed", "refused")


class PayloadValidator:
    """Validates a turn's entries. `violation`: the last answer's problem, or "". `schemas`: by request identity."""

    def __init__(self, inputs: TurnInputs, schemas: Mapping[str, Json]) -> None:
        self._inputs, self._output, self._task = inputs, get_output_settings(inputs.agent), inputs.task
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
                self.violation = "; ".join(map(_describe_violations, violations))
        return results

    def _find_answers(self, entries: list[NewEntry]) -> list[int]:
        """Return the indexes of the entries that will count as the answer to the turn's request."""
        task = self._task
        if task is None or not task.request:
            return []
        references, named = ((None, task.reference, task.request), collect_properties(self._schemas.get(task.request)))
        explicit = [
            index
            for index, entry in enumerate(entries)
            if entry.kind == "response" and (entry.payload.get("reply_to") in references or "reply_to" in named)
        ]
        candidates = [
            index
            for index, entry in enumerate(entries)
            if entry.kind in ANSWER_KINDS and entry.payload.get("target") in (None, task.asker, [], [task.asker])
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
        if is_answer and self._task:
            return self._schemas.get(self._task.request)
        return self._requested_schema_in_inbox(new) if new.kind == "response" else None

    def _requested_schema_in_inbox(self, new: NewEntry) -> Json | None:
        reply_to, open_requests = new.payload.get("reply_to"), self._inputs.open_requests
        matches = [identity for identity in open_requests if reply_to in (None, identity, identity.rpartition("_")[2])]
        return self._schemas.get(matches[0]) if len(matches) == 1 else None


def _describe_violations(violation: Violation) -> str:
    return f"{violation.pointer}: {violation.reason}" if violation.pointer else violation.reason


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
        _require_sound(output, resume_file(agent.name))
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


def _require_sound(output: OutputSettings, resume: str) -> None:
    flaw, inside = find_schema_flaw(output.schema)
    if flaw:
        raise ConfigError(
            f"expected a JSON Schema: {flaw}", where=f"{resume} /output/schema{inside}", hint="correct it"
        )


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
        subject = _describe_conditions(output.when)
        yield f"The payload of {subject} must also satisfy this JSON Schema, beside its text:"
        yield to_line(output.schema)
    if uses_wire_form and (answer_schemas or output):
        yield "(Fields that have no place of their own go into data_json.)"


def _describe_conditions(conditions: Sequence[Mapping[str, Any]]) -> str:
    if not conditions:
        return f"entries of kind {' and '.join(CHECKED_KINDS)}"
    return f"entries for which one of these holds, {to_line([*conditions])},"
