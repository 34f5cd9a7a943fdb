"""Classify exceptions of custom providers by class and by the place that raised them.

A backend that is down raises an exception of its library. Libraries are not imported here: their classes are
known by name. A mistake in the plugin's code is classified separately, because a retry would only repeat the
mistake.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TypeVar

from lemming.kernel.base.errors import (
    AuthenticationFailed,
    ProviderError,
    RateLimited,
    RequestRejected,
    TimedOut,
    Unavailable,
    UnknownModel,
)

# Error names of `requests`, `httpx`, `aiohttp`, `urllib`, `http.client`, `botocore`, `grpc` and SDKs for a server
# without an answer, or with an unexpected one.
_OUT_OF_ORDER = {
    "APIConnectionError", "APIError", "ClientError", "EOFError", "HTTPError", "HTTPException",
    "InternalServerError", "JSONDecodeError", "OSError", "RequestException", "RpcError", "RuntimeError",
    "ServiceUnavailableError", "SubprocessError", "TransportError", "WebSocketException",
}  # fmt: skip
_TOO_LATE = {"TimeoutError", "Timeout", "TimeoutException", "TimeoutExpired", "APITimeoutError"}
_NOT_CONNECTED = {
    "ConnectError", "ConnectTimeout", "ConnectionRefusedError", "ClientConnectorError", "NewConnectionError",
    "ConnectTimeoutError", "gaierror",
}  # fmt: skip
_ERROR_CLASSES: dict[int, type[ProviderError]] = {
    401: AuthenticationFailed, 402: AuthenticationFailed, 403: AuthenticationFailed, 404: UnknownModel,
    408: Unavailable, 409: Unavailable, 425: Unavailable, 429: RateLimited,
}  # fmt: skip
_GATEWAY_TIMEOUTS = (408, 504, 524)
_MISTAKES = (NotImplementedError, RecursionError)

E = TypeVar("E", bound=ProviderError)

_PACKAGE = str(Path(__file__).parents[2])
_LIBRARIES = ("site-packages", "dist-packages")


def to_provider_error(error: BaseException, name: str) -> ProviderError:
    """Return the provider error for an exception of a custom provider; `name` is the provider's name.

    `Unavailable`, `TimedOut` and `RateLimited` are retried, and count for the circuit breaker.
    """
    message, location = f"{name} failed: {describe_exception(error)}", locate_error(error)
    classes = {kind.__name__ for kind in type(error).__mro__}
    if (status := _http_status(error)) is not None:
        kind = _ERROR_CLASSES.get(status, Unavailable if status >= 500 else RequestRejected)
        return mark_billing_by_status(kind(message, where=location), status)
    if classes & _TOO_LATE:
        return TimedOut(message, where=location)
    is_about_a_file = isinstance(error, OSError) and error.filename is not None  # then no server was asked
    if classes & _OUT_OF_ORDER and not is_about_a_file and not isinstance(error, _MISTAKES):
        return mark_billing_by_cause(Unavailable(message, where=location), error)
    hint = "fix the plugin; if the backend is down, raise lemming.errors.Unavailable: the call is repeated"
    return RequestRejected(message, where=location, hint=hint)


def mark_billing_by_status(error: E, status: int) -> E:
    """Return the error with `may_be_paid` set from an HTTP status.

    A server that refuses a call does not bill; after a gateway's timeout the billing is unknown.
    """
    error.may_be_paid = status in _GATEWAY_TIMEOUTS
    return error


def mark_billing_by_cause(error: E, cause: BaseException) -> E:
    """Return the error with `may_be_paid` set from its cause: False if no connection was made."""
    classes = {kind.__name__ for kind in type(cause).__mro__}
    error.may_be_paid = not classes & _NOT_CONNECTED
    return error


def describe_exception(error: BaseException) -> str:
    """Return an exception's class and message, even if the message cannot be read."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - foreign code: an exception that cannot even say what it is
        return f"{type(error).__name__}: (it does not say why)"


def locate_error(error: BaseException) -> str:
    """Return `file:line` of an exception's last frame outside libraries and LeMMing.

    Falls back to the last frame; empty for an exception without frames.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if is_custom_file(frame.filename)]
    return "".join(f"{last.filename}:{last.lineno}" for last in (own_frames or frames)[-1:])


def relative_module_file(module: str, file: str) -> str:
    """Return the file of a module relative to the parent of its package, independent of the installation.

    >>> relative_module_file("quota", "/opt/lib/quota/__init__.py")
    'quota/__init__.py'
    >>> relative_module_file("quota.days", "/opt/lib/quota/days.py")
    'quota/days.py'
    """
    path = Path(file)
    return "/".join(path.parts[-(module.count(".") + 1 + (path.stem == "__init__")) :])


def is_custom_file(file: str) -> bool:
    """Return True if a Python file belongs neither to a library nor to LeMMing."""
    from sysconfig import get_path

    path = Path(file)
    in_library = path.is_relative_to(get_path("stdlib")) or any(part in _LIBRARIES for part in path.parts)
    return not (in_library or file.startswith("<") or path.is_relative_to(_PACKAGE))


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an exception, from the attribute used by its library."""
    attributes = vars(error)  # not attributes: a property may raise an error of its own
    candidates = (
        getattr(attributes.get("response"), "status_code", None),
        *map(attributes.get, ("status_code", "status", "code")),
    )
    return next((status for status in candidates if isinstance(status, int) and 400 <= status < 600), None)
