"""`lemming requests`, `lemming answer` and `lemming cancel`: who waits for what, and how that ends."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from lemming.capabilities.requests.costs import RequestCost, RequestCosts, costs_of
from lemming.capabilities.requests.entries import answerer, fields_wanted, write_answer, write_cancel
from lemming.capabilities.requests.fields import properties_of, read_field, schema_for, words_of
from lemming.capabilities.requests.now import (
    RequestsNow,
    find_request,
    out_of_reach,
    request_shown,
    requests_now,
)
from lemming.capabilities.requests.view import RequestView
from lemming.capabilities.requests.waiting import at_deadline, is_to_come
from lemming.commands.options import (
    AsPerson,
    Here,
    RequestId,
    argument,
    option,
    require_folder,
    text_typed,
)
from lemming.commands.screen import (
    as_text,
    counted,
    in_dollars,
    one_line,
    painted,
    show,
    show_columns,
    show_json,
    show_table,
    tell,
    told_as_it_goes,
)
from lemming.commands.waiting import meant
from lemming.kernel.base.errors import UsageError
from lemming.kernel.mail.answers import answer_in

TEXT_CHARS = 70


def requests(
    here: Here,
    reference: Annotated[str | None, argument("ID", "One request: its id, or the beginning of it.")] = None,
    is_open: Annotated[bool, option("--open", "Only those that are open.")] = False,
    of: Annotated[str | None, option("--of ASKER", "Only those that ASKER asked.", of_agents=True)] = None,
    to: Annotated[
        str | None, option("--to HOLDER", "Only those that HOLDER is or was to answer.", of_agents=True)
    ] = None,
    tree: Annotated[str | None, option("--tree ID", "A request with all that it is part of.")] = None,
    number: Annotated[int, option("-n --limit N", "How many at most: the newest.", min=1)] = 30,
) -> None:
    """Show requests: who asked, who holds it since which tick, how it ended, what it has cost.

    A request is an entry of kind request with a target; docs/requests.md says what ends it. With an ID: all
    of one request, with every time it was handed on, its answers, and what was asked for it.

    \b
    Examples:
      lemming requests --open
      lemming requests --to editor -n 5
      lemming requests 3fa9c1
      lemming requests --json | jq 'select(.end == "expired") | .id'
    """
    base = here.org
    for name in filter(None, (of, to)):
        require_folder(base, name)
    now = requests_now(base)
    if reference is not None or tree is not None:
        one = find_request(now.requests, reference or tree or "")
        root = now.requests.root_of(one) if reference is None else one
        levels = now.requests.tree(root)
    else:
        kept = [
            it
            for it in now.requests
            if (it.is_open or not is_open) and of in (None, it.asker) and (to is None or it.was_held_by(to))
        ]
        levels = [(0, it) for it in kept[-number:]]
    with told_as_it_goes("adding up") as progress:
        costs = costs_of(base, [request for _, request in levels], progress)
    if here.as_json:
        for _, request in levels[:1] if reference else levels:
            show_json("request", request_shown(request, now, costs))
    elif reference is not None:
        _show_one(now, levels[0][1], costs)
        _show_list(now, levels[1:], costs)
    elif levels:
        _show_list(now, levels, costs)
        if tree is None and len(kept) > len(levels):
            tell(f"{len(kept) - len(levels)} older ones with a larger -n", style="dim")
    else:
        tell("no requests" if len(now.requests) == 0 else "no such requests")


def _show_list(now: RequestsNow, levels: list[tuple[int, RequestView]], costs: RequestCosts) -> None:
    if not levels:
        return
    rows = []
    for depth, request in levels:
        since = min((share.since for share in request.open_shares), default=request.end_tick)
        whom = " ".join(request.holders) or " ".join(request.targets)
        who = f"{'  ' * depth}{request.asker} > {whom}"
        cost = _in_words(costs.of(request))
        if request.children and (in_all := _in_words(costs.of_tree(request, now.requests))):
            cost = f"in all {in_all}; {cost or 'nothing'} itself"
        rows.append(
            [request.id, _state(request, now), str(since), who, cost, one_line(request.text, TEXT_CHARS)]
        )
    show_table(["id", "state", "since", "who asks whom", "cost", "text"], rows)


def _state(request: RequestView, now: RequestsNow) -> str:
    if request.end is not None:
        return request.end
    if unreached := out_of_reach(request, now):
        return f"cannot reach {' '.join(unreached)}"
    return "waits for its time" if is_to_come(request) else "open"


def _show_one(now: RequestsNow, request: RequestView, costs: RequestCosts) -> None:
    requests = now.requests
    show(
        painted(
            f"{request.asker} asks {' and '.join(request.targets)}: {request.text or '(no text)'}", "bold"
        )
    )
    rows = [["id", f"{request.id} ({request.entry.file})"], ["asked", f"in tick {request.tick}"]]
    if request.is_open:
        age = counted(request.age_ticks(requests.tick), "tick")
        rows.append(["state", f"{_state(request, now)} for {age}; {at_deadline(request, requests.tick)}"])
        rows += [["held by", f"{share.holder} since tick {share.since}"] for share in request.open_shares]
    else:
        by = f" by {request.closed_by.agent}" if request.closed_by else ""
        rows.append(["state", f"{request.end}{by} in tick {request.end_tick}"])
    if request.not_before:
        rows.append(["not before", request.not_before])
    if request.conversation:
        rows.append(["talk", request.conversation])
    if request.parent:
        parent = requests.by_identity[request.parent]
        rows.append(["asked for", f"{parent.id}: {one_line(parent.text, TEXT_CHARS)}"])
    rows += [["handed on", f"in tick {hop.tick}: {hop.by} to {hop.to}"] for hop in request.hops]
    rows.append(["cost", _in_words(costs.of(request)) or "nothing so far"])
    if request.children:
        rows.append(["in all", _in_words(costs.of_tree(request, requests)) or "nothing so far"])
    for share in request.shares:
        if answer := share.answer:
            text = as_text(answer_in(answer.payload, request.schema))
            rows.append([f"{share.end}", f"by {answer.agent} in tick {answer.tick}: {text}"])
    if request.end == "expired" and request.has_default:
        rows.append(["default", as_text(request.default)])
    show_columns(rows)
    if request.children:
        show()


def _in_words(cost: RequestCost) -> str:
    if not cost.turns:
        return ""
    dollars = in_dollars(cost.cost_usd, calls=cost.calls)
    return f"{counted(cost.calls, 'call')}, {counted(cost.credits, 'credit')}, {dollars}"


def cancel(
    here: Here,
    reference: RequestId,
    text: Annotated[list[str] | None, argument("WHY", "Why, for whoever holds it.")] = None,
    person: AsPerson = None,
) -> None:
    """Cancel a request: whoever holds it need not answer any more, and what was asked for it ends with it.

    A person may cancel what they asked, and what somebody holds who may read them. Prints the path of the
    entry that says so.

    \b
    Example:
      lemming cancel 3fa9c1 "it was answered on the phone"
    """
    entry = write_cancel(here.org, reference, person=person, text=" ".join(text or ()))
    if here.shows("entry", entry.as_json()):
        return
    show(entry.file)
    tell("cancelled; a turn that is under way for it may still answer", style="dim")


def answer(
    here: Here,
    reference: RequestId,
    text: Annotated[
        list[str] | None, argument("TEXT", 'What to answer; "-" reads it from standard input.')
    ] = None,
    field: Annotated[
        list[str] | None, option("--field NAME=VALUE", "A field of the answer. May be repeated.")
    ] = None,
    refuse: Annotated[bool, option("--refuse", "Say no to answering it; TEXT may say why.")] = False,
    person: AsPerson = None,
) -> None:
    """Answer a request that waits for a person. Prints the path of the entry.

    Where a call waits for approval, TEXT becomes its result and the call is not made; --refuse denies it.
    Some requests ask for fields: on a terminal they are asked one by one, else give each with --field. A
    field that is wrong is named, and nothing is written.

    \b
    Examples:
      lemming answer 3fa9c1 "Yes, but shorter."
      lemming answer 3fa9c1 --field ok=yes --field "reason=it is true"
      lemming answer 3fa9c1 --refuse "ask the editor"
    """
    base = here.org
    now, request, call = meant(base, reference)
    if call is not None and not field:
        from lemming.capabilities.approvals.deciding import decide

        entry = decide(base, reference, "deny" if refuse else "answer", person=person, text=text_typed(text))
        here.shows_entry(entry)
        return
    author = answerer(now, request, person)  # before anything is asked
    said = text_typed(text)
    fields = dict(_parsed(request, each) for each in field or ())
    if not (said or fields or refuse):
        said, fields = _asked_for(request)
    entry = write_answer(base, request.identity, person=author, text=said, fields=fields, refuse=refuse)
    here.shows_entry(entry)


def _parsed(request: RequestView, given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not equals:
        raise UsageError(f'--field "{given}" has no value', hint="--field NAME=VALUE")
    return name, read_field(schema_for(request), name, value)


def _asked_for(request: RequestView) -> tuple[str, dict[str, Any]]:
    """Ask at the terminal for what an answer needs: its fields one by one, else a text."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nothing to answer with", hint=fields_wanted(request))
    tell(f"{request.asker} asks: {request.text}", style="bold")
    properties = properties_of(schema_for(request))
    if not properties:
        return typer.prompt("Answer", err=True), {}
    fields = {}
    required = (request.schema or {}).get("required", ())
    for name in properties:
        value = _field_asked_for(request, name, is_required=name in required)
        if value is not None:
            fields[name] = value
    return "", fields


def _field_asked_for(request: RequestView, name: str, *, is_required: bool) -> Any:
    about = words_of(schema_for(request), name)
    while True:
        default = None if is_required else ""
        typed = typer.prompt(f"{name} ({about})", default=default, show_default=False, err=True)
        if typed == "" and not is_required:
            return None
        try:
            return read_field(schema_for(request), name, typed)
        except UsageError as error:
            tell(str(error), style="yellow")
