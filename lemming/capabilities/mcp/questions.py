"""What a server asks back in the middle of a call: a request to a person, and how the call goes on.

The request is an entry of the agent that called. Its `payload.call` says which call it belongs to; once it
is answered, the same call of the tool is made with the answer. Format: `InputRequiredResult` of the protocol.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from lemming.capabilities.mcp.lock import plain_text
from lemming.kernel.agents import latest_survey
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.mail.answers import answer_in
from lemming.kernel.messages import names_of, read_entry
from lemming.kernel.org.organisation import Organisation

MOST_BYTES = 64 << 10
FORM = "elicitation/create"


class Unanswerable(ValueError):
    """The server asks for what no person can be asked, or who is to be asked cannot be."""


def request_for(
    tool: str, arguments: Mapping[str, Any], questions: Mapping[str, Any], state: str | None, *, target: str
) -> NewEntry:
    """Return the request that asks what a server wants to know. Raises `Unanswerable`."""
    asked = {key: _form(question) for key, question in questions.items()}
    if len(compact([questions, state])) > MOST_BYTES:
        raise Unanswerable(f"its question is longer than {MOST_BYTES} bytes")
    said = " ".join(message for message, _ in asked.values())
    payload = {
        "text": f"{tool} asks: {said}",
        "target": target,
        "schema": _schema({key: schema for key, (_, schema) in asked.items()}),
        "call": {"tool": tool, "args": dict(arguments), "keys": [*asked], "state": state},
    }
    return NewEntry("request", payload, [])


def _form(question: Any) -> tuple[str, dict[str, Any]]:
    """Return what a question says, and the JSON Schema of its answer."""
    if not isinstance(question, Mapping) or question.get("method") != FORM:
        wanted = question.get("method", question) if isinstance(question, Mapping) else question
        raise Unanswerable(f"it asks for {str(wanted)[:80]}, which is not offered")
    params = question.get("params") or {}
    message = " ".join(str(plain_text(params.get("message") or "")).split())
    if params.get("url"):
        message = f"{message} ({plain_text(str(params['url']))})"
    schema = plain_text(params.get("requestedSchema") or {})
    return message, {"type": "object", "properties": {}, **schema} if isinstance(schema, dict) else {}


def _schema(schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of the answer to all questions: that of the only one, else one key for each."""
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    return {"type": "object", "properties": {**schemas}, "required": [*schemas]}


def why_not_asked(org: Organisation, asker: str, target: str) -> str:
    """Return why an agent cannot ask another, or get its answer; empty when it can."""
    agents = latest_survey(org).agents
    if target not in agents or target == asker:
        return f'there is no agent "{target}" to ask (`ask` in config/mcp.json)'
    for reader, author in ((target, asker), (asker, target)):
        if not agents[reader].may_read(author):
            return f'{reader} cannot read {author}: add "{author}" to its permissions.read_outboxes'
    return ""


def answered(
    org: Organisation, before: Sequence[tuple[str, str]], tool: str, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], str | None] | None:
    """Return the answers to what this very call asked, by the server's keys, and its state.

    `before`: what was asked and answered, both entries by identity; the newest counts. None: nothing was.
    """
    for pair in reversed(before):
        with contextlib.suppress(ConfigError, FileNotFoundError, StopIteration):  # an entry may be gone
            request, answer = (read_entry(org, next(iter(names_of([it])))) for it in pair)
            call = request.payload.get("call")
            if isinstance(call, dict) and (call.get("tool"), call.get("args")) == (tool, dict(arguments)):
                value, keys = answer_in(answer.payload, request.payload["schema"]), call["keys"]
                return ({keys[0]: value} if len(keys) == 1 else value), call["state"]
    return None
