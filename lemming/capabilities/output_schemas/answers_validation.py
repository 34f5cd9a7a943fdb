"""Validation of the key `output` of a resume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.capabilities.output_schemas.answers_settings import OutputSettings
from lemming.capabilities.output_schemas.closed_schemas import closing_blocker
from lemming.capabilities.output_schemas.payload_validation import CHECKED_KINDS, can_require_schema
from lemming.ext import Problem
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw, resolve_ref
from lemming.kernel.org.config import Config


def validate_output(agent: Agent, output: OutputSettings, config: Config) -> Iterator[Problem]:
    """Yield problems in the key `output` of a resume."""
    yield from _schema_problems(output, paths.resume_file(agent.name))
    yield from _kind_problems(agent, output)
    yield from _backend_problems(agent, output, config)


def _schema_problems(output: OutputSettings, resume: str) -> Iterator[Problem]:
    flaw, inside = find_schema_flaw(output.schema)
    if flaw:
        hint = "correct it (see json-schema.org): every turn fails until then"
        yield Problem(f"expected a JSON Schema: {flaw}", resume, pointer=f"/output/schema{inside}", hint=hint)
        return
    for pointer, reference in _iter_refs(output.schema, "/output/schema"):
        if resolve_ref(output.schema, reference) is None:
            hint = 'refer to a part of the schema, such as "#/$defs/line": other addresses are not fetched'
            yield Problem(f"the schema does not contain {str(reference)[:100]}", resume, pointer=pointer, hint=hint)


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
        yield _make_warning(agent, "/output", message, hint)


def _backend_problems(agent: Agent, output: OutputSettings, config: Config) -> Iterator[Problem]:
    entry = config.models.get(agent.model.key)
    reason = closing_blocker(output.schema)
    if entry is None or not reason:
        return
    message = f"the schema cannot constrain the model's output: {reason}"
    hint = "simplify it, or leave it: the prompt describes it, and wrong answers are corrected"
    if entry.prompt == "brief":
        hint = f'simplify it: the "brief" prompt of model "{agent.model.key}" does not describe it'
    yield _make_warning(agent, "/output/schema", message, hint)


def _make_warning(agent: Agent, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, paths.resume_file(agent.name), pointer=pointer, hint=hint, severity="warning")
