"""OTLP, the trace format of collectors, as JSON and as protobuf.

In JSON, ids are hex, and whole numbers and times (nanoseconds since 1970) are texts. Format:
opentelemetry-proto, opentelemetry/proto/collector/trace/v1.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.base.version import __version__
from lemming.libraries.optional_packages import install_command
from lemming.telemetry import semconv as names
from lemming.telemetry.step_timings import StepTiming

Json = dict[str, Any]

INTERNAL, CLIENT = 1, 3
ERROR = 2
SPANS_OF_A_REQUEST = 500
"""Collectors take a few megabytes at once."""

_IDS = ("traceId", "spanId", "parentSpanId")


def build_requests(spans: Sequence[Json], service: str) -> Iterator[Json]:
    """Yield export requests with the spans, with secrets removed."""
    scope = {"name": "lemming", "version": __version__, "attributes": to_attributes({"lemming.semconv": names.VERSION})}
    resource = {"attributes": to_attributes({names.SERVICE_NAME: service})}
    for first in range(0, len(spans), SPANS_OF_A_REQUEST):
        redacted_spans = redact_json([*spans[first : first + SPANS_OF_A_REQUEST]])
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": redacted_spans}]}]}


def get_service_name(folder: str) -> str:
    """Return the organisation's name in traces: OTEL_SERVICE_NAME, else the name of its folder."""
    return os.environ.get("OTEL_SERVICE_NAME") or folder or "lemming"


def to_protobuf(request: Json) -> bytes:
    """Return a request as protobuf. Raises `UsageError` if the protobuf package is not installed."""
    try:
        from google.protobuf.json_format import ParseDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as error:
        hint = install_command("otel")
        raise UsageError(
            "this collector requires protobuf, and the protobuf package is not installed", hint=hint
        ) from error
    message = ParseDict(_encode_ids(request), ExportTraceServiceRequest())
    return bytes(message.SerializeToString())


def parse_rejection(raw: bytes) -> str:
    """Return the reason a collector rejected spans, from its protobuf response, or an empty text.

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


def make_span(trace: bytes, span: bytes, name: str, timing: StepTiming, attributes: Json, kind: int = INTERNAL) -> Json:
    """Return a span with the given start and end."""
    return {
        "traceId": trace.hex(),
        "spanId": span.hex(),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": _to_nanoseconds(timing.begin_ms),
        "endTimeUnixNano": _to_nanoseconds(timing.end_ms),
        "attributes": to_attributes(attributes),
    }


def end_span(span: Json, *, is_error: bool, reason: str) -> Json:
    """Return a span with its status, without empty fields."""
    if is_error:
        span["status"] = {"code": ERROR, "message": reason} if reason else {"code": ERROR}
    return {key: value for key, value in span.items() if value != []}


def make_event(name: str, at_ms: int, attributes: Json) -> Json:
    """Return an event within a span."""
    return {"name": name, "timeUnixNano": _to_nanoseconds(at_ms), "attributes": to_attributes(attributes)}


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


def _to_nanoseconds(moment_ms: int) -> str:
    return str(moment_ms * 1_000_000)
