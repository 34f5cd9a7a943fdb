"""Convert a tick to OpenTelemetry spans: the tick, its turns, and their model and tool calls.

Names: `lemming.telemetry.semconv`, format: `lemming.telemetry.otlp`. Texts of prompts, answers and calls are
included only on request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from lemming.journal_tools.recorded_tick import ModelCall, RecordedTick, ToolUse, TurnRecord
from lemming.kernel.base.errors import OUTCOME_CODES, ConfigError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.inboxes.capability_state import StateQuery, find_call_notes
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, ToolFinished
from lemming.kernel.plugins.capability_loader import get_capability, sort_capabilities
from lemming.kernel.providers import Message
from lemming.kernel.turn.descriptions import AuxiliaryPrompt
from lemming.telemetry import semconv as names
from lemming.telemetry.otlp import CLIENT, INTERNAL, Json, end_span, make_event, make_span
from lemming.telemetry.span_timings import (
    StepTiming,
    TurnTimings,
    compute_timings,
    make_span_id,
    make_trace_id,
    parse_timestamp_ms,
)

IN_PROCESS = frozenset({"local", "scripted", "replay", "plan", "human"})
"""Providers that are no other process: a question to them is no call over a network."""
VERDICT = ["passes", "reason"]
"""The keys of a judge's answer."""


class SpanBuilder:
    """Builds spans of recorded ticks. `workflow`: name of the organisation. `content`: include texts."""

    def __init__(self, *, workflow: str, content: bool = False) -> None:
        self._workflow, self._content = workflow, content

    def build(self, tick: RecordedTick) -> list[Json]:
        """Return a finished tick's spans, the tick's first. Raises `CorruptState` if a turn began in a lost journal."""
        trace, began = make_trace_id(tick.start_record), parse_timestamp_ms(tick.start_record.at)
        root, spans, end_ms = make_span_id(trace), list[Json](), began
        for turn in tick.turns:
            if turn.status == "skipped":  # no model was called
                continue
            timings = compute_timings(tick.turn_records(turn.key), began)
            end_ms = max(end_ms, timings.turn.end_ms)
            spans += _TurnSpanBuilder(turn, tick, timings, trace, root, content=self._content).build()
        attributes: Json = {
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.AGENT: self._workflow,
            names.TICK: tick.tick,
            names.CREDITS: float(tick.totals["credits"]),
        }
        if tick.engine_starts > 1:
            attributes[names.ENGINE_STARTS] = tick.engine_starts
        name = f"{names.INVOKE_WORKFLOW} {self._workflow}"
        return [make_span(trace, root, name, StepTiming(began, end_ms), attributes), *spans]


class _TurnSpanBuilder:
    """Builds the spans of a turn."""

    def __init__(
        self,
        turn: TurnRecord,
        tick: RecordedTick,
        timings: TurnTimings,
        trace: bytes,
        root: bytes,
        *,
        content: bool,
    ) -> None:
        self._turn, self._tick, self._timings = turn, tick, timings
        self._trace, self._root, self._content = trace, root, content
        self._id = make_span_id(trace, turn.key)
        self._model: Json = turn.started.model if turn.started else {}
        self._provider = str(self._model.get("provider") or names.OTHER)

    def build(self) -> Iterator[Json]:
        """Yield the span of the turn, then spans of its model calls and tool calls."""
        yield self._build_turn_span()
        yield from map(self._build_model_span, self._turn.calls)
        for use in self._turn.tools:
            if use.success is not None:  # otherwise it was requested, and the turn ended first
                yield self._build_tool_span(use)

    def _build_turn_span(self) -> Json:
        turn, report, started = self._turn, self._turn.report, self._turn.started
        attributes: Json = {
            names.OPERATION: names.INVOKE_AGENT,
            names.PROVIDER: self._provider,
            names.AGENT: turn.agent,
            names.TICK: turn.tick,
            names.TURN_STATUS: turn.status,
            names.TURN_ATTEMPTS: turn.attempts,
            names.ENTRIES: len(turn.entries),
            names.MEMORIES: len(turn.memory),
        }
        if started:
            attributes |= {
                names.AGENT_DESCRIPTION: started.resume.get("title", ""),
                names.REQUEST_MODEL: str(self._model.get("model") or ""),
                names.CONVERSATION: (started.task or {}).get("conversation", ""),
            }
        if report:
            attributes |= {
                names.TURN_END: report.as_json()["end"],
                names.REQUEST: report.request,
                names.CREDITS: float(report.credits),
                names.COST_USD: report.cost_usd,
                **_error_attributes(report.error, str(report.as_json().get("code", ""))),
            }
        is_error = bool(report and report.status == "failed")
        span = make_span(self._trace, self._id, f"{names.INVOKE_AGENT} {turn.agent}", self._timings.turn, attributes)
        span |= {"parentSpanId": self._root.hex(), "events": self._build_verdict_events()}
        return end_span(span, is_error=is_error, reason=report.reason if report and self._content else "")

    def _build_verdict_events(self) -> list[Json]:
        """Return the verdicts of gates and judges on the whole turn, as events."""
        report, at = self._turn.report, self._timings.turn.end_ms
        if report is None:
            return []
        judged = report.judged["verdicts"] if report.judged else []
        return [
            *(_make_gate_event(verdict, at) for verdict in report.verdicts),
            *(
                make_event(
                    names.JUDGED, at, {names.JUDGE: verdict_json["by"], names.JUDGE_PASSES: verdict_json["passes"]}
                )
                for verdict_json in judged
            ),
        ]

    # --- questions --------------------------------------------------------------------------------

    def _build_model_span(self, call: ModelCall) -> Json:
        timing, record = self._timings.calls[call.call], self._tick.answers[self._turn.agent, call.call]
        question = self._turn.questions.get(call.call)
        other = call.key or (question.model if question else "")
        asked_model = "" if other else str(self._model.get("model") or "")
        attributes: Json = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.OTHER if other else self._provider,
            names.AGENT: self._turn.agent,
            names.REQUEST_MODEL: asked_model or call.model,
            names.OUTPUT_TYPE: names.JSON,
            names.TICK: self._turn.tick,
            names.CALL: call.call,
            names.CALL_FOR: self._get_call_purpose(call.call),
            names.MODEL_KEY: other or self._model_key,
            names.ATTEMPTS: record.attempts,
        }
        if not other:
            attributes |= self._request_attributes()
        if isinstance(record, ModelReplied):
            attributes |= _reply_attributes(record)
        if self._content:
            attributes |= self._text_attributes(call)
        events = [
            make_event(
                names.FAILED_ATTEMPT,
                timing.begin_ms,
                {names.ERROR_TYPE: attempt["error"], names.ERROR_CODE: attempt["code"]},
            )
            for attempt in call.earlier
        ]
        is_error = isinstance(record, ModelFailed)
        if isinstance(record, ModelFailed):
            attributes |= _error_attributes(record.error, record.code)
        kind = INTERNAL if not other and self._provider in IN_PROCESS else CLIENT
        model_name = attributes[names.REQUEST_MODEL] or attributes[names.MODEL_KEY]
        span = make_span_id(self._trace, self._turn.agent, "call", call.call)
        call_span = make_span(self._trace, span, f"{names.CHAT} {model_name}", timing, attributes, kind)
        gate_events = [_make_gate_event(verdict, timing.end_ms) for verdict in record.verdicts]
        call_span |= {"parentSpanId": self._id.hex(), "events": [*events, *gate_events]}
        return end_span(call_span, is_error=is_error, reason=call.error if self._content else "")

    @property
    def _model_key(self) -> str:
        model = self._turn.started.resume.get("model") if self._turn.started else None
        return str(model.get("key", "")) if isinstance(model, Mapping) else ""

    def _get_call_purpose(self, number: int) -> str:
        """Return the purpose of a model call: reply, correction, verdict or a summary."""
        question, started = self._turn.questions.get(number), self._turn.started
        if question and question.schema and [*question.schema.get("properties", ())] == VERDICT:
            return "verdict"
        if question and started:
            with suppress(ConfigError):  # a missing capability cannot name its model calls
                for name in sort_capabilities(started.given):
                    for prompt in StateQuery(AuxiliaryPrompt, started.given[name]).ask(get_capability(name)):
                        if question.messages == prompt.messages:
                            return prompt.purpose
        previous_call = next((candidate for candidate in self._turn.calls if candidate.call == number - 1), None)
        return "correction" if previous_call and previous_call.problem else "reply"

    def _request_attributes(self) -> Json:
        model = self._turn.started.resume.get("model") if self._turn.started else None
        agent_temperature = model.get("temperature") if isinstance(model, Mapping) else None
        temperature = self._model.get("temperature") if agent_temperature is None else agent_temperature
        options = self._model.get("options") or {}
        return {
            names.REQUEST_MAX_TOKENS: self._model.get("max_output_tokens"),
            names.REQUEST_TEMPERATURE: None if temperature is None else float(temperature),
            **_server_attributes(str(options.get("base_url") or options.get("host") or "")),
        }

    def _text_attributes(self, call: ModelCall) -> Json:
        question = self._turn.questions.get(call.call)
        record = self._tick.answers[self._turn.agent, call.call]
        attributes: Json = {}
        if question:
            messages = question.messages
            system = [_make_text_part(message["content"]) for message in messages if message["role"] == "system"]
            dialogue = [message for message in messages if message["role"] != "system"]
            inputs = [{"role": message["role"], "parts": [*_message_parts(message)]} for message in dialogue]
            attributes |= {
                names.SYSTEM_INSTRUCTIONS: _to_json_text(system),
                names.INPUT_MESSAGES: _to_json_text(inputs),
            }
        if isinstance(record, ModelReplied):
            attributes[names.OUTPUT_MESSAGES] = extract_reply(record)
        return attributes

    # --- calls of tools -----------------------------------------------------------------------------

    def _build_tool_span(self, use: ToolUse) -> Json:
        timing = self._timings.tools[use.index]
        operation = names.OPERATION_OF_TOOL.get(use.tool, names.EXECUTE_TOOL)
        record = self._tick.tools.get((self._turn.agent, use.index))
        attributes: Json = {
            names.OPERATION: operation,
            names.AGENT: self._turn.agent,
            names.TOOL: use.tool,
            names.TOOL_TYPE: names.EXTENSION if use.tool.startswith("mcp.") else names.FUNCTION,
            names.TOOL_CALL_ID: f"{self._turn.tick}/{self._turn.agent}/{use.index}",
            names.TICK: self._turn.tick,
            names.OUTCOME: use.outcome,
            names.LEAVE_BY: next((note.by for note in find_call_notes(use.kept)), ""),
        }
        if isinstance(record, ToolFinished):
            attributes[names.ATTEMPTS] = record.attempts
        if not use.success:
            attributes |= _error_attributes(
                use.outcome or names.OTHER, OUTCOME_CODES[use.outcome] if use.outcome else ""
            )
        if self._content:
            arguments = "" if use.args is None else dump_compact(use.args).decode()
            attributes |= {names.TOOL_ARGUMENTS: arguments, names.TOOL_RESULT: use.output}
        span = make_span_id(self._trace, self._turn.agent, "tool", use.index)
        tool_span = make_span(self._trace, span, f"{operation} {use.tool}", timing, attributes)
        gate_events = [_make_gate_event(verdict, timing.end_ms) for verdict in record.verdicts] if record else []
        tool_span |= {"parentSpanId": self._id.hex(), "events": gate_events}
        return end_span(tool_span, is_error=not use.success, reason="")


# --- attributes -----------------------------------------------------------------------------------


def _make_gate_event(verdict: Mapping[str, Any], at_ms: int) -> Json:
    attributes = {names.GATE_LINE: verdict["line"], names.GATE_AT: verdict["at"], names.GATE_THEN: verdict["then"]}
    return make_event(names.GATE_SAID, at_ms, attributes)


def _error_attributes(kind: str, code: str) -> Json:
    return {names.ERROR_TYPE: kind, names.ERROR_CODE: code} if kind else {}


def _reply_attributes(record: ModelReplied) -> Json:
    return {
        names.RESPONSE_MODEL: record.model,
        names.FINISH_REASONS: [record.finish],
        names.INPUT_TOKENS: record.input_tokens,
        names.OUTPUT_TOKENS: record.output_tokens,
        names.CACHE_READ_TOKENS: record.cached_tokens or None,
        names.CACHE_WRITE_TOKENS: record.written_tokens or None,
        names.CREDITS: float(record.credits),
        names.COST_USD: None if record.cost_usd is None else float(record.cost_usd),
        names.IS_BATCHED: record.batched or None,
        names.IS_ESTIMATED: record.is_estimated or None,
    }


def _server_attributes(address: str) -> Json:
    """Return the address of the model's server as attributes, if the model entry names a server.

    >>> _server_attributes("http://127.0.0.1:8080/v1")
    {'server.address': '127.0.0.1', 'server.port': 8080}
    """
    try:
        parts = urlsplit(strip_userinfo(address))
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return {}
    return {names.SERVER_ADDRESS: parts.hostname, names.SERVER_PORT: port} if parts.hostname else {}


# --- prompts and answers, only on request ---------------------------------------------------------
# In the form of the conventions: gen-ai-input-messages.json and its neighbours.


_FINISH = {
    "stop": "stop", "length": "length", "refusal": "content_filter", "too_large": "length", "failed": "error",
}  # fmt: skip


def extract_reply(record: ModelReplied) -> str:
    """Return a model's answer as parts: text, reasoning and tool calls."""
    reasoning_parts = [{"type": "reasoning", "content": record.thinking}] if record.thinking else []
    text_parts = [_make_text_part(record.text)] if record.text else []
    parts = [*reasoning_parts, *text_parts, *map(_tool_call_part, record.calls)]
    return _to_json_text([{"role": "assistant", "parts": parts, "finish_reason": _FINISH[record.finish]}])


def _message_parts(message: Message) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {"type": "tool_call_response", "id": message.get("call"), "response": message["content"]}
        return
    if message["content"]:
        yield _make_text_part(message["content"])
    yield from map(_tool_call_part, message.get("calls", ()))


def _make_text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _tool_call_part(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", "id": call["id"], "name": call["tool"], "arguments": call["args"]}


def _to_json_text(plain: list[dict[str, Any]]) -> str:
    return dump_compact(plain).decode() if plain else ""
