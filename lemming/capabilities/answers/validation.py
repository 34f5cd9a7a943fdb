"""What the payloads of a turn's entries must be: by the agent's `output`, by the requests it answers. Pure.

The model is told the same, backends that constrain answers are given it, and entries are held to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lemming.capabilities.answers.closed_schemas import closed_schema, why_not_closable
from lemming.capabilities.answers.fitting import fitted
from lemming.capabilities.answers.settings import Output, output_of
from lemming.capabilities.conditions import when
from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.json_schema.violations import Violation, flaw_of
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.paths import resume_file
from lemming.kernel.files.fields import Json
from lemming.kernel.mail.answers import APART, MAY_ANSWER, fields_of, is_apart, with_answer_apart
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.reply_schemas import Form
from lemming.kernel.turn.values import TurnInputs

CHECKED_KINDS = ("report", "response")
"""The kinds of entries that must satisfy `output.schema` where no conditions say which."""
GIVES_NONE = ("failed", "refused")


class PayloadCheck:
    """Holds a turn's entries against what they must be. `misfit`: why the last answer was none.

    `schemas`: those of the answers, by the identity of the requests that the turn is shown.
    """

    def __init__(self, inputs: TurnInputs, schemas: Mapping[str, Json]) -> None:
        self._inputs, self._output, self._task = inputs, output_of(inputs.agent), inputs.task
        self._schemas = schemas
        self.misfit = ""

    def fit(self, entries: list[NewEntry]) -> list[NewEntry | list[str]]:
        """Return each entry as it is kept, or what is wrong in its payload: a JSON pointer and words."""
        self.misfit = ""
        answers = self._answers_among(entries)
        looked_at: list[NewEntry | list[str]] = []
        for place, new in enumerate(entries):
            schema = self._schema_of(new, is_answer=place in answers)
            if schema is None:
                looked_at.append(new)
                continue
            payload, wrong = fitted(new.payload, schema)
            if not wrong and schema is self._asked_for(new, is_answer=place in answers):
                payload = with_answer_apart(payload, schema)
            looked_at.append([f"{it.pointer}: {it.why}" for it in wrong] or new._replace(payload=payload))
            if wrong and place in answers:
                self.misfit = "; ".join(map(_in_words, wrong))
        return looked_at

    def _answers_among(self, entries: list[NewEntry]) -> list[int]:
        """Return the places of the entries that answer what the turn is for, as it will be understood."""
        task = self._task
        if task is None or not task.request:
            return []
        meant, named = (None, task.id, task.request), fields_of(self._schemas.get(task.request))
        said = [
            at
            for at, it in enumerate(entries)
            if it.kind == "response" and (it.payload.get("reply_to") in meant or "reply_to" in named)
        ]
        others = [at for at, it in enumerate(entries) if it.kind in MAY_ANSWER and _is_to(it, task.asker)]
        return said or others[-1:]

    def _schema_of(self, new: NewEntry, *, is_answer: bool) -> Json | None:
        """Return what the payload of an entry must satisfy; None when anything will do."""
        schema = self._asked_for(new, is_answer=is_answer)
        if schema is None and self._output:
            entry = new._replace(kind="response") if is_answer else new
            schema = self._output.schema if is_selected(self._output.when, entry) else None
        if new.kind == "response" and new.payload.get("status") in GIVES_NONE:
            # A form may have a field of that name: then it is an answer if it is of the form.
            is_field = "status" in fields_of(schema) and schema is not None
            return schema if is_field and not fitted(new.payload, schema or {})[1] else None
        return schema

    def _asked_for(self, new: NewEntry, *, is_answer: bool) -> Json | None:
        """Return the schema of the request that an entry answers, if it has one."""
        if is_answer and self._task:
            return self._schemas.get(self._task.request)
        return self._asked_beside_others(new) if new.kind == "response" else None

    def _asked_beside_others(self, new: NewEntry) -> Json | None:
        reply_to, shown = new.payload.get("reply_to"), self._inputs.open_requests
        meant = [it for it in shown if reply_to in (None, it, it.rpartition("_")[2])]
        return self._schemas.get(meant[0]) if len(meant) == 1 else None


def _is_to(new: NewEntry, asker: str) -> bool:
    return new.payload.get("target") in (None, asker, [], [asker])


def _in_words(wrong: Violation) -> str:
    return f"{wrong.pointer}: {wrong.why}" if wrong.pointer else wrong.why


def is_selected(conditions: Sequence[Json], new: NewEntry) -> bool:
    """Return whether an entry must satisfy the agent's schema."""
    if not conditions:
        return new.kind in CHECKED_KINDS
    entry = {"kind": new.kind, "payload": new.payload, "tags": new.tags}
    return any(when.predicate(condition)(entry) for condition in conditions)


def may_select(conditions: Sequence[Json], kind: MessageKind) -> bool:
    """Return whether entries of a kind may have to satisfy the schema, whatever else is in them."""
    bare = NewEntry(kind, {}, [])
    return is_selected(conditions, bare) or any(not _tests_kind(it) for it in conditions)


def schemas_of(requests: Iterable[OutboxEntry | None]) -> dict[str, Json]:
    """Return the schemas of the answers to requests that have a sound one, by their identity."""
    return {it.identity: schema for it in requests if it and (schema := _asked_for(it))}


def _asked_for(request: OutboxEntry) -> Json | None:
    handed_on = request.payload.get("asked")
    asked = handed_on if isinstance(handed_on, dict) and "hands_on" in request.payload else request.payload
    schema = asked.get("schema")
    return schema if isinstance(schema, dict) and not flaw_of(schema)[0] else None


def forms_of(agent: Agent, wanted: Json | None) -> list[Form]:
    """Return the forms of the payloads of an agent's entries, for a backend that constrains what it answers.

    `wanted`: the schema of the answer that the turn is for. Raises `ConfigError` for an unusable `output`.
    """
    forms = [Form(("response",), ("response",), _properties(wanted, is_asked_for=True))] if wanted else []
    if output := output_of(agent):
        _require_sound(output, resume_file(agent.name))
        kinds = [kind for kind in agent.turn.kinds if not (wanted and kind == "response")]
        may_be = tuple(kind for kind in kinds if may_select(output.when, kind))
        always = tuple(kind for kind in may_be if _selects_all(output.when, kind))
        forms += [Form(may_be, always, _properties(output.schema))] if may_be else []
    return forms


def _properties(schema: Json, *, is_asked_for: bool = False) -> Json | None:
    if why_not_closable(schema):
        return None
    form = closed_schema(schema)
    properties: Json = {APART: form} if is_apart(schema) and is_asked_for else form["properties"]
    return properties


def _require_sound(output: Output, resume: str) -> None:
    flaw, inside = flaw_of(output.schema)
    if flaw:
        raise ConfigError(f"no JSON Schema: {flaw}", where=f"{resume} /output/schema{inside}", hint="mend it")


def _selects_all(conditions: Sequence[Json], kind: MessageKind) -> bool:
    return is_selected([it for it in conditions if _tests_kind(it)], NewEntry(kind, {}, [])) and (
        not conditions or any(map(_tests_kind, conditions))
    )


def _tests_kind(condition: Json) -> bool:
    return condition.get("field") == "kind"


def payload_rules(
    agent: Agent, wanted: Collection[Json], *, is_for_one: bool, uses_wire_form: bool
) -> Iterator[str]:
    """Yield what an ordinary model is told of all that; nothing when anything will do."""
    if wanted:
        which = "your response" if is_for_one else 'a response to a request that has a "schema"'
        yield f'The payload of {which} must also have the fields that the request\'s "schema" asks for.'
        if any(map(is_apart, wanted)):
            yield f'They stand in an object under its key "{APART}".'
    output = output_of(agent)
    if output:
        which = _which(output.when)
        yield f"The payload of {which} must also satisfy this JSON Schema, beside its text:"
        yield to_line(output.schema)
    if uses_wire_form and (wanted or output):
        yield "(Fields that have no place of their own go into data_json.)"


def _which(conditions: Sequence[Mapping[str, Any]]) -> str:
    if not conditions:
        return f"entries of kind {' and '.join(CHECKED_KINDS)}"
    return f"entries for which one of these holds, {to_line([*conditions])},"
