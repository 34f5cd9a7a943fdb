"""Answers as a capability: a turn's entries must satisfy the schemas of the resume and of requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lemming.capabilities.output_schemas.answers_settings import OUTPUT, get_output_settings
from lemming.capabilities.output_schemas.payload_validation import (
    PayloadValidator,
    build_payload_schemas,
    collect_answer_schemas,
    payload_instructions,
)
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.firing_plan import has_model_turns
from lemming.kernel.turn.check_subjects import AgentCheck, CheckSubject, ReferenceCheck, to_problems
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.reply_schemas import PayloadSchema
from lemming.kernel.turn.turn_effects import Allowed, CheckEntries, Interception
from lemming.kernel.turn.turn_hooks import Capability, ContextProvider, TurnContext, VisibleContext
from lemming.kernel.turn.turn_view import TurnView
from lemming.libraries.conditions.schema_typos import find_schema_typos


class AnswersCapability(Capability):
    """Structured answers, requested by the key `output` of a resume or `schema` of a request."""

    name = "answers"

    def context_provider(self, context: TurnContext) -> ContextProvider:
        """Return the context provider with the schemas of the turn's entries."""
        return OutputContextProvider(context)

    handles = (CheckEntries,)

    def intercept(self, effect: CheckEntries, turn: TurnView) -> Interception:
        """Return each entry as written, or the problems of the payload. Records the problem of the answer."""
        if turn.can_skip_response:
            return None
        validator = turn.get_cache(_make_validator)
        validated = validator.validate_entries([*effect.entries])
        turn.report_answer_violation(validator.violation)
        return Allowed(effect, validated)

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield keywords of the schema that would check nothing, problems of the schema, and parts that no model
        sees.
        """
        if not isinstance(subject, ReferenceCheck | AgentCheck) or subject.agent is None:
            return
        agent, output = subject.agent, get_output_settings(subject.agent)
        if output is None:
            return
        if isinstance(subject, ReferenceCheck):
            if not find_schema_flaw(output.schema)[0]:
                yield from to_problems(find_schema_typos(output.schema, f"/{OUTPUT}/schema"))
        elif has_model_turns(agent, subject.config):
            from lemming.capabilities.output_schemas.answers_validation import validate_output

            yield from validate_output(agent, output, subject.config)


class OutputContextProvider(ContextProvider):
    """Finds the schemas of the agent's resume and of the requests."""

    def __init__(self, context: TurnContext) -> None:
        super().__init__(context)
        self._schemas: dict[str, Json] = {}

    def payload_schemas(self, task: Task | None, requests: Sequence[OutboxEntry]) -> Sequence[PayloadSchema]:
        """Return the schemas of the entries, and remember the schemas of the shown requests."""
        self._schemas = collect_answer_schemas([task.request] if task else requests)
        answer_schema = self._schemas.get(task.open_request.request) if task else None
        return build_payload_schemas(self.context.agent, answer_schema)

    def annotate_prompt(self, prompt_input: PromptInput, visible: VisibleContext) -> None:
        """Add the payload rules to the prompt: as text for a model, as settings for a program."""
        rules = payload_instructions(
            prompt_input.agent,
            self._schemas.values(),
            is_for_one=prompt_input.task is not None,
            uses_wire_form=prompt_input.uses_wire_form,
        )
        prompt_input.payload_rules = " ".join(rules)
        if output := get_output_settings(prompt_input.agent):
            prompt_input.extra_values = {**prompt_input.extra_values, OUTPUT: asdict(output)}

    def snapshot(self) -> Json:
        """Return the answer schemas by identity of the turn's requests."""
        return {"schemas": self._schemas} if self._schemas else {}


def _make_validator(turn: TurnView) -> PayloadValidator:
    return PayloadValidator(turn.inputs, turn.snapshot.get("schemas", {}))
