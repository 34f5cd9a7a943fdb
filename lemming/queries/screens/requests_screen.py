"""The screens of requests: who asked whom, the state, the cost, and what waits for a person."""

from __future__ import annotations

from typing import Annotated

from lemming.kernel.agents import require_agent_folder
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.wording import format_count, format_usd
from lemming.obligations.org_requests import OrgRequests, find_request, find_unreachable_assignees, load_requests
from lemming.obligations.request_costs import RequestCost, RequestCosts, compute_request_costs
from lemming.obligations.request_json import RequestJson, request_to_json
from lemming.obligations.request_view import RequestView
from lemming.obligations.waiting_items import PersonInboxItem, is_scheduled_later, list_person_inbox
from lemming.queries.screens.screen import OMITTED, Column, Note, Parameter, Screen, ScreenResult
from lemming.queries.sentences import describe_call


def list_requests(
    org: OrgPath,
    is_open: Annotated[bool, Parameter("--open", "Show open requests only.")] = False,
    of: Annotated[str | None, Parameter("--from AGENT", "Show requests made by this agent only.")] = None,
    to: Annotated[
        str | None,
        Parameter("--held-by AGENT", "Show requests assigned to this agent only, now or earlier."),
    ] = None,
    tree: Annotated[str | None, Parameter("--tree ID", "Show the whole tree of requests that ID belongs to.")] = None,
    number: Annotated[int, Parameter("-n --limit N", "Show the newest N requests.", minimum=1)] = 30,
) -> ScreenResult:
    """Return the newest matching requests, oldest first, or a tree of requests."""
    for name in filter(None, (of, to)):
        require_agent_folder(org, name)
    org_requests, omitted = load_requests(org), 0
    if tree:
        requests = org_requests.requests
        levels = list(requests.iter_tree(requests.get_root(find_request(requests, tree))))
    else:
        matches = [
            request
            for request in org_requests.requests
            if (request.is_open or not is_open)
            and (not of or of == request.asker)
            and (not to or request.was_assignee(to))
        ]
        levels = [(0, request) for request in matches[-number:]]
        omitted = len(matches) - len(levels)
    costs = compute_request_costs(org, [request for _, request in levels])
    rows = [make_request_row(org, request, org_requests, costs, depth) for depth, request in levels]
    return ScreenResult(rows, [Note(f"{omitted} older ones; raise -n to see them")] if omitted else [])


def make_request_row(
    org: OrgPath, request: RequestView, org_requests: OrgRequests, costs: RequestCosts, depth: int
) -> Json:
    """Return the JSON values of a request, with the cells of its row. `depth`: level below the root of its tree."""
    since = min((share.since for share in request.open_assignments), default=request.end_tick)
    cost = describe_cost(costs.get_cost(request))
    tree_cost = describe_cost(costs.get_tree_cost(request, org_requests.requests)) if request.children else ""
    if tree_cost not in ("", cost):
        cost = f"total {tree_cost}, own {cost or 'none'}"
    last_assignees = dict.fromkeys(assignment.assignee for assignment in request.assignments)
    route = f"{request.asker} > {' '.join(request.assignees or last_assignees)}"
    cells = {"state": describe_state(request, org_requests), "since": str(since), "route": route}
    return {**request_to_json(org, request, org_requests, costs), **cells, "cost_text": cost, "indent": "  " * depth}


def describe_state(request: RequestView, org_requests: OrgRequests) -> str:
    """Return the state of a request in words."""
    if request.end is not None:
        return request.end
    if unreached := find_unreachable_assignees(request, org_requests):
        return f"cannot reach {' '.join(unreached)}"
    return "scheduled" if is_scheduled_later(request) else "open"


def describe_cost(cost: RequestCost) -> str:
    """Return the cost of a request in words, or an empty text before its first turn."""
    if not cost.turns:
        return ""
    dollars = format_usd(cost.cost_usd, calls=cost.calls)
    return f"{format_count(cost.calls, 'call')}, {format_count(cost.credits, 'credit')}, {dollars}"


REQUESTS = Screen(
    "requests",
    kind="request",
    title="Requests",
    tool="requests",
    query=list_requests,
    row=RequestJson,
    empty="no requests",
    columns=(
        Column("id", "ID", "Id of the request."),
        Column("", "STATE", "open, scheduled, or its end.", text=lambda row: row["state"]),
        Column("", "SINCE", "Tick since which it is held, or of its end.", text=lambda row: row["since"]),
        Column("", "FROM > HELD BY", "Who asked, and who holds it.", text=lambda row: row["indent"] + row["route"]),
        Column("file", about="File of the entry."),
        Column("asker", about="Agent or person that asked."),
        Column("targets", about="Agents and persons asked."),
        Column("holders", about="Agents and persons that hold it now."),
        Column("out_of_reach", about="Assignees that cannot see it."),
        Column("tick", about="Tick of the entry."),
        Column("age_ticks", about="Ticks since then."),
        Column("cost", "COST", "Cost of its turns.", text=lambda row: row["cost_text"]),
        Column("cost_with_children", about="The same with all sub-requests."),
        Column("text", "TEXT", "Text of the request.", width=70),
        Column("conversation", about="Name of the conversation, or empty."),
        Column("not_before", about="Time before which it stays hidden, or empty."),
        Column("parent", about="Request that it was made for, or null."),
        Column("children", about="Sub-requests."),
        Column("deadline", about="Last tick for the answer, or null."),
        Column("not_after", about="Last time for the answer, or empty."),
        Column("end", about="Its end, or null while it is open."),
        Column("end_tick", about="Tick of its end, or null."),
        Column("closed_by", about="File of the entry that closed it, or null."),
        Column("held_since", about="Tick since which each assignee has it."),
        Column("hops", about="Handoffs: tick, from whom, to whom, file."),
        Column("answers", about="Answers: agent, tick, file, answer."),
        Column("default", about="Answer that was taken at the deadline, or null."),
        Column("until", about="Goal of the request with its turns, or null."),
    ),
)  # fmt: skip


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
        Column("line", about="All of it in a sentence.", path="summary_line"),
    ),
)  # fmt: skip
