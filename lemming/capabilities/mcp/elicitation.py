"""Elicitation: a server's question in the middle of a call becomes a request to a person.

The request is an entry of the calling agent. Its `payload.call` identifies the call; after the answer, the
same tool is called again with the answer. Format: `InputRequiredResult` of the protocol.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from lemming.capabilities.mcp.mcp_lock_file import plain_text
from lemming.ext import ConfigError, NewEntry
from lemming.kernel.agents import get_latest_survey
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.inboxes.answer_payload import parse_answer
from lemming.kernel.messages import parse_identities, read_entry
from lemming.kernel.org.organisation import Organisation

MAX_BYTES = 64 << 10
FORM = "elicitation/create"


class Unanswerable(ValueError):
    """The server's question has an unsupported form, or its recipient cannot be asked."""


def build_elicitation_request(
    tool: str, arguments: Mapping[str, Any], questions: Mapping[str, Any], state: str | None, *, target: str
) -> NewEntry:
    """Return the request with a server's questions. Raises: Unanswerable for an unsupported question."""
    questions_by_key = {key: _parse_question(question) for key, question in questions.items()}
    if len(dump_compact([questions, state])) > MAX_BYTES:
        raise Unanswerable(f"its question is longer than {MAX_BYTES} bytes")
    message_text = " ".join(message for message, _ in questions_by_key.values())
    payload = {
        "text": f"{tool} asks: {message_text}",
        "target": target,
        "schema": _combine_schemas({key: schema for key, (_, schema) in questions_by_key.items()}),
        "call": {"tool": tool, "args": dict(arguments), "keys": [*questions_by_key], "state": state},
    }
    return NewEntry("request", payload, [])


def _parse_question(question: Any) -> tuple[str, dict[str, Any]]:
    """Return the text of a question, and the JSON Schema of its answer."""
    if not isinstance(question, Mapping) or question.get("method") != FORM:
        method = question.get("method", question) if isinstance(question, Mapping) else question
        raise Unanswerable(f"it asks for {str(method)[:80]}, which is not offered")
    params = question.get("params") or {}
    message = " ".join(str(plain_text(params.get("message") or "")).split())
    if params.get("url"):
        message = f"{message} ({plain_text(str(params['url']))})"
    schema = plain_text(params.get("requestedSchema") or {})
    return message, {"type": "object", "properties": {}, **schema} if isinstance(schema, dict) else {}


def _combine_schemas(schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of all answers: the schema of a single question, else one key per question."""
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    return {"type": "object", "properties": {**schemas}, "required": [*schemas]}


def elicitation_blocker(org: Organisation, asker: str, target: str) -> str:
    """Return the reason an agent cannot ask another agent or read the answer, or the empty string."""
    agents = get_latest_survey(org).agents
    if target not in agents or target == asker:
        return f'there is no agent "{target}" to ask (`ask` in config/mcp.json)'
    for reader, author in ((target, asker), (asker, target)):
        if not agents[reader].may_read(author):
            return f'{reader} may not read {author}: add "{author}" to its permissions.read_outboxes'
    return ""


def find_elicitation_answers(
    org: Organisation, earlier_answers: Sequence[tuple[str, str]], tool: str, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], str | None] | None:
    """Return the answers for this call, by the server's keys, with the call's state, or None.

    `earlier_answers`: pairs of request and answer, by identity. The newest pair counts.
    """
    for pair in reversed(earlier_answers):
        with contextlib.suppress(ConfigError, FileNotFoundError, StopIteration):  # an entry may have been removed
            request, answer = (read_entry(org, next(iter(parse_identities([identity])))) for identity in pair)
            call = request.payload.get("call")
            if isinstance(call, dict) and (call.get("tool"), call.get("args")) == (tool, dict(arguments)):
                value, keys = parse_answer(answer.payload, request.payload["schema"]), call["keys"]
                return ({keys[0]: value} if len(keys) == 1 else value), call["state"]
    return None
