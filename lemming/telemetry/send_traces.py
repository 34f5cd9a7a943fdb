"""Sends traces to a collector: OTLP over HTTP, as JSON, or as protobuf to one that takes only that.

A collector that is down, or asks to wait, is asked again with growing pauses. Sending twice does no harm, so
whoever gives up can begin again where it ended.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from lemming.kernel.base.errors import NotSent, TimedOut, UsageError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.redaction.secrets import without_userinfo
from lemming.telemetry.otlp import Json, as_protobuf, rejected_in, rejected_text

if TYPE_CHECKING:
    import httpx2
    from tenacity import RetryCallState

ATTEMPTS = 6
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
DEADLINE_S = 30.0
HEADERS_ENV = "OTEL_EXPORTER_OTLP_HEADERS"

_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_ASK_AGAIN = frozenset({429, 502, 503, 504})
_OTHER_FORM = 415


class _Down(NotSent):
    """The collector may take it later; `retry_after_s` when it said when."""

    retry_after_s: float | None = None


def address_of(url: str) -> str:
    """Return where traces are sent; an address without a path is that of a collector as a whole.

    >>> address_of("http://127.0.0.1:4318")
    'http://127.0.0.1:4318/v1/traces'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f'"{url[:100]}" is no address of a collector', hint="--post http://127.0.0.1:4318")
    return urlunsplit(parts._replace(path="/v1/traces")) if parts.path in ("", "/") else url


def headers_in(text: str) -> dict[str, str]:
    """Return the headers that a variable names, as OpenTelemetry's own programs read it.

    >>> headers_in("Authorization=Basic%20abc,x-team=news")
    {'Authorization': 'Basic abc', 'x-team': 'news'}
    """
    pairs = (pair.partition("=") for pair in text.split(",") if pair.strip())
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


class Collector:
    """Where traces are sent. With `is_patient`, one that is down is asked until `stop` is set.

    `tell` is told why it is asked again, once for each time that it is down.
    """

    def __init__(
        self,
        url: str,
        *,
        stop: threading.Event,
        tell: Callable[[str], None],
        is_patient: bool = False,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self.address = address_of(url)
        self._stop, self._tell, self._is_patient = stop, tell, is_patient
        self._first_pause_s = first_pause_s
        self._form = _JSON
        self._is_down = False

    def send(self, request: Json) -> None:
        """Send one request; raise `NotSent` when the collector does not take it, or is down for long."""
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_when_event_set
        from tenacity.nap import sleep_using_event

        when_stopped = stop_when_event_set(self._stop)
        retrying = Retrying(
            retry=retry_if_exception_type(_Down),
            wait=self._pause_s,
            stop=when_stopped if self._is_patient else when_stopped | stop_after_attempt(ATTEMPTS),
            sleep=sleep_using_event(self._stop),
            before_sleep=self._log_outage,
            reraise=True,
        )
        retrying(self._send_once, request)
        if self._is_down:
            self._is_down = False
            self._tell(f"{self._shown} takes traces again")

    def _send_once(self, request: Json) -> None:
        response = self._post(compact(request) if self._form == _JSON else as_protobuf(request))
        if response.status_code == _OTHER_FORM and self._form == _JSON:  # kept for the next ones
            self._form = _PROTOBUF
            response = self._post(as_protobuf(request))
        if response.status_code in _ASK_AGAIN:
            down = _Down(f"{self._shown} answered {response.status_code}", hint=_WHAT_TO_DO)
            down.retry_after_s = _seconds_in(response.headers.get("Retry-After", ""))
            raise down
        if not response.is_success:
            said = response.text[:300].strip()
            raise NotSent(f"{self._shown} answered {response.status_code}: {said}", hint=_WHAT_TO_DO)
        if why := _rejected(response):
            raise NotSent(f"{self._shown} did not take all: {why}", hint="its own log says more")

    def _post(self, body: bytes) -> httpx2.Response:
        import httpx2

        from lemming.capabilities.background.calls import run

        headers = {"Content-Type": self._form, **headers_in(os.environ.get(HEADERS_ENV, ""))}

        async def post() -> httpx2.Response:
            async with httpx2.AsyncClient(timeout=None) as client:
                return await client.post(self.address, content=body, headers=headers)

        try:
            return run(post, DEADLINE_S)
        except TimedOut as error:
            late = f"{self._shown} gave no whole answer within {DEADLINE_S:g} s"
            raise _Down(late, hint=_WHAT_TO_DO) from error
        except httpx2.InvalidURL as error:
            raise UsageError(f"{self._shown} is no address: {error}") from error
        except httpx2.HTTPError as error:
            raise _Down(f"{self._shown} cannot be reached: {error}", hint=_WHAT_TO_DO) from error

    def _pause_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _Down) and error.retry_after_s is not None:
            return min(error.retry_after_s, 10 * LONGEST_PAUSE_S)
        return float(min(self._first_pause_s * 2.0 ** (state.attempt_number - 1), LONGEST_PAUSE_S))

    def _log_outage(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if not self._is_down and isinstance(error, NotSent):
            self._is_down = True
            self._tell(f"{error.message}; it is asked again")

    @property
    def _shown(self) -> str:
        return without_userinfo(self.address)


_WHAT_TO_DO = f"is it a collector of OTLP over HTTP? what it wants as headers goes into {HEADERS_ENV}"


def _seconds_in(retry_after: str) -> float | None:
    """Return the seconds that a server asks for; None for a date or nothing."""
    return float(retry_after) if retry_after.strip().isdecimal() else None


def _rejected(response: httpx2.Response) -> str:
    """Return why a collector that answered well did not take all; empty when it did."""
    if _PROTOBUF in response.headers.get("Content-Type", ""):
        return rejected_in(response.content)
    try:
        plain: Any = parse(response.content) if response.content.strip() else {}
    except JsonProblem:
        return ""
    partial = plain.get("partialSuccess") if isinstance(plain, Mapping) else None
    if not isinstance(partial, Mapping):
        return ""
    count = str(partial.get("rejectedSpans", "0"))
    return rejected_text(int(count) if count.isdecimal() else 0, str(partial.get("errorMessage", "")))
