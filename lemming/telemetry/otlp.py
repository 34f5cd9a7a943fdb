"""OTLP, the form in which collectors take traces: as JSON, and as what protobuf makes of it.

Ids are hex in JSON, whole numbers and times (nanoseconds since 1970) are texts. Format: opentelemetry-proto,
opentelemetry/proto/collector/trace/v1.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.extras import install_line
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.base.version import __version__
from lemming.telemetry import semconv as names
from lemming.telemetry.laps import Lap

Json = dict[str, Any]

INTERNAL, CLIENT = 1, 3
ERROR = 2
SPANS_OF_A_REQUEST = 500
"""Collectors take a few megabytes at once."""

_IDS = ("traceId", "spanId", "parentSpanId")


def requests_of(spans: Sequence[Json], service: str) -> Iterator[Json]:
    """Yield requests that bring these spans to a collector, without the secrets that may be in them."""
    scope = {
        "name": "lemming",
        "version": __version__,
        "attributes": attributes_of({"lemming.semconv": names.VERSION}),
    }
    resource = {"attributes": attributes_of({names.SERVICE_NAME: service})}
    for first in range(0, len(spans), SPANS_OF_A_REQUEST):
        some = redact_json([*spans[first : first + SPANS_OF_A_REQUEST]])
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": some}]}]}


def service_name(folder: str) -> str:
    """Return what traces call the organisation: OTEL_SERVICE_NAME, else the name of its folder."""
    return os.environ.get("OTEL_SERVICE_NAME") or folder or "lemming"


def as_protobuf(request: Json) -> bytes:
    """Return a request as protobuf; raise `UsageError` where the package for it is not installed."""
    try:
        from google.protobuf.json_format import ParseDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as error:
        hint = install_line("otel")
        raise UsageError(
            "this collector takes protobuf only, and the package for it is missing", hint=hint
        ) from error
    message = ParseDict(_with_ids_in_base64(request), ExportTraceServiceRequest())
    return bytes(message.SerializeToString())


def rejected_in(raw: bytes) -> str:
    """Return why a collector, answering in protobuf, did not take all of a request; empty when it did.

    And where nobody here can tell: it said that it took the request.
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
    return rejected_text(partial.rejected_spans, partial.error_message)


def rejected_text(count: int, why: str) -> str:
    """Return what a person is told of spans that a collector did not take; empty when there are none."""
    return f"it rejected {count} spans: {why[:500]}" if count else ""


def _with_ids_in_base64(plain: Any) -> Any:
    """Return JSON as protobuf's own mapping has it: the ids are bytes, and bytes are base64."""
    if isinstance(plain, list):
        return [_with_ids_in_base64(each) for each in plain]
    if isinstance(plain, dict):
        return {
            key: b64encode(bytes.fromhex(value)).decode() if key in _IDS else _with_ids_in_base64(value)
            for key, value in plain.items()
        }
    return plain


def span_of(trace: bytes, span: bytes, name: str, lap: Lap, attributes: Json, kind: int = INTERNAL) -> Json:
    """Return a span that lasted so long."""
    return {
        "traceId": trace.hex(),
        "spanId": span.hex(),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": _nanoseconds(lap.begin_ms),
        "endTimeUnixNano": _nanoseconds(lap.end_ms),
        "attributes": attributes_of(attributes),
    }


def ended(span: Json, *, is_error: bool, why: str) -> Json:
    """Return a span with its status, without what is empty."""
    if is_error:
        span["status"] = {"code": ERROR, "message": why} if why else {"code": ERROR}
    return {key: value for key, value in span.items() if value != []}


def event_of(name: str, at_ms: int, attributes: Json) -> Json:
    """Return something that happened in the course of a span."""
    return {"name": name, "timeUnixNano": _nanoseconds(at_ms), "attributes": attributes_of(attributes)}


def attributes_of(values: Mapping[str, Any]) -> list[Json]:
    """Return attributes as OTLP has them; those that say nothing (None, an empty text) are left out.

    >>> attributes_of({"a": 1, "b": "", "c": True})
    [{'key': 'a', 'value': {'intValue': '1'}}, {'key': 'c', 'value': {'boolValue': True}}]
    """
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value not in (None, "")]


def _value(value: Any) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case _:
            return {"stringValue": str(value)}


def _nanoseconds(moment_ms: int) -> str:
    return str(moment_ms * 1_000_000)
