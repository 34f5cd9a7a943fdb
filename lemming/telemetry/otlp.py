"""OTLP, the trace format of collectors, as JSON and as protobuf, and its transport over HTTP.

In JSON, ids are hex, and whole numbers and times (nanoseconds since 1970) are texts. Format:
opentelemetry-proto, opentelemetry/proto/collector/trace/v1. A collector without service, or with a request to wait, is retried
with growing pauses. Sending twice is harmless, so an interrupted export can be repeated from any point.
"""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from lemming.kernel.base.errors import NotSent, TimedOut, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact_json, strip_userinfo
from lemming.kernel.base.version import __version__
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.libraries.optional_packages import install_command

if TYPE_CHECKING:
    import httpx2
    from tenacity import RetryCallState


Json = dict[str, Any]

INTERNAL, CLIENT = 1, 3
ERROR = 2
NANOSECONDS = 1_000_000  # of a millisecond
SEMCONV_VERSION = "gen-ai 0.1.0 (core 1.45.0)"
"""The release of OpenTelemetry's conventions that `lemming.telemetry.spans` follows. They are in development."""
SPANS_OF_A_REQUEST = 500
"""Collectors take a few megabytes at once."""

_IDS = ("traceId", "spanId", "parentSpanId")


def build_requests(spans: Sequence[Json], service: str) -> Iterator[Json]:
    """Yield export requests with the spans, with secrets removed."""
    about = to_attributes({"lemming.semconv": SEMCONV_VERSION})
    scope = {"name": "lemming", "version": __version__, "attributes": about}
    resource = {"attributes": to_attributes({"service.name": service})}
    for first in range(0, len(spans), SPANS_OF_A_REQUEST):
        redacted_spans = redact_json([*spans[first : first + SPANS_OF_A_REQUEST]])
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": redacted_spans}]}]}


def get_service_name(folder: str) -> str:
    """Return the organisation's name in traces: OTEL_SERVICE_NAME, else the folder's name."""
    return os.environ.get("OTEL_SERVICE_NAME") or folder or "lemming"


def to_protobuf(request: Json) -> bytes:
    """Return a request as protobuf. Raises `UsageError` if the protobuf package is not installed."""
    try:
        from google.protobuf.json_format import ParseDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as error:
        message = "this collector requires protobuf, and the protobuf package is not installed"
        raise UsageError(message, hint=install_command("otel")) from error
    return bytes(ParseDict(_encode_ids(request), ExportTraceServiceRequest()).SerializeToString())


def parse_rejection(raw: bytes) -> str:
    """Return the reason a collector rejected spans, from a protobuf response, or an empty text.

    An unreadable response counts as an acceptance, because the HTTP status was a success.
    """
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
    except ImportError:
        return ""
    try:
        partial = ExportTraceServiceResponse.FromString(raw).partial_success
    except DecodeError:
        return ""
    return format_rejection(partial.rejected_spans, partial.error_message)


def format_rejection(count: int, reason: str) -> str:
    """Return the text about rejected spans for a person, or an empty text."""
    return f"it rejected {count} spans: {reason[:500]}" if count else ""


def _encode_ids(plain: Any) -> Any:
    """Return JSON in the protobuf mapping: ids are bytes, and bytes are base64."""
    if isinstance(plain, list):
        return [_encode_ids(item) for item in plain]
    if isinstance(plain, dict):
        return {
            key: b64encode(bytes.fromhex(value)).decode() if key in _IDS else _encode_ids(value)
            for key, value in plain.items()
        }
    return plain


class StepTiming(NamedTuple):
    """Start and end of a step, in milliseconds since 1970."""

    begin_ms: int
    end_ms: int


def make_span(trace: bytes, span: bytes, name: str, timing: StepTiming, attributes: Json, kind: int = INTERNAL) -> Json:
    """Return a span with the given start and end."""
    return {
        "traceId": trace.hex(),
        "spanId": span.hex(),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(timing.begin_ms * NANOSECONDS),
        "endTimeUnixNano": str(timing.end_ms * NANOSECONDS),
        "attributes": to_attributes(attributes),
    }


def end_span(span: Json, *, is_error: bool, reason: str) -> Json:
    """Return a span with a status, without empty fields."""
    if is_error:
        span["status"] = {"code": ERROR, "message": reason} if reason else {"code": ERROR}
    return {key: value for key, value in span.items() if value != []}


def make_event(name: str, at_ms: int, attributes: Json) -> Json:
    """Return an event within a span."""
    return {"name": name, "timeUnixNano": str(at_ms * NANOSECONDS), "attributes": to_attributes(attributes)}


def to_attributes(values: Mapping[str, Any]) -> list[Json]:
    """Return attributes in OTLP form, without empty values (None, an empty text).

    >>> to_attributes(dict(a=1, b="", c=True))
    [{'key': 'a', 'value': {'intValue': '1'}}, {'key': 'c', 'value': {'boolValue': True}}]
    """
    return [{"key": key, "value": _to_any_value(value)} for key, value in values.items() if value not in (None, "")]


def _to_any_value(value: Any) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_to_any_value(item) for item in value]}}
        case _:
            return {"stringValue": str(value)}


ATTEMPTS = 6
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
DEADLINE_S = 30.0
HEADERS_ENV = "OTEL_EXPORTER_OTLP_HEADERS"

_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_RETRY_STATUSES = frozenset({429, 502, 503, 504})
_UNSUPPORTED_MEDIA_TYPE = 415


class _CollectorUnavailable(NotSent):
    """The collector is temporarily unavailable; `retry_after_s` holds its requested delay, if any."""

    retry_after_s: float | None = None


def resolve_endpoint(url: str) -> str:
    """Return the address for traces; an address without a path gets the default path.

    >>> resolve_endpoint("http://127.0.0.1:4318")
    'http://127.0.0.1:4318/v1/traces'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f'--endpoint must be an http or https address, got "{url[:100]}"',
            hint="write --endpoint http://127.0.0.1:4318",
        )
    return urlunsplit(parts._replace(path="/v1/traces")) if parts.path in ("", "/") else url


def parse_headers(text: str) -> dict[str, str]:
    """Return the headers in a variable's value, in OpenTelemetry's format.

    >>> parse_headers("Authorization=Basic%20abc,x-team=news")
    {'Authorization': 'Basic abc', 'x-team': 'news'}
    """
    pairs = (pair.partition("=") for pair in text.split(",") if pair.strip())
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


class Collector:
    """A trace collector. `is_patient`: retry until `stop` is set. `tell`: gets the reason for retries once."""

    def __init__(
        self,
        url: str,
        *,
        stop: threading.Event,
        tell: Callable[[str], None],
        is_patient: bool = False,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self.address, self._redacted_address = resolve_endpoint(url), strip_userinfo(resolve_endpoint(url))
        self._stop, self._tell, self._is_patient = stop, tell, is_patient
        self._first_pause_s, self._form, self._is_down = first_pause_s, _JSON, False

    def send(self, request: Json) -> None:
        """Send a request. Raises `NotSent` for a rejected request or a long outage."""
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_when_event_set
        from tenacity.nap import sleep_using_event

        when_stopped = stop_when_event_set(self._stop)
        retrying = Retrying(
            retry=retry_if_exception_type(_CollectorUnavailable),
            wait=self._pause_s,
            stop=when_stopped if self._is_patient else when_stopped | stop_after_attempt(ATTEMPTS),
            sleep=sleep_using_event(self._stop),
            before_sleep=self._report_outage,
            reraise=True,
        )
        retrying(self._send_once, request)
        if self._is_down:
            self._is_down = False
            self._tell(f"{self._redacted_address} takes traces again")

    def _send_once(self, request: Json) -> None:
        response = self._post(dump_compact(request) if self._form == _JSON else to_protobuf(request))
        if response.status_code == _UNSUPPORTED_MEDIA_TYPE and self._form == _JSON:  # kept for the next ones
            self._form = _PROTOBUF
            response = self._post(to_protobuf(request))
        if response.status_code in _RETRY_STATUSES:
            outage = _CollectorUnavailable(f"{self._redacted_address} answered {response.status_code}", hint=_FIX_HINT)
            retry_after = response.headers.get("Retry-After", "").strip()
            outage.retry_after_s = float(retry_after) if retry_after.isdecimal() else None  # it may be a date
            raise outage
        if not response.is_success:
            response_text = response.text[:300].strip()
            raise NotSent(f"{self._redacted_address} answered {response.status_code}: {response_text}", hint=_FIX_HINT)
        if rejection := _find_rejection(response):
            message = f"{self._redacted_address} rejected part of the data: {rejection}"
            raise NotSent(message, hint="read the log of the collector")

    def _post(self, body: bytes) -> httpx2.Response:
        import httpx2

        from lemming.libraries.concurrency.async_calls import run_async

        headers = {"Content-Type": self._form, **parse_headers(os.environ.get(HEADERS_ENV, ""))}

        async def post() -> httpx2.Response:
            async with httpx2.AsyncClient(timeout=None) as client:
                return await client.post(self.address, content=body, headers=headers)

        try:
            return run_async(post, DEADLINE_S)
        except TimedOut as error:
            late = f"{self._redacted_address} did not answer completely within {DEADLINE_S:g} s"
            raise _CollectorUnavailable(late, hint=_FIX_HINT) from error
        except httpx2.InvalidURL as error:
            raise UsageError(f"{self._redacted_address} is not a valid address: {error}") from error
        except httpx2.HTTPError as error:
            message = f"{self._redacted_address} cannot be reached: {error}"
            raise _CollectorUnavailable(message, hint=_FIX_HINT) from error

    def _pause_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _CollectorUnavailable) and error.retry_after_s is not None:
            return min(error.retry_after_s, 10 * LONGEST_PAUSE_S)
        return float(min(self._first_pause_s * 2.0 ** (state.attempt_number - 1), LONGEST_PAUSE_S))

    def _report_outage(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if not self._is_down and isinstance(error, NotSent):
            self._is_down = True
            self._tell(f"{error.message}; it is asked again")


_FIX_HINT = f"check that it is an OTLP/HTTP collector, and put required headers into {HEADERS_ENV}"


def _find_rejection(response: httpx2.Response) -> str:
    """Return the reason a collector rejected spans despite a success status, or an empty text."""
    if _PROTOBUF in response.headers.get("Content-Type", ""):
        return parse_rejection(response.content)
    partial = parse_object_or_empty(response.content).get("partialSuccess")
    if not isinstance(partial, Mapping):
        return ""
    count = str(partial.get("rejectedSpans", "0"))
    return format_rejection(int(count) if count.isdecimal() else 0, str(partial.get("errorMessage", "")))
