"""A tick as spans of OpenTelemetry: the tick, its turns, and what each asked and called.

Names: `lemming.telemetry.semconv`, form: `lemming.telemetry.otlp`. Texts of prompts, answers and calls are
left out unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from lemming.kernel.base.errors import OUTCOME_CODES, ConfigError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.redaction.secrets import without_userinfo
from lemming.kernel.journal.records import ModelFailed, ModelReplied, ToolFinished
from lemming.kernel.mail.capability_notes import notes_of
from lemming.kernel.providers import Message
from lemming.kernel.turn.parts import questions_of
from lemming.telemetry import semconv as names
from lemming.telemetry.laps import Lap, Laps, laps_of, moment_ms
from lemming.telemetry.otlp import CLIENT, INTERNAL, Json, ended, event_of, span_of
from lemming.telemetry.sources import Sources, span_id_of, trace_id_of
from lemming.timeline.record import ModelCall, RecordedTick, ToolUse, TurnRecord

IN_THE_PROCESS = frozenset({"local", "scripted", "replay", "plan", "human"})
"""Providers that are no other process: a question to them is no call over a network."""
VERDICT = ["passes", "reason"]
"""The keys of the answer that a judge is asked for."""


class Spans:
    """Makes spans of recorded ticks. `workflow`: what the organisation is called; `content`: with texts."""

    def __init__(self, sources: Sources, *, workflow: str, content: bool = False) -> None:
        self._sources, self._workflow, self._content = sources, workflow, content

    def of(self, tick: RecordedTick) -> list[Json]:
        """Return the spans of a tick that has ended, the tick's own first.

        Raises `CorruptState` where a turn's start stands in a journal that is gone.
        """
        self._sources.note(tick.tick)
        trace, began = trace_id_of(tick.begin), moment_ms(tick.begin.at)
        root, spans, ended = span_id_of(trace), list[Json](), began
        for turn in tick.turns:
            if turn.status == "skipped":  # nobody was asked anything
                continue
            laps = laps_of(tick.records_of(turn.key), began)
            ended = max(ended, laps.turn.end_ms)
            spans += _Turn(self._sources, turn, tick, laps, trace, root, content=self._content).spans()
        attributes: Json = {
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.AGENT: self._workflow,
            names.TICK: tick.tick,
            names.CREDITS: float(tick.totals["credits"]),
        }
        if tick.engine_starts > 1:
            attributes[names.ENGINE_STARTS] = tick.engine_starts
        name = f"{names.INVOKE_WORKFLOW} {self._workflow}"
        return [span_of(trace, root, name, Lap(began, ended), attributes), *spans]


class _Turn:
    """The spans of one turn."""

    def __init__(
        self,
        sources: Sources,
        turn: TurnRecord,
        tick: RecordedTick,
        laps: Laps,
        trace: bytes,
        root: bytes,
        *,
        content: bool,
    ) -> None:
        self._sources, self._turn, self._tick, self._laps = sources, turn, tick, laps
        self._trace, self._root, self._content = trace, root, content
        self._id = span_id_of(trace, turn.key)
        self._model: Json = turn.started.model if turn.started else {}
        self._provider = str(self._model.get("provider") or names.OTHER)

    def spans(self) -> Iterator[Json]:
        """Yield the turn, then its questions and its calls of tools."""
        yield self._own()
        yield from map(self._call, self._turn.calls)
        for use in self._turn.tools:
            if use.success is not None:  # else it was asked for, and the turn ended before it
                yield self._tool(use)

    def _own(self) -> Json:
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
                names.AGENT_VERSION: (started.inputs or {}).get("resume", "")[:12],
                names.CONVERSATION: (started.task or {}).get("conversation", ""),
            }
        if report:
            attributes |= {
                names.TURN_END: report.as_json()["end"],
                names.REQUEST: report.request,
                names.CREDITS: float(report.credits),
                names.COST_USD: report.cost_usd,
                **_error(report.error, str(report.as_json().get("code", ""))),
            }
        is_error = bool(report and report.status == "failed")
        found = span_of(
            self._trace, self._id, f"{names.INVOKE_AGENT} {turn.agent}", self._laps.turn, attributes
        )
        found |= {"parentSpanId": self._root.hex(), "events": self._turn_verdicts(), "links": self._links()}
        return ended(found, is_error=is_error, why=report.reason if report and self._content else "")

    def _links(self) -> list[Json]:
        return [
            {"traceId": trace.hex(), "spanId": span.hex()} for trace, span in self._sources.of(self._turn)
        ]

    def _turn_verdicts(self) -> list[Json]:
        """Return what gates and judges said of the turn as a whole."""
        report, at = self._turn.report, self._laps.turn.end_ms
        if report is None:
            return []
        judged = report.judged["verdicts"] if report.judged else []
        return [
            *(_gate(verdict, at) for verdict in report.verdicts),
            *(
                event_of(names.JUDGED, at, {names.JUDGE: it["by"], names.JUDGE_PASSES: it["passes"]})
                for it in judged
            ),
        ]

    # --- questions --------------------------------------------------------------------------------

    def _call(self, call: ModelCall) -> Json:
        lap, record = self._laps.calls[call.call], self._tick.answers[self._turn.agent, call.call]
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
            names.CALL_FOR: self._purpose(call.call),
            names.MODEL_KEY: other or self._own_key,
            names.ATTEMPTS: record.attempts,
        }
        if not other:
            attributes |= self._of_request()
        if isinstance(record, ModelReplied):
            attributes |= _of_reply(record)
        if self._content:
            attributes |= self._texts(call)
        events = [
            event_of(
                names.FAILED_ATTEMPT,
                lap.begin_ms,
                {names.ERROR_TYPE: it["error"], names.ERROR_CODE: it["code"]},
            )
            for it in call.earlier
        ]
        is_error = isinstance(record, ModelFailed)
        if isinstance(record, ModelFailed):
            attributes |= _error(record.error, record.code)
        kind = INTERNAL if not other and self._provider in IN_THE_PROCESS else CLIENT
        named = attributes[names.REQUEST_MODEL] or attributes[names.MODEL_KEY]
        span = span_id_of(self._trace, self._turn.agent, "call", call.call)
        found = span_of(self._trace, span, f"{names.CHAT} {named}", lap, attributes, kind)
        said = [_gate(verdict, lap.end_ms) for verdict in record.verdicts]
        found |= {"parentSpanId": self._id.hex(), "events": [*events, *said]}
        return ended(found, is_error=is_error, why=call.error if self._content else "")

    @property
    def _own_key(self) -> str:
        model = self._turn.started.resume.get("model") if self._turn.started else None
        return str(model.get("key", "")) if isinstance(model, Mapping) else ""

    def _purpose(self, number: int) -> str:
        """Return what a question was for: a reply, its correction, a judge's verdict or a summary."""
        question, started = self._turn.questions.get(number), self._turn.started
        if question and question.schema and [*question.schema.get("properties", ())] == VERDICT:
            return "verdict"
        if question and started:
            with suppress(ConfigError):  # of a capability that is not here, nobody knows what it asked
                for purpose, messages in questions_of(started.given):
                    if question.messages == messages:
                        return purpose
        before = next((it for it in self._turn.calls if it.call == number - 1), None)
        return "correction" if before and before.problem else "reply"

    def _of_request(self) -> Json:
        model = self._turn.started.resume.get("model") if self._turn.started else None
        of_agent = model.get("temperature") if isinstance(model, Mapping) else None
        warmth = self._model.get("temperature") if of_agent is None else of_agent
        options = self._model.get("options") or {}
        return {
            names.REQUEST_MAX_TOKENS: self._model.get("max_output_tokens"),
            names.REQUEST_TEMPERATURE: None if warmth is None else float(warmth),
            **_server(str(options.get("base_url") or options.get("host") or "")),
        }

    def _texts(self, call: ModelCall) -> Json:
        question = self._turn.questions.get(call.call)
        record = self._tick.answers[self._turn.agent, call.call]
        found: Json = {}
        if question:
            found[names.SYSTEM_INSTRUCTIONS] = instructions_in(question.messages)
            found[names.INPUT_MESSAGES] = messages_in(question.messages)
        if isinstance(record, ModelReplied):
            found[names.OUTPUT_MESSAGES] = reply_in(record)
        return found

    # --- calls of tools -----------------------------------------------------------------------------

    def _tool(self, use: ToolUse) -> Json:
        lap = self._laps.tools[use.index]
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
            names.LEAVE_BY: next((it.by for it in notes_of(use.kept)), ""),
        }
        if isinstance(record, ToolFinished):
            attributes[names.ATTEMPTS] = record.attempts
        if not use.success:
            attributes |= _error(
                use.outcome or names.OTHER, OUTCOME_CODES[use.outcome] if use.outcome else ""
            )
        if self._content:
            attributes |= {names.TOOL_ARGUMENTS: arguments_of(use.args), names.TOOL_RESULT: use.output}
        span = span_id_of(self._trace, self._turn.agent, "tool", use.index)
        found = span_of(self._trace, span, f"{operation} {use.tool}", lap, attributes)
        said = [_gate(verdict, lap.end_ms) for verdict in record.verdicts] if record else []
        found |= {"parentSpanId": self._id.hex(), "events": said}
        return ended(found, is_error=not use.success, why="")


# --- what they say ----------------------------------------------------------------------------------


def _gate(verdict: Mapping[str, Any], at_ms: int) -> Json:
    said = {names.GATE_LINE: verdict["line"], names.GATE_AT: verdict["at"], names.GATE_THEN: verdict["then"]}
    return event_of(names.GATE_SAID, at_ms, said)


def _error(kind: str, code: str) -> Json:
    return {names.ERROR_TYPE: kind, names.ERROR_CODE: code} if kind else {}


def _of_reply(record: ModelReplied) -> Json:
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


def _server(address: str) -> Json:
    """Return the server that was asked, if the model's line names one.

    >>> _server("http://127.0.0.1:8080/v1")
    {'server.address': '127.0.0.1', 'server.port': 8080}
    """
    try:
        parts = urlsplit(without_userinfo(address))
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return {}
    return {names.SERVER_ADDRESS: parts.hostname, names.SERVER_PORT: port} if parts.hostname else {}


# --- prompts and answers, only where somebody asks for them --------------------------------------
# In the form of the conventions: gen-ai-input-messages.json and its neighbours.


_FINISH = {
    "stop": "stop", "length": "length", "refusal": "content_filter", "too_large": "length", "failed": "error",
}  # fmt: skip


def instructions_in(messages: Sequence[Message]) -> str:
    """Return the system's messages of a prompt as parts."""
    return _text([_text_part(it["content"]) for it in messages if it["role"] == "system"])


def messages_in(messages: Sequence[Message]) -> str:
    """Return the other messages of a prompt: role and parts of each."""
    return _text([{"role": it["role"], "parts": [*_parts(it)]} for it in messages if it["role"] != "system"])


def reply_in(record: ModelReplied) -> str:
    """Return a model's answer: what it said, what it thought, the calls that it made."""
    thought = [{"type": "reasoning", "content": record.thinking}] if record.thinking else []
    said = [_text_part(record.text)] if record.text else []
    parts = [*thought, *said, *map(_call, record.calls)]
    return _text([{"role": "assistant", "parts": parts, "finish_reason": _FINISH[record.finish]}])


def arguments_of(args: Any) -> str:
    """Return the arguments of a call of a tool; empty when nothing tells them."""
    return "" if args is None else compact(args).decode()


def _parts(message: Message) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {"type": "tool_call_response", "id": message.get("call"), "response": message["content"]}
        return
    if message["content"]:
        yield _text_part(message["content"])
    yield from map(_call, message.get("calls", ()))


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", "id": call["id"], "name": call["tool"], "arguments": call["args"]}


def _text(plain: list[dict[str, Any]]) -> str:
    return compact(plain).decode() if plain else ""
