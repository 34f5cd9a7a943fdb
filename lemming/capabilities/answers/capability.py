"""What answers do in a turn: its entries are held to the schemas of the resume, and of who asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lemming.capabilities.answers.settings import OUTPUT, output_of
from lemming.capabilities.answers.validation import PayloadCheck, forms_of, payload_rules, schemas_of
from lemming.capabilities.conditions.slips import slips_in
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.json_schema.violations import flaw_of
from lemming.kernel.files.fields import Json
from lemming.kernel.mail.task import Task
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.resume import Agent
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.reply_schemas import Form
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing, TurnPart
from lemming.kernel.turn.seen import Seen


class Answers(Capability):
    """Forms of answers, which the key `output` of a resume asks for, or `schema` of a request."""

    name = "answers"

    def prepare(self, moment: Moment) -> Preparation:
        """Return what the turn's entries must be."""
        return AnswersPreparation(moment)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn whose entries are held to a schema."""
        return AnswersPart(self.name, draft, given)

    def wrong_with(self, agent: Agent | None, known: object) -> Iterator[tuple[str, str, str]]:
        """Yield the keywords of its schema that would check nothing."""
        output = output_of(agent) if agent else None
        if output and not flaw_of(output.schema)[0]:
            yield from slips_in(output.schema, f"/{OUTPUT}/schema")

    def problems(self, agent: Agent, config: Config) -> Iterator[Problem]:
        """Yield what is wrong with its schema, and what of it a model is not told."""
        if output := output_of(agent):
            from lemming.capabilities.answers.problems import problems_of_output

            yield from problems_of_output(agent, output, config)


class AnswersPreparation(Preparation):
    """Looks up what the agent's resume, and whoever asked, have its entries be."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self._schemas: dict[str, Json] = {}

    def forms(self, task: Task | None, asked: Sequence[OutboxEntry]) -> Sequence[Form]:
        """Return the forms of the entries; take note of what the requests ask for that are shown."""
        self._schemas = schemas_of([task.request] if task else asked)
        wanted = self._schemas.get(task.begun.request) if task else None
        return forms_of(self.moment.agent, wanted)

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Say what the payloads must be: to a model in words, to a program as the resume says it."""
        rules = payload_rules(
            seen.agent,
            self._schemas.values(),
            is_for_one=seen.task is not None,
            uses_wire_form=seen.uses_wire_form,
        )
        seen.payload_rules = " ".join(rules)
        if output := output_of(seen.agent):
            seen.outside = {**seen.outside, OUTPUT: asdict(output)}

    def given(self) -> Json:
        """Return the schemas of the answers, by the identity of the requests that the turn is shown."""
        return {"schemas": self._schemas} if self._schemas else {}


class AnswersPart(TurnPart):
    """The payloads of one turn's entries."""

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        super().__init__(name, draft, given)
        self._check = PayloadCheck(draft.inputs, given.get("schemas", {}))

    def fits(self, entries: list[NewEntry]) -> list[NewEntry | list[str]]:
        """Return each entry as it is kept, or what is wrong with it; note what is wrong with the answer."""
        if self.draft.may_rest:
            return [*entries]
        checked = self._check.fit(entries)
        self.draft.misfit = self._check.misfit
        return checked
