"""One model call: how long it may take in all, and what may come out of it.

`ask` is the edge: a `Reply` or a `ProviderError` comes out of it, redacted, and nothing else. A provider
that does not keep deadlines itself runs on a daemon thread that is left behind when time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from lemming.kernel.base.contract import REPLY_LIMIT_BYTES
from lemming.kernel.base.deadlines import Deadline, LeftBehind, run_on_thread
from lemming.kernel.base.errors import DiskError, LemmingError, ProviderError, RequestRejected, TimedOut
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.redaction.secrets import excerpt, redact_foreign, redact_values, unfinished
from lemming.kernel.plugins.errors import provider_error
from lemming.kernel.providers import LLMProvider, Message, Reply, Request

_LONGEST_MESSAGE_CHARS = 400

T = TypeVar("T")


def ask(provider: LLMProvider, request: Request, hear: Callable[[str], object] | None = None) -> Reply:
    """Return the provider's reply within `request.deadline_s`; raise a `ProviderError` and nothing else.

    A provider whose `keeps_deadline` is false and that hangs is abandoned: its thread lives on until
    the call returns or the process ends, and what it returns is not looked at. Ctrl-C passes through.
    `hear` gets the answer's text as it comes.
    """

    told = request if provider.takes_tools else in_words(request)
    work = partial(provider.complete, told)
    if hear is not None:
        work = partial(provider.complete_heard, told, hear)
    if not provider.keeps_deadline:
        # Nothing can end a call that blocks: it keeps its thread, and the turn goes on without it.
        work = partial(_on_thread, work, request.deadline_s)
    return guarded(lambda: checked(work()), f"{type(provider).__name__} {request.model_name}".strip())


def guarded(work: Callable[[], T], name: str) -> T:
    """Return what work with a provider returns; raise a redacted `ProviderError`, or our own `DiskError`.

    `name` says who was asked. Ctrl-C passes through.
    """
    try:
        return work()
    except (Exception, SystemExit) as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:
            raise  # the organisation's disk: it says nothing about the model
        # No chain: the SDK's own exceptions hold whole answers and request headers.
        raise _as_provider_error(error, name) from None


def checked(reply: Any) -> Reply:
    """Return a provider's reply with a text that can be written down; raise when it is none."""
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        found = reply.text if isinstance(reply, Reply) else reply
        raise RequestRejected(f"the provider returned {type(found).__name__}, not text")
    # Here, where a call was made: only this machine may know its key.
    is_readable = len(reply.text) <= REPLY_LIMIT_BYTES
    text = redact_foreign(reply.text) if is_readable else _without_secrets(reply.text)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is not text and cannot be written to any file
        text = text.encode("utf-8", "replace").decode()
    return reply if text == reply.text else reply._replace(text=text)


def _without_secrets(text: str) -> str:
    """Return the part of a reply that the journal keeps when it is too large to be read, without secrets.

    To look for disguises in all of that would take seconds for each megabyte, for what nobody uses: beyond
    the limit secrets are found as they are.
    """
    kept = redact_foreign(text[:REPLY_LIMIT_BYTES]) + text[REPLY_LIMIT_BYTES : 2 * REPLY_LIMIT_BYTES]
    kept = redact_values(kept)
    half, _ = unfinished(kept)
    return kept[: len(kept) - half].ljust(REPLY_LIMIT_BYTES + 1, "\u2026")  # it is refused all the same


def _as_provider_error(error: BaseException, name: str) -> ProviderError:
    """Return the error that leaves the edge: of one kind, redacted, cut. `name` says who was asked."""
    if isinstance(error, ProviderError):
        known = error
    elif isinstance(error, LemmingError):
        known = RequestRejected(error.message, where=error.where, hint=error.hint)
    elif type(error) is TimeoutError and not str(error):
        known = TimedOut("no answer in time")
    else:
        known = provider_error(error, name)
    known.message = excerpt(known.message, _LONGEST_MESSAGE_CHARS)
    known.hint = excerpt(known.hint, _LONGEST_MESSAGE_CHARS)
    known.where = excerpt(known.where, _LONGEST_MESSAGE_CHARS) or name
    known.args = (known.message,)
    return known


def timed_out(deadline_s: float) -> TimedOut:
    """Return the error for a call that took longer than its deadline."""
    hint = "raise deadline_s in config/models.json, or choose a faster model"
    return TimedOut(f"no answer within {deadline_s:.3g} s", hint=hint)


def _on_thread(work: Callable[[], T], deadline_s: float) -> T:
    """Run blocking work; raise `TimedOut` and leave the thread behind when it takes too long."""
    try:
        return run_on_thread(work, Deadline(deadline_s), name="lemming-provider")
    except (LeftBehind, TimeoutError):
        raise timed_out(deadline_s) from None


_HOW = (
    "# Tools\nTo call tools, reply with one JSON object that has a list of them, and nothing else: "
    '{"tool_calls": [{"tool": "name", "args": {}}]}. You are then shown their results.'
)


def in_words(request: Request) -> Request:
    """Return a request without tool calls of a backend's own in its messages; the same when it has none.

    For a backend that does not call tools itself, such as a fallback, or a model that a strategy asks.
    """
    if max(map(len, request.messages), default=0) == 2:  # as mostly: a role and a text, no calls
        return request
    # Its schema has no place for calls.
    return request._replace(messages=[_in_words(message) for message in request.messages], schema=None)


def _in_words(message: Message) -> Message:
    content = message["content"]
    if message["role"] == "tool":
        result = {"tool": message["tool"], "success": message["success"], "output": content}
        return {"role": "user", "content": f"Result of a tool call: {to_line(result)}"}
    if calls := message.get("calls"):
        made = [{"tool": call["tool"], "args": call["args"]} for call in calls]
        content = f"{content}\n{to_line({'tool_calls': made})}".strip()
    if tools := message.get("tools"):
        content = "\n".join([content, "", _HOW, *map(_line, tools)])
    return {"role": message["role"], "content": content}


def _line(tool: Mapping[str, Any]) -> str:
    """Return what is told of a tool, by its own name: a backend may know it by another."""
    name = tool.get("tool", tool["name"])
    return f"- {name}: {tool['description']} Arguments: {to_line(tool['parameters'])}"
