"""The person inbox: one list of pending requests for every screen, built from facts, not from agents' claims."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.wording import format_count, shorten_line
from lemming.obligations.org_requests import OrgRequests, load_requests, require_agents
from lemming.obligations.pending_actions import describe_call
from lemming.obligations.request_view import Assignment, RequestView

TEXT_CHARS, CALL_CHARS, DEFAULT_CHARS = 80, 4000, 60
FIELDS_NAMED = 8
_FIELD = re.compile(r"\w[\w.-]{0,39}")  # the asker chose the names: none may read like our own words


@dataclass(frozen=True, kw_only=True)
class PersonInboxItem:
    """A request awaiting a person's answer. `deadline` is the last tick for the answer, or None.

    `call`: the exact tool call, if the request asks for approval of a call.
    """

    id: str
    identity: str
    person: str
    asker: str
    text: str
    needs: str
    tick: int
    age_ticks: int
    deadline: int | None
    at_deadline: str
    call: dict[str, Any] | None = None

    @property
    def summary_line(self) -> str:
        """The summary: requirement, person, age and consequence of the deadline."""
        text = f': "{shorten_line(self.text, TEXT_CHARS)}"' if self.text else ""
        text = f": {shorten_line(self.text, CALL_CHARS)}" if self.call else text
        age = f"asked {format_count(self.age_ticks, 'tick')} ago" if self.age_ticks else "asked just now"
        if self.call:
            return f"{self.asker} asks {self.person} for {self.needs}, {age}; {self.at_deadline}{text}"
        return f"{self.person} owes {self.asker} {self.needs}, {age}; {self.at_deadline}{text}"


def list_person_inbox(base_path: str | os.PathLike[str]) -> list[PersonInboxItem]:
    """Return the requests awaiting a person, the oldest first.

    Requests unreadable for their assignee are left out; `lemming validate` reports the missing permission.
    Raises `NotAnOrg` for a folder without `agents/`.
    """
    org = Organisation.from_path(base_path)
    survey = survey_agents(org)
    require_agents(org, survey)
    if not survey.find_people(load_config(org)):  # then no outbox need be read
        return []
    return build_person_inbox(load_requests(org), org)


def summarize_inbox(items: Sequence[PersonInboxItem]) -> str:
    """Return a summary of the person inbox, empty for an empty inbox."""
    if not items:
        return ""
    people = ", ".join(sorted({item.person for item in items}))
    verb = "waits" if len(items) == 1 else "wait"
    return f"{format_count(len(items), 'request')} {verb} for {people}; `lemming waiting` lists them"


def build_person_inbox(org_requests: OrgRequests, org: Organisation) -> list[PersonInboxItem]:
    """Return the person inbox from requests loaded earlier."""
    from lemming.obligations.ledger_calls import find_pending_approvals  # few organisations have a person

    approvals = find_pending_approvals(org, org_requests.requests.unresolved_requests)
    return [
        _make_item(request, assignment, org_requests.requests.tick, approvals.get(request.identity))
        for request in org_requests.requests.unresolved_requests
        if not is_scheduled_later(request)
        for assignment in request.open_assignments
        if assignment.assignee in org_requests.people and org_requests.may_read(assignment.assignee, request.asker)
    ]


def is_scheduled_later(request: RequestView) -> bool:
    """Return True if a request is still hidden by a later start time."""
    if not request.not_before:
        return False
    try:
        return parse_timestamp(request.not_before) > SystemClock().now()
    except ValueError:
        return False


def _make_item(request: RequestView, assignment: Assignment, tick: int, call: dict[str, Any] | None) -> PersonInboxItem:
    return PersonInboxItem(
        id=request.id,
        identity=request.identity,
        person=assignment.assignee,
        asker=request.asker,
        text=request.text if call is None else describe_call(call),
        needs=describe_requirements(request) if call is None else f"approval of call {call['id']}",
        tick=request.tick,
        age_ticks=request.age_ticks(tick),
        deadline=request.deadline,
        at_deadline=describe_deadline(request, tick),
        call=call,
    )


def describe_requirements(request: RequestView) -> str:
    """Return a description of the fields required in an answer."""
    properties = request.schema.get("properties") if request.schema else None
    if not isinstance(properties, dict) or not properties:
        return "an answer"
    if len(properties) <= FIELDS_NAMED and all(map(_FIELD.fullmatch, map(str, properties))):
        return f"an answer with {', '.join(map(str, properties))}"
    return f"an answer of {format_count(len(properties), 'field')}"


def describe_deadline(request: RequestView, tick: int) -> str:
    """Return a description of the expiry of a request. `tick` is the next tick to run."""
    if request.deadline is None and not request.not_after:
        return "it waits until it is answered"
    remaining_ticks = 0 if request.deadline is None else request.deadline - tick
    ticks_text = "with this tick" if remaining_ticks <= 0 else f"in {format_count(remaining_ticks + 1, 'tick')}"
    times = [ticks_text] if request.deadline is not None else []
    deadline_text = " or ".join([*times, f"at {request.not_after}"] if request.not_after else times)
    if request.has_default:
        default = shorten_line(to_line(request.default_answer), DEFAULT_CHARS)
        return f"it expires {deadline_text}, and {default} is taken for its answer"
    return f"it expires {deadline_text}, without an answer"
