"""What a step asks, in the words of the plan: the payload of its request, and what it waits for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.capabilities.plans.format import Member, Verify, Wait
from lemming.capabilities.plans.outcomes import VERDICT, schema_for
from lemming.capabilities.plans.references import as_text, context_lines, filled, rendered
from lemming.capabilities.plans.run import Doing
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.times.spoken import until_in

Json = dict[str, Any]


def request_for(member: Member, doing: Doing, known: Json, at: str) -> Json:
    """Return the payload of the request that a step makes, `at` a moment; why the last try failed too."""
    given = filled(member.args, known) if member.plan else {}
    task = rendered(member.task, known) or as_text(given)
    text = with_context(task, [*context_lines(member.context, known)])
    if doing.reasons:
        text = f"{text}\n\nThe last try was not good enough: {doing.reasons}"
    payload: Json = {**given, "target": member.asked, "text": text, "step": doing.tag}
    if schema := schema_for(member):
        payload["schema"] = schema
    if member.deadline is not None:
        payload |= until_in([member.deadline], at)
    if member.default is not None:
        payload["default"] = member.default
    if member.verify and (judge := member.verify.judge):
        payload["verify"] = judge.as_json()
    return payload


def verification_for(member: Member, verify: Verify, doing: Doing, known: Json) -> Json:
    """Return the payload of the request by which somebody is asked whether an answer passes."""
    asked_for = rendered(member.task, known) or as_text(filled(member.args, known))
    task = rendered(verify.task, known)
    task = task or "Does this answer do what was asked? Say whether it passes, and why not."
    text = with_context(task, [("What was asked", asked_for), ("The answer", as_text(doing.answer))])
    schema = {} if verify.when else {"schema": VERDICT}
    return {"target": verify.ask, "text": text, "step": doing.tag, **schema}


def withdrawal(asked: Mapping[str, Any]) -> Json:
    """Return the entry by which something that was asked need not be answered any more."""
    of_it = {"cancels": asked["id"], "reply_to": asked["id"], "target": asked["to"]}
    return {"kind": "status", "payload": of_it, "tags": []}


def with_context(task: str, parts: list[tuple[str, str]]) -> str:
    """Return a task with what goes with it, each part below its label.

    >>> with_context("Write it up.", [("facts", "Bees dance.")])
    'Write it up.\\n\\nfacts:\\nBees dance.'
    """
    return "\n\n".join([task, *(f"{label}:\n{text}" for label, text in parts)])


def wait_for(wait: Wait | None, tick: int, files: Mapping[str, str | None], known: Json) -> Json:
    """Return until when a step waits that begins in this tick. Raises `ValueError` for what is no moment."""
    if wait is None:  # the plan was changed meanwhile
        return {"tick": tick}
    until: Json = {"give_up": tick + wait.at_most} if wait.at_most else {}
    if wait.file:
        was = {"was": files.get(wait.file)} if wait.until == "changes" else {}
        return {**until, "file": wait.file, "until": wait.until, **was}
    if wait.ticks is not None or wait.tick is not None:
        return {**until, "tick": wait.tick if wait.ticks is None else tick + wait.ticks}
    moment = rendered(wait.time, known)
    try:
        return {**until, "time": timestamp(parse_timestamp(moment))}
    except ValueError as error:
        raise ValueError(f'"{moment[:100]}" is no moment such as 2027-01-31T09:00:00Z') from error


def wait_text(wait: Mapping[str, Any]) -> str:
    """Return in words what is waited for.

    >>> wait_text({"file": "./in.csv", "until": "changes"}), wait_text({"tick": 7})
    ('./in.csv to change', 'tick 7')
    """
    if call := wait.get("call"):
        return f"a person to say whether its call happened: lemming repair --mark done {call}, or failed"
    if file := wait.get("file"):
        return f"{file} {'to change' if wait.get('until') == 'changes' else 'to be there'}"
    return f"tick {wait['tick']}" if "tick" in wait else str(wait.get("time"))
