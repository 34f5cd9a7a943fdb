"""Asking an organisation: ticks are run until the answer is there, or the engine that runs is waited for."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from lemming.asking.outcome import AskOutcome, NotAnswered, Unanswered
from lemming.asking.until_answered import AtWork, Ending, Waiter, holders_at_work
from lemming.capabilities.requests.entries import write_request
from lemming.capabilities.requests.now import RequestsNow, find_request, requests_now
from lemming.capabilities.requests.people import holder_of_conversation, note_as_read, person_for
from lemming.capabilities.requests.typed import Json, typed_as, usable
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.deadlines import NEVER, Deadline
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.times.spoken import Expires
from lemming.kernel.journal.events import Observer, ignore
from lemming.kernel.org.organisation import Organisation

__all__ = [
    "AskOptions",
    "AskOutcome",
    "AtWork",
    "NotAnswered",
    "Unanswered",
    "WaitOptions",
    "aask",
    "ask",
    "holders_at_work",
    "wait_for",
]
T = TypeVar("T")


class WaitOptions(TypedDict, total=False):
    """How an answer is waited for; `ask` tells what each means."""

    timeout_s: float | None
    watch: bool
    clock: Clock | None
    notify: Observer
    stop: threading.Event | None
    at_work: Callable[[AtWork], None] | None


class AskOptions(WaitOptions, total=False):
    """What may be said of a question beside its text; `ask` tells what each means."""

    person: str | None
    conversation: str
    deadline: Expires | None
    schema: Json | None
    budget: float | str | None
    fields: Mapping[str, Any] | None
    once: bool
    asked: Callable[[str], None] | None


@overload
def ask(
    org: str | os.PathLike[str],
    agent: str,
    text: str = "",
    *,
    returns: type[T],
    **options: Unpack[AskOptions],
) -> AskOutcome[T]: ...
@overload
def ask(
    org: str | os.PathLike[str],
    agent: str,
    text: str = "",
    *,
    returns: None = None,
    **options: Unpack[AskOptions],
) -> AskOutcome[Any]: ...
def ask(
    org: str | os.PathLike[str],
    agent: str,
    text: str = "",
    *,
    returns: type[Any] | None = None,
    person: str | None = None,
    conversation: str = "",
    deadline: Expires | None = None,
    schema: Json | None = None,
    budget: float | str | None = None,
    fields: Mapping[str, Any] | None = None,
    once: bool = False,
    asked: Callable[[str], None] | None = None,
    **waiting: Unpack[WaitOptions],
) -> AskOutcome[Any]:
    """Ask an agent something as a person, run ticks until the answer is there, and return what came of it.

    Where another engine runs the organisation, that one is waited for. Where the agent has handed the
    conversation on, whoever holds it is asked. `returns`: a type with fields (pydantic model, dataclass,
    TypedDict), to whose JSON Schema the agent is held, and of which the answer is a value; `schema`: a JSON
    Schema in its place. `deadline`: so many ticks, or a time such as "2h".
    `once`: what was asked before, in the same words of the same agent and in the same conversation, is not
    asked again but waited for, so that a program that was killed can be run again as it is.
    `budget`: the credits that it and all that is asked for it may cost, or "9000 tokens". `fields`: values
    beside the text or in its place, as a plan with an `input` takes them. After `timeout_s` seconds, or when
    `stop` is set, the turns under way end and the request stays open. `watch`: observers hear what models
    write as they write it. `at_work` is told who holds the request when that changes, `asked` its id.
    Raises `UsageError` when the request would not reach the agent, or its answer not the person, and
    `ContractError` when the type refuses an answer that its schema does not.
    """
    base = Organisation.at(org)
    if returns is not None and schema is not None:
        raise UsageError("both a type and a schema say what the answer is", hint="returns=, or schema=")
    plain, value_of = (usable(schema), None) if returns is None else typed_as(returns)
    if not (text.strip() or fields):
        raise UsageError("nothing to ask", hint='lemming ask AGENT "some text"')
    waiting["timeout_s"] = _patience(waiting.get("timeout_s"))
    now = requests_now(base)
    author = person_for(now, person)
    holder = holder_of_conversation(now, author, agent, conversation)
    before = _asked_before(now, author, agent, text, conversation, fields) if once else None
    if before is None:
        entry = write_request(
            base,
            now,
            holder,
            text,
            person=author,
            conversation=conversation,
            deadline=deadline,
            schema=plain,
            budget=budget,
            fields=fields,
        )
        before = entry.identity
    if asked:
        asked(before.rpartition("_")[2])
    return _with_value(base, _wait(base, before, **waiting), value_of)


@overload
async def aask(
    org: str | os.PathLike[str],
    agent: str,
    text: str = "",
    *,
    returns: type[T],
    **options: Unpack[AskOptions],
) -> AskOutcome[T]: ...
@overload
async def aask(
    org: str | os.PathLike[str],
    agent: str,
    text: str = "",
    *,
    returns: None = None,
    **options: Unpack[AskOptions],
) -> AskOutcome[Any]: ...
async def aask(
    org: str | os.PathLike[str],
    agent: str,
    text: str = "",
    *,
    returns: type[Any] | None = None,
    **options: Unpack[AskOptions],
) -> AskOutcome[Any]:
    """Do what `ask` does, on a thread of its own; when it is cancelled, the turns under way still end."""
    stop = options.get("stop") or threading.Event()
    options["stop"] = stop
    try:
        return await asyncio.to_thread(lambda: ask(org, agent, text, returns=returns, **options))
    except asyncio.CancelledError:
        stop.set()
        raise


@overload
def wait_for(
    org: str | os.PathLike[str],
    request: str | AskOutcome[Any],
    *,
    returns: type[T],
    **waiting: Unpack[WaitOptions],
) -> AskOutcome[T]: ...
@overload
def wait_for(
    org: str | os.PathLike[str],
    request: str | AskOutcome[Any],
    *,
    returns: None = None,
    **waiting: Unpack[WaitOptions],
) -> AskOutcome[Any]: ...
def wait_for(
    org: str | os.PathLike[str],
    request: str | AskOutcome[Any],
    *,
    returns: type[Any] | None = None,
    **waiting: Unpack[WaitOptions],
) -> AskOutcome[Any]:
    """Wait for the answer to what was asked before: by its outcome, which was open, or its id; see `ask`."""
    base = Organisation.at(org)
    value_of = typed_as(returns)[1] if returns is not None else None
    wanted = request.id if isinstance(request, AskOutcome) else request
    found = find_request(requests_now(base).requests, wanted)
    return _with_value(base, _wait(base, found.identity, **waiting), value_of)


def _asked_before(
    now: RequestsNow,
    person: str,
    agent: str,
    text: str,
    conversation: str,
    fields: Mapping[str, Any] | None,
) -> str | None:
    """Return the newest request that asks the same and was not taken back; None where there is none."""
    wanted, given = (person, (agent,), text, conversation), {**(fields or {})}
    found = [
        it
        for it in now.requests.by_identity.values()
        if (it.asker, tuple(it.targets), it.text, it.conversation) == wanted
        and it.end != "cancelled"
        and {key: it.entry.payload.get(key) for key in given} == given
    ]
    return max(found, key=lambda it: it.name.tick).identity if found else None


def _wait(
    base: Organisation,
    identity: str,
    *,
    timeout_s: float | None = None,
    watch: bool = False,
    clock: Clock | None = None,
    notify: Observer = ignore,
    stop: threading.Event | None = None,
    at_work: Callable[[AtWork], None] | None = None,
) -> AskOutcome[Any]:
    timeout_s = _patience(timeout_s)
    deadline = Deadline(timeout_s) if timeout_s is not None else NEVER
    waiter = Waiter(base, identity, Ending(stop or threading.Event()), deadline, at_work, watch)
    timer = threading.Timer(timeout_s, waiter.stop.set) if timeout_s is not None else None
    try:
        if timer:
            timer.daemon = True
            timer.start()
        while True:
            if outcome := waiter.outcome() or waiter.run(clock, notify) or waiter.watch():
                return outcome
    finally:
        if timer:
            timer.cancel()


def _with_value(
    base: Organisation, outcome: AskOutcome[Any], value_of: Callable[[Any], Any] | None
) -> AskOutcome[Any]:
    """Return an outcome with its answer as a value of the type asked for, once its asker has seen it."""
    note_as_read(base, outcome.request.asker, outcome.request.answers)
    if value_of is None or not outcome.has_answer:
        return outcome
    return replace(outcome, answer=value_of(outcome.answer))


def _patience(timeout_s: float | None) -> float | None:
    """Return for how long somebody waits; None for longer than a thread can."""
    if timeout_s is not None and math.isnan(timeout_s):
        raise UsageError("timeout_s is no number of seconds: nan", hint="timeout_s=60")
    return None if timeout_s is not None and timeout_s > threading.TIMEOUT_MAX else timeout_s
