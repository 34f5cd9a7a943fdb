"""What an exception out of somebody's own provider means, told by its class and by where it was raised.

A backend that is down raises whatever its library raises, and no library is imported here: classes are known
by their names. A mistake in the plugin's code is told apart, for asking again would only meet it again.
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

# What `requests`, `httpx`, `aiohttp`, `urllib`, `http.client`, `botocore`, `grpc` and SDKs call it when a
# server does not answer, or not with what was asked for.
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
_GAVE_UP_WAITING = (408, 504, 524)
_MISTAKES = (NotImplementedError, RecursionError)

E = TypeVar("E", bound=ProviderError)

_PACKAGE = str(Path(__file__).parents[2])
_LIBRARIES = ("site-packages", "dist-packages")


def provider_error(error: BaseException, name: str) -> ProviderError:
    """Return what an exception of a provider of somebody's own comes to; `name` says who was asked.

    `Unavailable`, `TimedOut` and `RateLimited` are asked again, and count for the circuit breaker.
    """
    message, where = f"{name} failed: {words_of(error)}", place_of(error)
    classes = {kind.__name__ for kind in type(error).__mro__}
    if (status := _status_of(error)) is not None:
        return error_by_status(_kind_of_status(status)(message, where=where), status)
    if classes & _TOO_LATE:
        return TimedOut(message, where=where)
    is_about_a_file = isinstance(error, OSError) and error.filename is not None  # then no server was asked
    if classes & _OUT_OF_ORDER and not is_about_a_file and not isinstance(error, _MISTAKES):
        return error_by_class(Unavailable(message, where=where), error)
    hint = (
        "a mistake in the plugin; if the backend is down, raise lemming.errors.Unavailable: it is asked again"
    )
    return RequestRejected(message, where=where, hint=hint)


def error_by_status(error: E, status: int) -> E:
    """Return the error for an HTTP status, knowing whether the call may be billed: a server that refuses
    bills nothing, one in between that gave up waiting does not know.
    """
    error.may_be_paid = status in _GAVE_UP_WAITING
    return error


def error_by_class(error: E, cause: BaseException) -> E:
    """Return the error for what a connection came to, knowing that nothing was sent where none was made."""
    classes = {kind.__name__ for kind in type(cause).__mro__}
    error.may_be_paid = not classes & _NOT_CONNECTED
    return error


def words_of(error: BaseException) -> str:
    """Return an exception's class and what it says, as far as it can say it."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - foreign code: an exception that cannot even say what it is
        return f"{type(error).__name__}: (it does not say why)"


def place_of(error: BaseException) -> str:
    """Return `file:line` of the last step of an exception in code that is neither a library's nor LeMMing's.

    Without such a step it is the last one of all; empty when there is none.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own(frame.filename)]
    return "".join(f"{last.filename}:{last.lineno}" for last in (own or frames)[-1:])


def file_of(module: str, file: str) -> str:
    """Return the file of a module, beginning with its package: the same wherever that is installed.

    >>> file_of("quota", "/opt/lib/quota/__init__.py"), file_of("quota.days", "/opt/lib/quota/days.py")
    ('quota/__init__.py', 'quota/days.py')
    """
    path = Path(file)
    return "/".join(path.parts[-(module.count(".") + 1 + (path.stem == "__init__")) :])


def is_own(file: str) -> bool:
    """Return whether a file of Python code is neither a library's nor LeMMing's."""
    from sysconfig import get_path

    path = Path(file)
    in_library = path.is_relative_to(get_path("stdlib")) or any(part in _LIBRARIES for part in path.parts)
    return not (in_library or file.startswith("<") or path.is_relative_to(_PACKAGE))


def _status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an exception carries, in the place where its library puts it."""
    told = vars(error)  # not attributes: a property may raise an error of its own
    found = (
        getattr(told.get("response"), "status_code", None),
        *map(told.get, ("status_code", "status", "code")),
    )
    return next((status for status in found if isinstance(status, int) and 400 <= status < 600), None)


def _kind_of_status(status: int) -> type[ProviderError]:
    kinds: dict[int, type[ProviderError]] = {
        401: AuthenticationFailed, 402: AuthenticationFailed, 403: AuthenticationFailed, 404: UnknownModel,
        408: Unavailable, 409: Unavailable, 425: Unavailable, 429: RateLimited,
    }  # fmt: skip
    return kinds.get(status, Unavailable if status >= 500 else RequestRejected)
