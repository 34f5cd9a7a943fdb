"""An organisation with all that a trace has: tools, corrections, fallbacks, judges, failures, news."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from lemming.journal_tools.recorded_tick import to_recorded_tick
from lemming.journal_tools.tick_ranges import TickRange
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.org.organisation import Organisation
from lemming.telemetry.journal_follower import iter_journals
from lemming.telemetry.otlp import build_requests
from lemming.telemetry.spans import build_spans
from lemming.testing import Crash, make_org, resume, say

WRITES = {"tool": "file_write", "args": {"path": "a.txt", "content": "PLANTED-CONTENT"}}
FAILS = {"tool": "file_read", "args": {"path": "PLANTED-PATH"}}
REMEMBERS = {"tool": "memory_write", "args": {"key": "k", "value": 1}}
SCRIPT: list[dict[str, Any]] = [
    {"contains": "Judge the draft", "reply": {"passes": True, "reason": ""}},
    {"agent": "ada", "step": 0, "reply": say("PLANTED-ANSWER", tool_calls=[WRITES, FAILS, REMEMBERS])},
    {"agent": "bob", "step": 0, "reply": "no JSON"},
    {"agent": "cyd", "error": "AuthenticationFailed"},
    {"reply": say("fine")},
]
MAY = {"read_outboxes": ["*"], "tools": ["file_write", "file_read"]}
DOWN = {"provider": "scripted", "options": {"file": "config/down.jsonl"}, "attempts": 1}


def make_traced(base: Path) -> Path:
    """Make it; three ticks are to be run."""
    make_org(
        base,
        resume("ada", permissions=MAY, turn={"max_steps": 2}),
        resume("bob", verify={"by": {"model": "scripted"}}),
        resume("cyd"),
        resume("dan", model={"key": "down", "fallback": ["scripted"]}),
        script=SCRIPT,
        models={"down": DOWN},
    )
    (base / "config/down.jsonl").write_text('{"error": "Unavailable"}\n')
    return base


def die_at_an_answer(event: Event) -> None:
    """End the process, for `run_once` as `notify`, once an answer is in the journal."""
    if isinstance(event, ModelReplied):
        raise Crash


def spans_of(base: Path, *, content: bool = False) -> list[dict[str, Any]]:
    """Return the spans of all ticks as they are exported."""
    org = Organisation(base)
    ticks = [to_recorded_tick(tick, reading) for tick, reading in iter_journals(org, TickRange(0))]
    made = [build_spans(tick, workflow="org", content=content) for tick in ticks]
    requests = [request for spans in made for request in build_requests(spans, "org")]
    return [span for request in requests for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]]


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    """Return a span's attributes as plain values."""
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


@dataclass
class Collector:
    """A collector on loopback: `answers` are statuses that it gives first, `taken` the protobufs it has."""

    answers: list[int] = field(default_factory=list)
    takes_json: bool = True
    rejects: int = 0
    posts: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    taken: list[ExportTraceServiceRequest] = field(default_factory=list)
    url: str = ""

    @property
    def names(self) -> list[str]:
        return [
            span.name
            for request in self.taken
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        self.posts.append((path, headers))
        form = headers["content-type"]
        if self.answers:
            return self.answers.pop(0), "text/plain", b"not now"
        if form == "application/json" and not self.takes_json:
            return 415, "text/plain", b"Unsupported content type"
        if form == "application/json":
            plain = json.loads(body)
            ParseDict(plain, ExportTraceServiceRequest())  # ids in hex are read as base64: the rest must fit
            said = {"partialSuccess": {"rejectedSpans": str(self.rejects), "errorMessage": "too old"}}
            return 200, form, json.dumps(said if self.rejects else {}).encode()
        self.taken.append(ExportTraceServiceRequest.FromString(body))
        partial = {"rejected_spans": self.rejects, "error_message": "too old"}
        response = ExportTraceServiceResponse(partial_success=partial if self.rejects else None)
        return 200, form, response.SerializeToString()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = self.rfile.read(int(headers["content-length"]))
        status, form, said = self.server.collector.answer(self.path, headers, body)  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Type", form)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def listening(collector: Collector) -> Iterator[Collector]:
    """Give a collector that answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.collector = collector  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield collector
    server.shutdown()
    server.server_close()
    thread.join()
