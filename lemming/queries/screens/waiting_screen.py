"""The screen of items that wait for a person."""

from __future__ import annotations

from typing import Annotated

from lemming.kernel.agents import require_agent_folder
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.organisation import OrgPath
from lemming.obligations.waiting_items import PersonInboxItem, list_person_inbox
from lemming.queries.screens.screen import OMITTED, Column, Parameter, Screen
from lemming.queries.sentences import describe_call


def list_waiting(
    org: OrgPath,
    person: Annotated[str | None, Parameter("--as PERSON", "Show items for this person only.")] = None,
) -> list[PersonInboxItem]:
    """List calls, questions and plans that wait for a person, oldest first."""
    if person:
        require_agent_folder(org, person)
    return [item for item in list_person_inbox(org) if not person or item.person == person]


def _describe_item(item: PersonInboxItem) -> str:
    return f"wants to {describe_call(item.call['tool'], item.call['args'])}" if item.call else item.text


WAITING = Screen(
    "waiting",
    kind="waiting",
    title="Waiting items",
    tool="waiting",
    query=list_waiting,
    row=PersonInboxItem,
    is_table=False,
    empty="nothing waits for a person",
    columns=(
        Column("id", "ID", "Id of the request."),
        Column("identity", about="Author and id of the request."),
        Column("person", "PERSON", "Person it waits for.", shown="agent"),
        Column("asker", "FROM", "Agent that asks.", shown="agent"),
        Column("needs", "NEEDS", "Required answer."),
        Column("text", "TEXT", "Text of the request.", text=_describe_item),
        Column("tick", about="Tick of the request."),
        Column("age_ticks", "AGE", "Ticks since then."),
        Column("deadline", about="Last tick for the answer, or null."),
        Column("at_deadline", "DEADLINE", "Effect of the deadline."),
        Column(
            "call", about="The call that waits for approval.", type=Json, is_optional=True,
            value=lambda item: OMITTED if item.call is None else item.call,
        ),
        Column("line", about="All of it in a sentence.", value=lambda item: item.summary_line),
    ),
)  # fmt: skip
