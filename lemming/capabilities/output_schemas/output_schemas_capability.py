"""Answers as a capability: a turn's entries must satisfy the schemas of the resume and of requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from lemming.capabilities.output_schemas.closed_schemas import closing_blocker
from lemming.capabilities.output_schemas.output_settings import OUTPUT, OutputSettings, get_output_settings
from lemming.capabilities.output_schemas.payload_validation import (
    CHECKED_KINDS,
    PayloadValidator,
    build_payload_schemas,
    can_require_schema,
    collect_answer_schemas,
    payload_instructions,
)
from lemming.ext import (
    AgentSubject,
    Allowed,
    BuildPrompt,
    Capability,
    CheckEntries,
    Effect,
    Interception,
    Preparation,
    Problem,
    SelectContext,
    TurnView,
    make_warning,
)
from lemming.kernel.agents import Agent
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw, resolve_ref
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.config import Config
from lemming.libraries.conditions.schema_typos import find_schema_typos


class OutputSchemasCapability(Capability):
    """Structured answers, requested by the key `output` of a resume or `schema` of a request."""

    name = "answers"

    handles = (SelectContext, BuildPrompt, CheckEntries)

    def prepare(self, turn: Preparation) -> Json | None:
        """Return the answer schemas by identity of the turn's requests."""
        schemas = turn.get_cache(AnswerSchemas).schemas
        return {"schemas": schemas} if schemas else None

    def intercept(self, effect: Any, turn: Preparation | TurnView) -> Interception:
        """Return each entry as written, or the problems of the payload. Records the problem of the answer."""
        if isinstance(turn, Preparation):
            return turn.get_cache(AnswerSchemas).intercept(effect)
        if turn.can_skip_response:
            return None
        validator = PayloadValidator(turn.inputs, turn.snapshot.get("schemas", {}))
        validated = validator.validate_entries([*effect.entries])
        turn.report_answer_violation(validator.violation)
        return Allowed(effect, validated)


class AnswerSchemas:
    """Schemas of the answers to the requests of one turn, by identity of the request."""

    def __init__(self, turn: Preparation) -> None:
        self._agent = turn.agent
        self.schemas: dict[str, Json] = {}

    def intercept(self, effect: Effect) -> Interception:
        """Add the schemas of the entries for backends, and the payload rules."""
        match effect:
            case SelectContext():
                return (yield self._add_schemas(effect))
            case BuildPrompt():
                return (yield self._add_rules(effect))
        return None

    def _add_schemas(self, effect: SelectContext) -> SelectContext:
        task = effect.task
        self.schemas = collect_answer_schemas([task.request] if task else effect.requests)
        answer_schema = self.schemas.get(task.open_request.request) if task else None
        schemas = build_payload_schemas(self._agent, answer_schema)
        return replace(effect, payload_schemas=[*effect.payload_schemas, *schemas])

    def _add_rules(self, effect: BuildPrompt) -> BuildPrompt:
        """Add the payload rules: as text for a model, as settings for a program."""
        prompt, output = effect.prompt, get_output_settings(self._agent)
        rules = payload_instructions(
            self._agent,
            self.schemas.values(),
            is_for_one=prompt.task is not None,
            uses_wire_form=prompt.uses_wire_form,
        )
        extra_values = {**prompt.extra_values, OUTPUT: asdict(output)} if output else prompt.extra_values
        return effect.change(payload_rules=" ".join(rules), extra_values=extra_values)


def find_output_typos(subject: AgentSubject) -> Iterator[Problem]:
    """Yield keywords of the schema that would check nothing."""
    output = get_output_settings(subject.agent)
    if output and not find_schema_flaw(output.schema)[0]:
        yield from find_schema_typos(output.schema, f"/{OUTPUT}/schema")


def find_output_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield problems of the schema, and parts of it that no model sees."""
    agent, output = subject.agent, get_output_settings(subject.agent)
    if output and subject.config.has_model_turns(agent):
        yield from _schema_problems(output)
        yield from _kind_problems(agent, output)
        yield from _backend_problems(agent, output, subject.config)


def _schema_problems(output: OutputSettings) -> Iterator[Problem]:
    flaw, inside = find_schema_flaw(output.schema)
    if flaw:
        hint = "correct it (see json-schema.org): every turn fails until then"
        yield Problem(f"expected a JSON Schema: {flaw}", pointer=f"/output/schema{inside}", hint=hint)
        return
    for pointer, reference in _iter_refs(output.schema, "/output/schema"):
        if resolve_ref(output.schema, reference) is None:
            hint = 'refer to a part of the schema, such as "#/$defs/line": other addresses are not fetched'
            yield Problem(f"the schema does not contain {str(reference)[:100]}", pointer=pointer, hint=hint)


def _iter_refs(schema: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    parts = schema.items() if isinstance(schema, dict) else ()
    for key, part in enumerate(schema) if isinstance(schema, list) else parts:
        if key == "$ref" and isinstance(part, str):
            yield f"{pointer}/$ref", part
        yield from _iter_refs(part, f"{pointer}/{key}")


def _kind_problems(agent: Agent, output: OutputSettings) -> Iterator[Problem]:
    if not any(can_require_schema(output.when, kind) for kind in agent.turn.kinds):
        reason = "by its conditions" if output.when else f"it is about {' and '.join(CHECKED_KINDS)}"
        message = f"the schema applies to no entry: {reason}, and turn.kinds is {', '.join(agent.turn.kinds)}"
        hint = 'write "when": [{"field": "kind", "op": "is", "value": "message"}], for example'
        yield make_warning(message, "/output", hint)


def _backend_problems(agent: Agent, output: OutputSettings, config: Config) -> Iterator[Problem]:
    entry = config.models.get(agent.model.key)
    reason = closing_blocker(output.schema)
    if entry is None or not reason:
        return
    message = f"the schema cannot constrain the model's output: {reason}"
    hint = "simplify it, or leave it: the prompt describes it, and wrong answers are corrected"
    if entry.prompt == "brief":
        hint = f'simplify it: the "brief" prompt of model "{agent.model.key}" does not describe it'
    yield make_warning(message, "/output/schema", hint)
