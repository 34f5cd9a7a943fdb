"""`lemming ask`: ask the organisation something and get the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.base.errors import UsageError
from lemming.base.json_schema import flaw_of
from lemming.base.jsontext import DEFAULT_LIMIT_BYTES, JsonProblem, parse
from lemming.capabilities.requests.costs import costs_of
from lemming.capabilities.requests.now import facts_of, requests_now
from lemming.commands.options import (
    AgentName,
    AsJson,
    AsPerson,
    Quiet,
    Trust,
    argument,
    duration,
    option,
    ticks_or_time,
)
from lemming.commands.org import find_org, require_folder
from lemming.commands.question import agree_to_run, put, show_answer
from lemming.commands.screen import show_json
from lemming.commands.typed import text_typed

Conversation = Annotated[
    str, option("--conversation NAME", "Keep it together with what was asked under this name.")
]
Timeout = Annotated[
    float | None,
    option(
        "--timeout DURATION", "Wait no longer: 90 (seconds), 10m, 2h. Default: for ever.", parser=duration
    ),
]
Deadline = Annotated[
    Any,
    option(
        "--deadline TICKS|DURATION",
        "It expires so many ticks after this one, or after 30m, 2h.",
        parser=ticks_or_time,
    ),
]


def ask(
    ctx: typer.Context,
    agent: AgentName,
    text: Annotated[list[str], argument("TEXT", 'What to ask; "-" reads it from standard input.')],
    person: AsPerson = None,
    conversation: Conversation = "",
    timeout: Timeout = None,
    deadline: Deadline = None,
    schema: Annotated[
        Path | None, option("--schema FILE", "The JSON Schema that the answer must satisfy.")
    ] = None,
    budget: Annotated[
        str | None,
        option(
            "--budget AMOUNT", 'What it may cost, with all that is asked for it: credits, or "9000 tokens".'
        ),
    ] = None,
    trust: Trust = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Ask an agent something, as a person, and print the answer.

    Ticks are run until the answer is there; where an engine runs already, it does that. Who is at work is
    said on standard error. Ctrl-C leaves the request open, and says how to come back to it.

    Exit status: 0 answered; 1 it failed, was refused or cancelled, or expired; 9 no answer yet, the request
    stays open; 5 no model could be asked; 6 whoever holds it is out of credits.

    \b
    Examples:
      lemming ask editor "Which story leads today?"
      lemming ask editor --timeout 5m --conversation ferry "And tomorrow?"
      lemming ask editor --schema verdict.json --json "Is it true?" | jq .answer
    """
    base = find_org(ctx)
    require_folder(base, agent)
    said = " ".join(text)
    options: dict[str, Any] = {"schema": _schema_in(schema)} if schema else {}
    options["budget"] = _amount(budget)
    if not trust:
        agree_to_run(base, can_ask=not as_json and said != "-")
    outcome, status = put(
        base,
        agent,
        text_typed(text),
        quiet=quiet,
        person=person,
        conversation=conversation,
        timeout_s=timeout,
        deadline=deadline,
        **options,
    )
    if as_json:
        now = requests_now(base)
        facts = facts_of(
            outcome.request, now, costs_of(base, [it for _, it in now.requests.tree(outcome.request)])
        )
        shown = {
            "answer": outcome.answer,
            "why": outcome.why,
            "reason": outcome.reason,
            "error": outcome.error,
        }
        show_json("answer", {**facts, **shown})
    else:
        show_answer(outcome)
    raise typer.Exit(status)


def _amount(typed: str | None) -> float | str | None:
    """Return a budget as it was typed: a number is credits."""
    try:
        return None if typed is None else float(typed)
    except ValueError:
        return typed


def _schema_in(file: Path) -> dict[str, Any]:
    """Return the JSON Schema in a file; raise `UsageError` for what is none."""
    try:
        with file.open("rb") as opened:
            schema = parse(opened.read(DEFAULT_LIMIT_BYTES + 1), allow_bom=True)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="--schema FILE") from error
    except JsonProblem as error:
        raise UsageError(f"{file} is not JSON: {error.message} (line {error.line})") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{file} holds no JSON Schema", hint="it is a JSON object")
    flaw, pointer = flaw_of(schema)
    if flaw:
        raise UsageError(
            f"{file}{pointer and ' ' + pointer}: {flaw}", hint="json-schema.org says what a schema is"
        )
    return schema
