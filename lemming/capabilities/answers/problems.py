"""What is wrong with the key `output` of a resume, before a turn is held to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.capabilities.answers.closed_schemas import why_not_closable
from lemming.capabilities.answers.settings import Output
from lemming.capabilities.answers.validation import CHECKED_KINDS, may_select
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.json_schema.violations import flaw_of, part_of
from lemming.kernel.org.config import Config


def problems_of_output(agent: Agent, output: Output, config: Config) -> Iterator[Problem]:
    """Yield what is wrong with the key `output` of a resume."""
    yield from _schema_problems(output, paths.resume_file(agent.name))
    yield from _kind_problems(agent, output)
    yield from _backend_problems(agent, output, config)


def _schema_problems(output: Output, resume: str) -> Iterator[Problem]:
    flaw, inside = flaw_of(output.schema)
    if flaw:
        hint = "mend it: json-schema.org says what a schema is; until then every turn fails"
        yield Problem(f"no JSON Schema: {flaw}", resume, pointer=f"/output/schema{inside}", hint=hint)
        return
    for pointer, reference in _references(output.schema, "/output/schema"):
        if part_of(output.schema, reference) is None:
            hint = 'what it refers to must be in it, such as "#/$defs/line": nothing is fetched'
            yield Problem(f"{str(reference)[:100]} is not in the schema", resume, pointer=pointer, hint=hint)


def _references(schema: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    parts = schema.items() if isinstance(schema, dict) else ()
    for key, part in enumerate(schema) if isinstance(schema, list) else parts:
        if key == "$ref" and isinstance(part, str):
            yield f"{pointer}/$ref", part
        yield from _references(part, f"{pointer}/{key}")


def _kind_problems(agent: Agent, output: Output) -> Iterator[Problem]:
    if not any(may_select(output.when, kind) for kind in agent.turn.kinds):
        about = "by its conditions" if output.when else f"it is about {' and '.join(CHECKED_KINDS)}"
        what = f"no entry must satisfy it: {about}, and turn.kinds is {', '.join(agent.turn.kinds)}"
        hint = 'such as "when": [{"field": "kind", "op": "is", "value": "message"}]'
        yield _warning(agent, "/output", what, hint)


def _backend_problems(agent: Agent, output: Output, config: Config) -> Iterator[Problem]:
    entry = config.models.get(agent.model.key)
    why = why_not_closable(output.schema)
    if entry is None or not why:
        return
    what = f"backends that constrain answers are not given it: {why}"
    hint = "the model is told it, writes the fields as JSON in data_json, and is corrected"
    if entry.prompt == "brief":
        hint = f'and with "prompt": "brief" nobody tells model "{agent.model.key}" of it: simplify it'
    yield _warning(agent, "/output/schema", what, hint)


def _warning(agent: Agent, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, paths.resume_file(agent.name), pointer=pointer, hint=hint, severity="warning")
