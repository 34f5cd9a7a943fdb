"""Error boundary of one model call: its total time, and its possible results.

`call_provider` returns a `Reply` or raises a `ProviderError`, redacted, and nothing else. A provider without
its own deadline handling runs on a daemon thread, which is abandoned when the time is up.

A call that may act outside, as programs do, is made at most once: announced < call < answer. The announcement is the record
`model_started`. A call whose end is not recorded may have acted; a person decides what happens next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import Deadline, WorkAbandoned, run_on_thread
from lemming.kernel.base.contract import REPLY_LIMIT_BYTES
from lemming.kernel.base.errors import DiskError, LemmingError, MayHaveActed, ProviderError, RequestRejected, TimedOut
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.base.redaction.secrets import find_partial_secret, redact_untrusted, redact_values, redacted_excerpt
from lemming.kernel.plugins.provider_errors import to_provider_error
from lemming.kernel.providers import LLMProvider, Message, Reply, Request

_MAX_MESSAGE_CHARS = 400

T = TypeVar("T")


def call_provider(provider: LLMProvider, request: Request, on_delta: Callable[[str], object] | None = None) -> Reply:
    """Return the provider's reply within `request.deadline_s`. Raise a `ProviderError` and nothing else.

    A hanging provider whose `keeps_deadline` is false is abandoned: its thread lives on until the call
    returns or the process ends, and the result is ignored. Ctrl-C passes through. `on_delta` receives the
    answer's text as it is streamed.
    """

    provider_request = request if provider.takes_tools else describe_tool_calls(request)
    work = partial(provider.complete, provider_request)
    if on_delta is not None:
        work = partial(provider.complete_streaming, provider_request, on_delta)
    if not provider.keeps_deadline:
        # A blocking call cannot be ended: it keeps its thread, and the turn continues without it.
        work = partial(_run_with_deadline, work, request.deadline_s)
    return guard_provider_work(
        lambda: validate_reply(work()), f"{type(provider).__name__} {request.model_name}".strip()
    )


def guard_provider_work(work: Callable[[], T], name: str) -> T:
    """Return the result of a provider's work. Raise a redacted `ProviderError`, or our own `DiskError`."""
    try:
        return work()
    except (Exception, SystemExit) as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:
            raise  # an error of the organisation's disk, not of the model
        # No chain: the SDK's own exceptions hold whole answers and request headers.
        raise _to_provider_error(error, name) from None


def validate_reply(reply: Any) -> Reply:
    """Return a provider's reply with a writable text. Raise an error for an invalid reply."""
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        value = reply.text if isinstance(reply, Reply) else reply
        raise RequestRejected(f"the provider must return text, got {type(value).__name__}")
    # Here, where a call was made: only this machine may know its key.
    is_readable = len(reply.text) <= REPLY_LIMIT_BYTES
    text = redact_untrusted(reply.text) if is_readable else _without_secrets(reply.text)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is not text and cannot be written to any file
        text = text.encode("utf-8", "replace").decode()
    return reply if text == reply.text else reply._replace(text=text)


def _without_secrets(text: str) -> str:
    """Return the beginning of an oversized reply for the journal, without secrets.

    Searching all of an unused text for encoded secrets would take seconds per megabyte. Beyond the limit,
    only literal secrets are removed.
    """
    beginning = redact_untrusted(text[:REPLY_LIMIT_BYTES]) + text[REPLY_LIMIT_BYTES : 2 * REPLY_LIMIT_BYTES]
    beginning = redact_values(beginning)
    unfinished_chars, _ = find_partial_secret(beginning)
    return beginning[: len(beginning) - unfinished_chars].ljust(
        REPLY_LIMIT_BYTES + 1, "\u2026"
    )  # it is refused all the same


def _to_provider_error(error: BaseException, name: str) -> ProviderError:
    """Return the error that crosses the boundary: a `ProviderError`, redacted and shortened."""
    if isinstance(error, ProviderError):
        converted = error
    elif isinstance(error, LemmingError):
        converted = RequestRejected(error.message, where=error.where, hint=error.hint)
    elif type(error) is TimeoutError and not str(error):
        converted = TimedOut("no answer in time")
    else:
        converted = to_provider_error(error, name)
    converted.message = redacted_excerpt(converted.message, _MAX_MESSAGE_CHARS)
    converted.hint = redacted_excerpt(converted.hint, _MAX_MESSAGE_CHARS)
    converted.where = redacted_excerpt(converted.where, _MAX_MESSAGE_CHARS) or name
    converted.args = (converted.message,)
    return converted


def timeout_error(deadline_s: float) -> TimedOut:
    """Return the error for a call that exceeded the deadline."""
    hint = "raise deadline_s in config/models.json, or choose a faster model"
    return TimedOut(f"no answer within {deadline_s:.3g} s", hint=hint)


def _run_with_deadline(work: Callable[[], T], deadline_s: float) -> T:
    """Run blocking work on a thread. Raise `TimedOut` and abandon the thread if the work takes too long."""
    try:
        return run_on_thread(work, Deadline(deadline_s), name="lemming-provider")
    except (WorkAbandoned, TimeoutError):
        raise timeout_error(deadline_s) from None


_TOOL_INSTRUCTIONS = (
    "# Tools\nTo call tools, reply with one JSON object that has a list of them, and nothing else: "
    '{"tool_calls": [{"tool": "name", "args": {}}]}. You are then shown their results.'
)


def describe_tool_calls(request: Request) -> Request:
    """Return a request with native tool calls rewritten as text; the same request if it has none.

    For a backend without native tool calls, such as a fallback, or a model called by a strategy.
    """
    if max(map(len, request.messages), default=0) == 2:  # as mostly: a role and a text, no calls
        return request
    # Its schema has no place for calls.
    return request._replace(messages=[_describe_tool_calls(message) for message in request.messages], schema=None)


def _describe_tool_calls(message: Message) -> Message:
    content = message["content"]
    if message["role"] == "tool":
        result = {"tool": message["tool"], "success": message["success"], "output": content}
        return {"role": "user", "content": f"Result of a tool call: {to_line(result)}"}
    if calls := message.get("calls"):
        tool_calls = [{"tool": call["tool"], "args": call["args"]} for call in calls]
        content = f"{content}\n{to_line({'tool_calls': tool_calls})}".strip()
    if tools := message.get("tools"):
        descriptions = (
            f"- {tool.get('tool', tool['name'])}: {tool['description']} Arguments: {to_line(tool['parameters'])}"
            for tool in tools
        )
        content = "\n".join([content, "", _TOOL_INSTRUCTIONS, *descriptions])
    return {"role": message["role"], "content": content}


_NOT_REPEATED = "it may have acted, and is not run again by itself"
_HINT = f'check its work, then ask again; if the program only prints text, set options.effects to "none" in {paths.MODELS_FILE}'


def to_acting_error(error: ProviderError) -> MayHaveActed:
    """Return the error of a started call with an unknown effect, from the error of the backend."""
    hint = f"{error.hint}; {_HINT}".removeprefix("; ")
    acting_error = MayHaveActed(f"{error.message}; {_NOT_REPEATED}", where=error.where, hint=hint)
    acting_error.is_of_backend = error.is_of_backend
    return acting_error


def make_interrupted_error() -> MayHaveActed:
    """Return the error of a call that was announced and has no recorded end: the engine died during the call."""
    return MayHaveActed(
        f"the engine ended during a call of the model; {_NOT_REPEATED}", where=paths.MODELS_FILE, hint=_HINT
    )
