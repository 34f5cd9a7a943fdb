"""`lemming answer`: a person answers what was asked of them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from lemming.base.errors import UsageError
from lemming.capabilities.requests.entries import answerer, fields_wanted, write_answer
from lemming.capabilities.requests.fields import properties_of, read_field, schema_for, words_of
from lemming.capabilities.requests.now import RequestsNow, find_request, requests_now
from lemming.capabilities.requests.view import RequestView
from lemming.commands.options import AsJson, AsPerson, RequestId, argument, option
from lemming.commands.org import find_org
from lemming.commands.screen import show, show_json, tell
from lemming.commands.typed import text_typed
from lemming.messages import OutboxEntry
from lemming.org.organisation import OrgPath
from lemming.plugins.capabilities import missing_for_command


def answer(
    ctx: typer.Context,
    reference: RequestId,
    text: Annotated[
        list[str] | None, argument("TEXT", 'What to answer; "-" reads it from standard input.')
    ] = None,
    field: Annotated[
        list[str] | None, option("--field NAME=VALUE", "A field of the answer. May be repeated.")
    ] = None,
    refuse: Annotated[bool, option("--refuse", "Say no to answering it; TEXT may say why.")] = False,
    person: AsPerson = None,
    as_json: AsJson = False,
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
    base = find_org(ctx)
    now, request, decides = _meant(base, reference)
    if decides and not field:
        from lemming.capabilities.approvals.deciding import decide

        entry = decide(base, reference, "deny" if refuse else "answer", person=person, text=text_typed(text))
        _tell(entry, as_json)
        return
    author = answerer(now, request, person)  # before anything is asked
    said = text_typed(text)
    fields = dict(_parsed(request, each) for each in field or ())
    if not (said or fields or refuse):
        said, fields = _asked_for(request)
    entry = write_answer(base, request.identity, person=author, text=said, fields=fields, refuse=refuse)
    _tell(entry, as_json)


def _meant(base: OrgPath, reference: str) -> tuple[RequestsNow, RequestView, bool]:
    """Return the request that is meant, and whether a call waits there for what is answered."""
    if missing_for_command("approve"):
        now = requests_now(base)
        return now, find_request(now.requests, reference), False
    from lemming.capabilities.approvals.deciding import find_waiting

    now, request, call = find_waiting(base, reference)
    return now, request, call is not None


def _tell(entry: OutboxEntry, as_json: bool) -> None:
    show_json("entry", entry.as_json()) if as_json else show(entry.file)


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
