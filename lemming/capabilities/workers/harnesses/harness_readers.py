"""Output of each harness: where its lines tell text, session, tokens, calls, and the end of the run.

Facts of the released programs. None of their own marks of success can be trusted alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from lemming.capabilities.workers.harnesses.harness_types import (
    Decision,
    ErrorKind,
    PermissionQuestion,
    Permit,
    Progress,
    RunTokens,
)
from lemming.capabilities.workers.harnesses.output_readers import (
    OutputReader,
    TextReader,
    classify_error,
    describe_call,
)
from lemming.capabilities.workers.running.api_shapes import JsonFields
from lemming.ext import ConfigError

LATER_MESSAGE = "A person decides about this. The work goes on after the decision."
_ANSWERS: dict[Decision, dict[str, Any]] = {
    "allow": {"behavior": "allow"},
    "deny": {"behavior": "deny", "message": "This is not permitted."},
    "later": {"behavior": "deny", "message": LATER_MESSAGE, "interrupt": True},
}
_LIMITS: dict[str, ErrorKind] = {"error_max_budget_usd": "budget", "error_max_turns": "turns"}


def make_reader(name: str, earlier: RunTokens | None = None, permit: Permit | None = None) -> OutputReader:
    """Return a reader for the output of one run. `output` of a harness names its reader.

    `earlier`: tokens of the session's runs before this one, as the harness counted them. Codex counts them again.
    `permit`: answers permission questions, which only Claude Code asks on its output.

    Raises: `ConfigError` for an unknown name.
    """
    readers: dict[str, Callable[[], OutputReader]] = {
        "claude-stream-json": lambda: ClaudeReader(permit),
        "codex-json": lambda: CodexReader(earlier or RunTokens()),
        "gemini-json": GeminiReader,
        "opencode-json": OpenCodeReader,
        "pi-json": PiReader,
        "text": TextReader,
    }
    if name not in readers:
        raise ConfigError(f"output must be one of {', '.join(readers)}, got {name!r}")
    return readers[name]()


class ClaudeReader(OutputReader):
    """Reads the output of Claude Code, and answers its permission questions.

    `subtype: success` is no success: an HTTP 400 has it too, with `is_error: true`. The result's `usage` lacks replies
    that were asked for again and those of helpers, `modelUsage` has all of them.

    A question is a line `control_request`, its answer a line `control_response` on standard input, which stays open until
    the result. A question that a person decides later is denied and ends the turn; the session is resumed with the
    decision, and the model repeats the call.
    """

    def __init__(self, permit: Permit | None = None) -> None:
        super().__init__()
        self._permit, self.is_answering = permit, permit is not None

    def encode_prompt(self, prompt: str) -> bytes:
        """Return the prompt, as a line of JSON if questions are answered."""
        if not self._permit:
            return prompt.encode()
        message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        return _encode({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""})

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        kind, subtype = event.get_text("type"), event.get_text("subtype")
        if kind in ("system", "result") and subtype != "error_during_execution":
            yield from self._start_session(event.get_text("session_id"))
        if kind == "assistant":
            for block in event.get_objects("message.content"):
                if block.get_text("type") == "tool_use":
                    yield describe_call(block.get_text("name"), block.get_object("input"))
                elif text := block.get_text("text"):
                    yield Progress(kind="text", text=text)
        elif kind == "control_request" and self._permit:
            self._answer(self._permit, event.get_object("request"), event.get_text("request_id"))
        elif subtype == "api_retry":
            attempt, status = event.get_count("attempt"), event.get_count("error_status")
            yield Progress(kind="text", text=f"the model's server answered {status}, attempt {attempt}")
        elif kind == "result":
            self._read_result(event, subtype)

    def _read_result(self, event: JsonFields, subtype: str) -> None:
        self.is_answering = False
        models = [
            JsonFields(usage).sum_tokens("claude-code") for usage in event.get_object("modelUsage").values.values()
        ]
        self.tokens = sum(models, RunTokens()) if models else event.get_object("usage").sum_tokens("anthropic")
        self.cost_usd = event.get_cost("total_cost_usd")
        text, errors, status = event.get_text("result"), event.get_value("errors"), event.get_count("api_error_status")
        message = "; ".join(str(error) for error in errors) if isinstance(errors, list) else ""
        if subtype == "success" and event.get_value("is_error") is False:
            self.text = text
            self.end_turn()
        elif subtype in _LIMITS:
            self.end_turn(_LIMITS[subtype], message or subtype)
        elif event.get_text("terminal_reason").startswith("aborted"):
            self.end_turn("stopped", message or "the run was interrupted")
        else:
            self.end_turn(classify_error(f"status {status}" if status else text), message or text or subtype)

    def _answer(self, permit: Permit, request: JsonFields, number: str) -> None:
        """Answer a request. Blocks as long as `permit` does."""
        response: dict[str, Any] = {"subtype": "success", "request_id": number}
        if request.get_text("subtype") == "can_use_tool":
            question = PermissionQuestion(tool=request.get_text("tool_name"), input=request.get_object("input").values)
            decision = permit(question)
            if decision == "later":
                self.questions.append(question)
            answer = _ANSWERS[decision]
            response["response"] = {**answer, "updatedInput": question.input} if decision == "allow" else answer
        else:
            error = f"request must be can_use_tool, got {request.get_text('subtype')!r}"
            response |= {"subtype": "error", "error": error}
        self.answers += _encode({"type": "control_response", "response": response})


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


class CodexReader(OutputReader):
    """Reads the output of Codex. `earlier`: tokens of the thread's runs before this one.

    `turn.completed.usage` is that of the whole thread. An item of type `error` is a warning; the run goes on. A command
    that Codex's own sandbox stopped has no line at all.
    """

    def __init__(self, earlier: RunTokens) -> None:
        super().__init__()
        self._earlier = earlier

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        item = event.get_object("item")
        match event.get_text("type"):
            case "thread.started":
                yield from self._start_session(event.get_text("thread_id"))
            case "item.started":
                yield from _describe_item(item, item.get_text("type"))
            case "item.completed" if item.get_text("type") == "agent_message":
                yield from self._tell(item.get_text("text"))
            case "error":  # the server is asked again, or `turn.failed` follows
                yield Progress(kind="text", text=event.get_text("message"))
            case "turn.failed":
                self.end_turn("model", event.get_text("error.message") or "turn.failed")
            case "turn.completed":
                total = event.get_object("usage").sum_tokens("codex")
                # A thread that Codex has cut counts from 0 again.
                is_new = total.input < self._earlier.input or total.output < self._earlier.output
                self.tokens = total if is_new else total - self._earlier
                self.end_turn()


def _describe_item(item: JsonFields, kind: str) -> Iterator[Progress]:
    if kind == "command_execution":
        yield describe_call("shell", item)
    elif kind == "file_change":
        for change in item.get_objects("changes"):
            yield Progress(kind="file", text=change.get_text("kind"), path=change.get_text("path"))
    elif kind not in ("agent_message", "reasoning", "error"):
        yield describe_call(item.get_text("tool") or kind, item)


class PiReader(OutputReader):
    """Reads the output of pi. The exit status is 0 after every error of a model, and pi retries by itself.

    The last message of the model decides. A message without content is what pi makes of an unreadable answer.
    """

    ignored_prefix = '{"type":"message_update"'  # which repeats the whole message so far

    def __init__(self) -> None:
        super().__init__()
        self._last_message = JsonFields(None)

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        match event.get_text("type"):
            case "session":
                yield from self._start_session(event.get_text("id"))
            case "tool_execution_start":
                yield describe_call(event.get_text("toolName"), event.get_object("args"))
            case "auto_retry_start":
                yield Progress(kind="text", text=event.get_text("errorMessage"))
            case "message_end" if event.get_text("message.role") == "assistant":
                self._last_message = message = event.get_object("message")
                self._add_usage(message.get_object("usage").sum_tokens("pi"), message.get_cost("usage.cost.total"))
                yield from self._tell("".join(part.get_text("text") for part in message.get_objects("content")))
            case "agent_end":
                self._read_end(self._last_message.get_text("stopReason"))

    def _read_end(self, reason: str) -> None:
        message = self._last_message.get_text("errorMessage")
        if reason == "aborted":
            self.end_turn("stopped", message or "the run was aborted")
        elif reason != "stop":
            self.end_turn("model", message or f"stopReason must be stop, got {reason!r}")
        elif not self._last_message.get_objects("content"):
            self.end_turn("model", "the model's last message is empty")
        else:
            self.end_turn()


class OpenCodeReader(OutputReader):
    """Reads the output of OpenCode. A step ends with its tokens; reason "stop" ends the run."""

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        yield from self._start_session(event.get_text("sessionID"))
        match event.get_text("type"):
            case "text":
                yield from self._tell(event.get_text("part.text"))
            case "tool_use":
                yield describe_call(event.get_text("part.tool"), event.get_object("part.state.input"))
            case "step_finish":
                tokens = event.get_object("part.tokens").sum_tokens("opencode")
                self._add_usage(tokens, event.get_cost("part.cost"))
                if event.get_text("part.reason") == "stop":
                    self.end_turn()
            case "error":
                status = event.get_count("error.data.statusCode")
                message = event.get_text("error.data.message", "error.name") or "error"
                self.end_turn(classify_error(f"status {status}" if status else message), message)


class GeminiReader(OutputReader):
    """Reads the output of the Gemini CLI. The status of an HTTP error is on standard error only."""

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        match event.get_text("type"):
            case "init":
                yield from self._start_session(event.get_text("session_id"))
            case "message" if event.get_text("role") == "assistant" and (text := event.get_text("content")):
                self.text += text
                yield Progress(kind="text", text=text)
            case "tool_use":
                self.text = ""  # the reply is the text after the last call
                yield describe_call(event.get_text("tool_name"), event.get_object("parameters"))
            case "error":  # the result of a failed run may have no words of its own
                self.message = event.get_text("message")
                yield Progress(kind="text", text=self.message)
            case "result":
                self.tokens = event.get_object("stats").sum_tokens("gemini-cli")
                status, error = event.get_text("status"), event.get_object("error")
                if status == "success" and not error.values:
                    self.end_turn()
                else:
                    message = error.get_text("message") or self.message
                    self.end_turn("model", message or f"status must be success, got {status!r}")
