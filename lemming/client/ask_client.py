"""Ask an organisation: run ticks until the answer arrives, or wait for a running engine. Act for a person, too."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from lemming.client.ask_outcome import AskOutcome, NotAnswered, Unanswered
from lemming.client.request_waiter import StopOrTimeout, Waiter, WorkProgress, find_active_assignees
from lemming.kernel.base.aliases import accept_old_keywords
from lemming.kernel.base.blocking_deadline import NEVER, Deadline
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.times import Expiry
from lemming.kernel.journal.engine_events import Observer, ignore_event
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.answer_fields import Json, make_answer_parser, require_usable
from lemming.obligations.org_requests import OrgRequests, find_request, load_requests
from lemming.obligations.request_entries import (
    choose_person,
    get_conversation_assignee,
    mark_as_read,
    write_answer,
    write_request,
)
from lemming.obligations.waiting_items import PersonInboxItem, list_person_inbox
from lemming.obligations.write_decisions import decide

__all__ = [
    "AskOptions",
    "AskOutcome",
    "NotAnswered",
    "PersonInboxItem",
    "Unanswered",
    "WaitOptions",
    "WorkProgress",
    "aask",
    "answer",
    "approve",
    "ask",
    "deny",
    "find_active_assignees",
    "list_person_inbox",
    "wait_for",
]
T = TypeVar("T")


class WaitOptions(TypedDict, total=False):
    """Options for waiting for an answer; `ask` describes each option."""

    timeout_s: float | None
    watch: bool
    clock: Clock | None
    notify: Observer
    stop: threading.Event | None
    at_work: Callable[[WorkProgress], None] | None


class AskOptions(WaitOptions, total=False):
    """Options of a question besides its text; `ask` describes each option."""

    person: str | None
    conversation: str
    deadline: Expiry | None
    schema: Json | None
    budget: float | str | None
    until: Json | None
    fields: Mapping[str, Any] | None
    once: bool
    asked: Callable[[str], None] | None


@overload
def ask(
    org: str | os.PathLike[str], agent: str, text: str = "", *, returns: type[T], **options: Unpack[AskOptions]
) -> AskOutcome[T]: ...
@overload
def ask(
    org: str | os.PathLike[str], agent: str, text: str = "", *, returns: None = None, **options: Unpack[AskOptions]
) -> AskOutcome[Any]: ...
def ask(
    org: str | os.PathLike[str],
    agent: str,
    text: str = "",
    *,
    returns: type[Any] | None = None,
    person: str | None = None,
    conversation: str = "",
    deadline: Expiry | None = None,
    schema: Json | None = None,
    budget: float | str | None = None,
    until: Json | None = None,
    fields: Mapping[str, Any] | None = None,
    once: bool = False,
    asked: Callable[[str], None] | None = None,
    **waiting: Unpack[WaitOptions],
) -> AskOutcome[Any]:
    """Ask an agent as a person, run ticks until the answer arrives, and return the outcome.

    If another engine runs the organisation, `ask` waits for its answer. If the agent has handed the conversation off,
    the current assignee is asked. `returns`: a type with fields (pydantic model, dataclass, TypedDict); the agent must
    satisfy its JSON Schema, and the answer is a value of the type. `schema`: a JSON Schema instead of a type.
    `deadline`: a number of ticks, or a time such as "2h". `once`: an equal earlier question (same text, agent and
    conversation) is awaited instead of asked again, so a killed program can be run again unchanged. `budget`: maximum
    credits of the request and its sub-requests, or "9000 tokens". `until`: checks and a judge that must accept the answer.
    `fields`: values besides or instead of the text, for
    a plan with an `input`. After `timeout_s` seconds, or when `stop` is set, running turns end and the request stays
    open. `watch`: observers receive the text of models while the text is written. `at_work` receives the assignee of
    the request at each change, `asked` the request's id. Raises `UsageError` if the request would not reach the agent,
    or the answer not the person, and `ContractError` if the type rejects an answer that satisfies its schema.
    """
    base = Organisation.from_path(org)
    if returns is not None and schema is not None:
        raise UsageError("expected a type or a schema of the answer, got both", hint="pass returns= or schema=")
    json_schema, to_value = (require_usable(schema), None) if returns is None else make_answer_parser(returns)
    if not (text.strip() or fields):
        raise UsageError("expected a text to ask, got none", hint='write lemming ask AGENT "some text"')
    waiting["timeout_s"] = _normalise_timeout(waiting.get("timeout_s"))
    org_requests = load_requests(base)
    author = choose_person(org_requests, person)
    assignee = get_conversation_assignee(org_requests, author, agent, conversation)
    identity = _find_same_request(org_requests, author, agent, text, conversation, fields) if once else None
    if identity is None:
        entry = write_request(
            base,
            org_requests,
            assignee,
            text,
            person=author,
            conversation=conversation,
            deadline=deadline,
            schema=json_schema,
            budget=budget,
            until=until,
            fields=fields,
        )
        identity = entry.identity
    if asked:
        asked(identity.rpartition("_")[2])
    return _wait_for_outcome(base, identity, to_value, **waiting)


@overload
async def aask(
    org: str | os.PathLike[str], agent: str, text: str = "", *, returns: type[T], **options: Unpack[AskOptions]
) -> AskOutcome[T]: ...
@overload
async def aask(
    org: str | os.PathLike[str], agent: str, text: str = "", *, returns: None = None, **options: Unpack[AskOptions]
) -> AskOutcome[Any]: ...
async def aask(
    org: str | os.PathLike[str],
    agent: str,
    text: str = "",
    *,
    returns: type[Any] | None = None,
    **options: Unpack[AskOptions],
) -> AskOutcome[Any]:
    """Run `ask` on a thread of its own; after a cancellation, running turns still end."""
    stop = options.get("stop") or threading.Event()
    options["stop"] = stop
    try:
        return await asyncio.to_thread(lambda: ask(org, agent, text, returns=returns, **options))
    except asyncio.CancelledError:
        stop.set()
        raise


@overload
def wait_for(
    org: str | os.PathLike[str], request: str | AskOutcome[Any], *, returns: type[T], **waiting: Unpack[WaitOptions]
) -> AskOutcome[T]: ...
@overload
def wait_for(
    org: str | os.PathLike[str], request: str | AskOutcome[Any], *, returns: None = None, **waiting: Unpack[WaitOptions]
) -> AskOutcome[Any]: ...
def wait_for(
    org: str | os.PathLike[str],
    request: str | AskOutcome[Any],
    *,
    returns: type[Any] | None = None,
    **waiting: Unpack[WaitOptions],
) -> AskOutcome[Any]:
    """Wait for the answer to an earlier question, given by outcome or id; see `ask`."""
    base = Organisation.from_path(org)
    to_value = make_answer_parser(returns)[1] if returns is not None else None
    request_id = request.id if isinstance(request, AskOutcome) else request
    request_view = find_request(load_requests(base).requests, request_id)
    return _wait_for_outcome(base, request_view.identity, to_value, **waiting)


def _find_same_request(
    org_requests: OrgRequests, person: str, agent: str, text: str, conversation: str, fields: Mapping[str, Any] | None
) -> str | None:
    """Return the newest equal request that was not cancelled, or None."""
    question_key, given_fields = (person, (agent,), text, conversation), {**(fields or {})}
    matches = [
        view
        for view in org_requests.requests.by_identity.values()
        if (view.asker, tuple(view.targets), view.text, view.conversation) == question_key
        and view.end != "cancelled"
        and {key: view.entry.payload.get(key) for key in given_fields} == given_fields
    ]
    return max(matches, key=lambda view: view.name.tick).identity if matches else None


def _wait_for_outcome(
    base: Organisation,
    identity: str,
    to_value: Callable[[Any], Any] | None,
    *,
    timeout_s: float | None = None,
    watch: bool = False,
    clock: Clock | None = None,
    notify: Observer = ignore_event,
    stop: threading.Event | None = None,
    at_work: Callable[[WorkProgress], None] | None = None,
) -> AskOutcome[Any]:
    """Return the outcome with the answer converted to the requested type, and mark the answer as read."""
    timeout_s = _normalise_timeout(timeout_s)
    deadline = Deadline(timeout_s) if timeout_s is not None else NEVER
    waiter = Waiter(base, identity, StopOrTimeout(stop or threading.Event()), deadline, at_work, watch)
    timer = threading.Timer(timeout_s, waiter.stop.set) if timeout_s is not None else None
    outcome: AskOutcome[Any] | None = None
    try:
        if timer:
            timer.daemon = True
            timer.start()
        while outcome is None:
            outcome = waiter.check_outcome() or waiter.run_ticks(clock, notify) or waiter.wait_beside_engine()
    finally:
        if timer:
            timer.cancel()
    mark_as_read(base, outcome.request.asker, outcome.request.answers)
    return replace(outcome, answer=to_value(outcome.answer)) if to_value and outcome.has_answer else outcome


def _normalise_timeout(timeout_s: float | None) -> float | None:
    """Return the timeout in seconds; None for a timeout beyond the maximum of a thread."""
    if timeout_s is not None and math.isnan(timeout_s):
        raise UsageError("timeout_s must be a number of seconds, got nan", hint="timeout_s=60")
    return None if timeout_s is not None and timeout_s > threading.TIMEOUT_MAX else timeout_s


PendingItem = str | PersonInboxItem
"""An item of a person's inbox, or the id of its request."""


@accept_old_keywords
def answer(
    org: str | os.PathLike[str], item: PendingItem, text: str = "", *, person: str | None = None, **fields: Any
) -> str:
    """Answer a person's pending item with a text or with its requested fields; return the entry's file.

    Raises `UsageError` for an ended item or an unsuitable answer. The next tick processes the answer.
    """
    return write_answer(Organisation.from_path(org), _get_id(item), person=person, text=text, fields=fields).file


@accept_old_keywords
def approve(
    org: str | os.PathLike[str], item: PendingItem, *, edits: Mapping[str, Any] | None = None, person: str | None = None
) -> str:
    """Approve a pending call, with changed arguments in `edits`, or a pending step; return the entry's file.

    Raises `UsageError` without a pending item, or for an item already decided.
    """
    edited = [f"{key}={value if isinstance(value, str) else to_line(value)}" for key, value in (edits or {}).items()]
    return decide(Organisation.from_path(org), _get_id(item), "approve", person=person, edits=edited).file


@accept_old_keywords
def deny(org: str | os.PathLike[str], item: PendingItem, reason: str = "", *, person: str | None = None) -> str:
    """Deny a pending item with a reason, and return the entry's file. Raises as `approve` does."""
    return decide(Organisation.from_path(org), _get_id(item), "deny", person=person, text=reason).file


def _get_id(item: PendingItem) -> str:
    return item.identity if isinstance(item, PersonInboxItem) else item
