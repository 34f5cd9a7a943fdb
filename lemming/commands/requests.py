"""`lemming requests`, `lemming answer` and `lemming cancel`: list, answer and cancel requests."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemming.commands.command_context import (
    AsPerson,
    CommandContext,
    RequestId,
    argument,
    join_text_argument,
    option,
    with_parameters_of,
)
from lemming.commands.terminal import (
    can_ask,
    format_count,
    one_line,
    print_columns,
    print_data,
    print_notice,
    print_warning,
    style_text,
    to_text,
)
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath
from lemming.obligations.answer_fields import (
    describe_field,
    get_answer_schema,
    get_properties,
    parse_answer,
    parse_field,
)
from lemming.obligations.org_requests import OrgRequests, find_request, load_requests
from lemming.obligations.request_costs import RequestCosts, compute_request_costs
from lemming.obligations.request_entries import choose_answerer, describe_fields, write_answer, write_cancel
from lemming.obligations.request_json import count_goal_turns
from lemming.obligations.request_view import RequestView
from lemming.obligations.waiting_items import describe_deadline
from lemming.obligations.write_decisions import decide, find_pending_request
from lemming.queries.screens.requests_screen import REQUESTS, describe_cost, describe_state, make_request_row
from lemming.queries.screens.screen import ScreenResult

_TEXT_WIDTH = 70


@with_parameters_of(REQUESTS)
def requests(
    context: CommandContext,
    reference: Annotated[str | None, argument("ID", "Show one request: its id, or a prefix of it.")] = None,
    **values: Any,
) -> None:
    """List requests with their assignee, state and cost.

    A request is an entry of kind request with a target; docs/requests.md explains the outcomes. With an ID,
    the output shows one request in full: handoffs, answers and sub-requests.

    \b
    Examples:
      lemming requests --open
      lemming requests --held-by editor -n 5
      lemming requests 3fa9c1
      lemming requests --json | jq 'select(.end == "expired") | .id'
    """
    if reference is None:
        context.print_screen(REQUESTS, REQUESTS.load(context.org, values))
        return
    base = context.org
    org_requests = load_requests(base)
    levels = list(org_requests.requests.iter_tree(find_request(org_requests.requests, reference)))
    costs = compute_request_costs(base, [request for _, request in levels])
    rows = [make_request_row(base, request, org_requests, costs, depth) for depth, request in levels]
    if context.print_as_json("request", REQUESTS.to_json(rows[0])):
        return
    _print_request(base, org_requests, levels[0][1], costs)
    if rows[1:]:
        print_data()
        context.print_screen(REQUESTS, ScreenResult(rows[1:]))


def _print_request(base: OrgPath, org_requests: OrgRequests, request: RequestView, costs: RequestCosts) -> None:
    requests = org_requests.requests
    title = f"{request.asker} asks {' and '.join(request.targets)}: {request.text or '(no text)'}"
    print_data(style_text(title, "bold"))
    rows = [["id", f"{request.id} ({request.entry.file})"], ["asked", f"in tick {request.tick}"]]
    if request.is_open:
        age = format_count(request.age_ticks(requests.tick), "tick")
        state = describe_state(request, org_requests)
        rows.append(["state", f"{state} for {age}; {describe_deadline(request, requests.tick)}"])
        rows += [["held by", f"{share.assignee} since tick {share.since}"] for share in request.open_assignments]
    else:
        closer = f" by {request.closed_by.agent}" if request.closed_by else ""
        rows.append(["state", f"{request.end}{closer} in tick {request.end_tick}"])
    if request.not_before:
        rows.append(["not before", request.not_before])
    if request.conversation:
        rows.append(["conversation", request.conversation])
    if request.parent:
        parent = requests.by_identity[request.parent]
        rows.append(["asked for", f"{parent.id}: {one_line(parent.text, _TEXT_WIDTH)}"])
    rows += [["delegated", f"in tick {hop.tick}: {hop.by} to {hop.to}"] for hop in request.handoffs]
    if goal := count_goal_turns(base, request):
        state = {None: "not reached so far", True: "reached", False: "not reached"}[goal["reached"]]
        rows.append(["until", f"{state}, turn {goal['turns']} of {goal['max_turns']}"])
    rows.append(["cost", describe_cost(costs.get_cost(request)) or "none so far"])
    if request.children:
        rows.append(["total cost", describe_cost(costs.get_tree_cost(request, requests)) or "none so far"])
    for share in request.assignments:
        if answer := share.answer:
            text = to_text(parse_answer(answer.payload, request.schema))
            rows.append([f"{share.end}", f"by {answer.agent} in tick {answer.tick}: {text}"])
    if request.end == "expired" and request.has_default:
        rows.append(["default", to_text(request.default_answer)])
    print_columns(rows)


def cancel(
    context: CommandContext,
    reference: RequestId,
    text: Annotated[list[str] | None, argument("WHY", "Reason that the assignee is told.")] = None,
    person: AsPerson = None,
) -> None:
    """Cancel a request and its sub-requests. Prints the path of the new entry.

    A person may cancel their own requests, and requests held by agents that may read this person.

    \b
    Example:
      lemming cancel 3fa9c1 "it was answered on the phone"
    """
    entry = write_cancel(context.org, reference, person=person, text=" ".join(text or ()))
    context.print_entry(entry)
    print_notice("cancelled; a running turn may still answer", style="dim")


def answer(
    context: CommandContext,
    reference: RequestId,
    text: Annotated[list[str] | None, argument("TEXT", 'The answer; "-" reads standard input.')] = None,
    field: Annotated[list[str] | None, option("--field NAME=VALUE", "Set one field of the answer. Repeatable.")] = None,
    refuse: Annotated[bool, option("--refuse", "Decline to answer; TEXT may give the reason.")] = False,
    person: AsPerson = None,
) -> None:
    """Answer a question that waits for a person. Prints the path of the new entry.

    For a call that waits for approval, TEXT becomes the result and the call is not made; --refuse denies the
    call. Some requests need fields: a terminal prompts for each field, otherwise give each with --field. An
    invalid field is reported, and nothing is written.

    \b
    Examples:
      lemming answer 3fa9c1 "Yes, but shorter."
      lemming answer 3fa9c1 --field ok=yes --field "reason=it is true"
      lemming answer 3fa9c1 --refuse "ask the editor"
    """
    base = context.org
    org_requests, request, call = find_pending_request(base, reference)
    if call is not None and not field:
        entry = decide(base, reference, "deny" if refuse else "answer", person=person, text=join_text_argument(text))
        context.print_entry(entry)
        return
    author = choose_answerer(org_requests, request, person)  # before anything is asked
    answer_text = join_text_argument(text)
    fields: dict[str, Any] = {}
    for typed_field in field or ():
        name, equals, value = typed_field.partition("=")
        if not equals:
            raise UsageError(f'--field "{typed_field}" has no value', hint="write --field NAME=VALUE")
        fields[name] = parse_field(get_answer_schema(request), name, value)
    if not (answer_text or fields or refuse):
        answer_text, fields = _prompt_for_answer(request)
    entry = write_answer(base, request.identity, person=author, text=answer_text, fields=fields, refuse=refuse)
    context.print_entry(entry)


def _prompt_for_answer(request: RequestView) -> tuple[str, dict[str, Any]]:
    """Prompt on the terminal for an answer: each field, or a text."""
    if not can_ask():
        raise UsageError("the answer is empty", hint=describe_fields(request))
    print_warning(f"{request.asker} asks: {request.text}", style="bold")
    schema = get_answer_schema(request)
    if not (properties := get_properties(schema)):
        return typer.prompt("Answer", err=True), {}
    fields = {}
    required = (request.schema or {}).get("required", ())
    for name in properties:
        prompt, default = f"{name} ({describe_field(schema, name)})", None if name in required else ""
        while name not in fields:
            typed = typer.prompt(prompt, default=default, show_default=False, err=True)
            if typed == "" and name not in required:
                break
            try:
                fields[name] = parse_field(schema, name, typed)
            except UsageError as error:
                print_warning(str(error))
    return "", fields
