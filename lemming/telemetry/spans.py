"""Convert a tick to OpenTelemetry spans: the tick, its turns, and their model and tool calls.

Names: open-telemetry/semantic-conventions-genai v0.1.0 (agent spans, client inference, tools, memory), and `lemming.*`
where it has none. Format: `lemming.telemetry.otlp`. Texts of prompts, answers and calls are included only on request.
An agent in the same process has no id and no version, and the model of its line as the model that it asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lemming.journal_tools.recorded_tick import ModelCall, RecordedTick, RecordedTurn, ToolUse
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import OUTCOME_CODES, ConfigError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.journal.capability_queries import StateQuery, find_call_notes
from lemming.kernel.journal.journal_records import (
    ModelFailed,
    ModelReplied,
    Record,
    TickStarted,
    ToolFinished,
    ToolStarted,
)
from lemming.kernel.plugins.capability_loader import get_capability, sort_capabilities
from lemming.kernel.providers import Message
from lemming.kernel.turn.descriptions import AuxiliaryPrompt
from lemming.telemetry.otlp import CLIENT, INTERNAL, Json, StepTiming, end_span, make_event, make_span

IN_PROCESS = frozenset({"local", "scripted", "replay", "plan", "human"})
"""Providers that are no other process: a question to them is no call over a network."""
VERDICT = ["passes", "reason"]
"""The keys of a judge's answer."""
OPERATIONS = {"memory_read": "search_memory", "memory_write": "upsert_memory", "search": "retrieval"}
"""Tools of ours that are an operation of another name than `execute_tool`."""
OTHER = "_OTHER"
"""Stand-in for an unknown value of a required attribute."""


def build_spans(tick: RecordedTick, *, workflow: str, content: bool = False) -> list[Json]:
    """Return a finished tick's spans, the tick's first. Raises `CorruptState` if a turn began in a lost journal.

    `workflow`: name of the organisation. `content`: include texts.
    """
    trace, began = make_trace_id(tick.start_record), parse_timestamp_ms(tick.start_record.at)
    root, spans, end_ms = make_span_id(trace), list[Json](), began
    for turn in tick.turns:
        if turn.status == "skipped":  # no model was called
            continue
        timings = compute_timings(tick.turn_records(turn.key), began)
        end_ms = max(end_ms, timings.turn.end_ms)
        spans += _TurnSpanBuilder(turn, tick, timings, trace, root, content=content).build()
    attributes: Json = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.name": workflow,
        "lemming.tick": tick.tick,
        "lemming.credits": float(tick.totals["credits"]),
        "lemming.engine_starts": tick.engine_starts if tick.engine_starts > 1 else None,
    }
    timing = StepTiming(began, end_ms)
    return [make_span(trace, root, f"invoke_workflow {workflow}", timing, attributes), *spans]


class _TurnSpanBuilder:
    """Builds the spans of a turn."""

    def __init__(
        self, turn: RecordedTurn, tick: RecordedTick, timings: TurnTimings, trace: bytes, root: bytes, *, content: bool
    ) -> None:
        self._turn, self._tick, self._timings = turn, tick, timings
        self._trace, self._root, self._content = trace, root, content
        self._id = make_span_id(trace, turn.key)
        self._model: Json = turn.started.model if turn.started else {}
        self._provider = str(self._model.get("provider") or OTHER)

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
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": self._provider,
            "gen_ai.agent.name": turn.agent,
            "lemming.tick": turn.tick,
            "lemming.turn.status": turn.status,
            "lemming.turn.attempts": turn.attempts,
            "lemming.entries": len(turn.entries),
            "lemming.memories": len(turn.memory),
        }
        if started:
            attributes |= {
                "gen_ai.agent.description": started.resume.get("title", ""),
                "gen_ai.request.model": str(self._model.get("model") or ""),
                "gen_ai.conversation.id": (started.task or {}).get("conversation", ""),
            }
        if report:
            attributes |= {
                "lemming.turn.end": report.as_json()["end"],
                "lemming.request": report.request,
                "lemming.credits": float(report.credits),
                "lemming.cost_usd": report.cost_usd,
                **_error_attributes(report.error, str(report.as_json().get("code", ""))),
            }
        events, at_ms = _gate_events(report.verdicts if report else (), self._timings.turn), self._timings.turn.end_ms
        for verdict in report.judged["verdicts"] if report and report.judged else ():
            judged = {"lemming.judge": verdict["by"], "lemming.judge.passes": verdict["passes"]}
            events.append(make_event("lemming.judged", at_ms, judged))
        is_error = bool(report and report.status == "failed")
        span = make_span(self._trace, self._id, f"invoke_agent {turn.agent}", self._timings.turn, attributes)
        span |= {"parentSpanId": self._root.hex(), "events": events}
        return end_span(span, is_error=is_error, reason=report.reason if report and self._content else "")

    # --- questions --------------------------------------------------------------------------------

    def _build_model_span(self, call: ModelCall) -> Json:
        timing, record = self._timings.calls[call.call], self._tick.answers[self._turn.agent, call.call]
        question = self._turn.questions.get(call.call)
        other = call.key or (question.model if question else "")
        asked_model = "" if other else str(self._model.get("model") or "")
        attributes: Json = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": OTHER if other else self._provider,
            "gen_ai.agent.name": self._turn.agent,
            "gen_ai.request.model": asked_model or call.model,
            "gen_ai.output.type": "json",
            "lemming.tick": self._turn.tick,
            "lemming.call": call.call,
            "lemming.call.for": self._get_call_purpose(call.call),
            "lemming.model_key": other or str(self._resume_model.get("key", "")),
            "lemming.attempts": record.attempts,
        }
        if not other:
            attributes |= self._request_attributes()
        if isinstance(record, ModelReplied):
            attributes |= _reply_attributes(record)
        if self._content:
            attributes |= self._text_attributes(call)
        events = [
            make_event("lemming.failed_attempt", timing.begin_ms, _error_attributes(attempt["error"], attempt["code"]))
            for attempt in call.earlier
        ]
        if isinstance(record, ModelFailed):
            attributes |= _error_attributes(record.error, record.code)
        kind = INTERNAL if not other and self._provider in IN_PROCESS else CLIENT
        model_name = attributes["gen_ai.request.model"] or attributes["lemming.model_key"]
        span_id = make_span_id(self._trace, self._turn.agent, "call", call.call)
        span = make_span(self._trace, span_id, f"chat {model_name}", timing, attributes, kind)
        span |= {"parentSpanId": self._id.hex(), "events": [*events, *_gate_events(record.verdicts, timing)]}
        return end_span(span, is_error=isinstance(record, ModelFailed), reason=call.error if self._content else "")

    @property
    def _resume_model(self) -> Mapping[str, Any]:
        model = self._turn.started.resume.get("model") if self._turn.started else None
        return model if isinstance(model, Mapping) else {}

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
        agent_temperature = self._resume_model.get("temperature")
        temperature = self._model.get("temperature") if agent_temperature is None else agent_temperature
        options = self._model.get("options") or {}
        return {
            "gen_ai.request.max_tokens": self._model.get("max_output_tokens"),
            "gen_ai.request.temperature": None if temperature is None else float(temperature),
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
            attributes["gen_ai.system_instructions"] = _to_json_text(system)
            attributes["gen_ai.input.messages"] = _to_json_text(inputs)
        if isinstance(record, ModelReplied):
            attributes["gen_ai.output.messages"] = extract_reply(record)
        return attributes

    # --- calls of tools -----------------------------------------------------------------------------

    def _build_tool_span(self, use: ToolUse) -> Json:
        timing = self._timings.tools[use.index]
        operation = OPERATIONS.get(use.tool, "execute_tool")
        record = self._tick.tools.get((self._turn.agent, use.index))
        attributes: Json = {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": self._turn.agent,
            "gen_ai.tool.name": use.tool,
            "gen_ai.tool.type": "extension" if use.tool.startswith("mcp.") else "function",
            "gen_ai.tool.call.id": f"{self._turn.tick}/{self._turn.agent}/{use.index}",
            "lemming.tick": self._turn.tick,
            "lemming.tool.outcome": use.outcome,
            "lemming.tool.leave_by": next((note.by for note in find_call_notes(use.kept)), ""),
        }
        if record:
            attributes["lemming.attempts"] = record.attempts
        if not use.success:
            attributes |= _error_attributes(use.outcome or OTHER, OUTCOME_CODES[use.outcome] if use.outcome else "")
        if self._content:
            arguments = "" if use.args is None else dump_compact(use.args).decode()
            attributes |= {"gen_ai.tool.call.arguments": arguments, "gen_ai.tool.call.result": use.output}
        span_id = make_span_id(self._trace, self._turn.agent, "tool", use.index)
        span = make_span(self._trace, span_id, f"{operation} {use.tool}", timing, attributes)
        span |= {"parentSpanId": self._id.hex(), "events": _gate_events(record.verdicts if record else (), timing)}
        return end_span(span, is_error=not use.success, reason="")


# --- times and ids --------------------------------------------------------------------------------
# An answer has its arrival time and duration, a tool call its duration. A step without a time follows the previous
# step. An answer from a recording has the time of the original answer, but counts at its use.


ROUNDING_MS = 20
"""By so much the two clocks of an answer, the time of day and how long it took, may disagree."""


class TurnTimings(NamedTuple):
    """Timing of a turn, of its answers by call number, and of its tool calls by index."""

    turn: StepTiming
    calls: dict[int, StepTiming]
    tools: dict[int, StepTiming]


def parse_timestamp_ms(text: str) -> int:
    """Return a timestamp in milliseconds since 1970, or 0 for an invalid timestamp."""
    try:
        return round(parse_timestamp(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def compute_timings(records: Iterable[Record], tick_began_ms: int) -> TurnTimings:
    """Return the timings of a turn's steps, in sequence and never before the start of the tick."""
    calls: dict[int, StepTiming] = {}
    tools: dict[int, StepTiming] = {}
    current_ms = tick_began_ms
    for record in records:
        match record:
            case ModelReplied(call=number, duration_ms=duration_ms):
                began = parse_timestamp_ms(record.at) - max(duration_ms, 0)
                begin = max(current_ms, began) if began >= current_ms - ROUNDING_MS else current_ms
                calls[number] = StepTiming(begin, begin + max(duration_ms, 0))
                current_ms = calls[number].end_ms
            case ModelFailed(call=number, duration_ms=duration_ms):
                calls[number] = StepTiming(current_ms, current_ms + duration_ms)
                current_ms += duration_ms
            case ToolStarted(index=index):
                tools[index] = StepTiming(current_ms, current_ms)
            case ToolFinished(index=index, duration_ms=duration_ms):
                tools[index] = StepTiming(current_ms, current_ms + duration_ms)
                current_ms += duration_ms
    steps = [*calls.values(), *tools.values()]
    return TurnTimings(StepTiming(min((lap.begin_ms for lap in steps), default=current_ms), current_ms), calls, tools)


def make_trace_id(plan: TickStarted) -> bytes:
    """Return a globally unique trace id of a tick, derived from the first record of its journal.

    The record holds the time and the machine's uptime. A copy of an organisation, and a fork up to its fork
    point, therefore have the same ids; other ticks of the same number have different ids.
    """
    return blake2b(dump_compact(plan.as_json()), digest_size=16).digest()


def make_span_id(trace: bytes, *parts: object) -> bytes:
    """Return the span id of a step of a tick."""
    return blake2b("/".join(map(str, parts)).encode(), key=trace, digest_size=8).digest()


# --- attributes -----------------------------------------------------------------------------------


def _gate_events(verdicts: Iterable[Mapping[str, Any]], timing: StepTiming) -> list[Json]:
    keys = ("line", "at", "then")
    attributes = ({f"lemming.gate.{key}": verdict[key] for key in keys} for verdict in verdicts)
    return [make_event("lemming.gate", timing.end_ms, verdict_attributes) for verdict_attributes in attributes]


def _error_attributes(kind: str, code: str) -> Json:
    return {"error.type": kind, "lemming.error.code": code} if kind else {}


def _reply_attributes(record: ModelReplied) -> Json:
    return {
        "gen_ai.response.model": record.model,
        "gen_ai.response.finish_reasons": [record.finish],
        "gen_ai.usage.input_tokens": record.input_tokens,
        "gen_ai.usage.output_tokens": record.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens or None,
        "gen_ai.usage.cache_write.input_tokens": record.written_tokens or None,
        "lemming.credits": float(record.credits),
        "lemming.cost_usd": None if record.cost_usd is None else float(record.cost_usd),
        "lemming.is_batched": record.batched or None,
        "lemming.tokens_are_estimated": record.is_estimated or None,
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
    return {"server.address": parts.hostname, "server.port": port} if parts.hostname else {}


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
