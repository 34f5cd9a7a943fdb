"""Output of each harness: where its lines tell text, session, tokens, calls, and the end of the run.

Facts of the released programs. None of their own marks of success can be trusted alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from lemming.capabilities.workers.harnesses.harness_types import (
    ErrorKind,
    PermissionQuestion,
    Permit,
    Progress,
    RunTokens,
)
from lemming.capabilities.workers.harnesses.json_fields import (
    JsonObject,
    get_cost,
    get_count,
    get_object,
    get_objects,
    get_text,
    get_tokens,
)
from lemming.capabilities.workers.harnesses.output_readers import (
    OutputReader,
    TextReader,
    classify_error,
    describe_call,
)
from lemming.ext import ConfigError

LATER_MESSAGE = "A person decides about this. The work goes on after the decision."
DENIED_MESSAGE = "This is not permitted."
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

    def _read_event(self, event: JsonObject) -> Iterator[Progress]:
        kind, subtype = get_text(event, "type"), get_text(event, "subtype")
        if kind in ("system", "result") and subtype != "error_during_execution":
            yield from self._start_session(get_text(event, "session_id"))
        if kind == "assistant":
            for block in get_objects(event, "message.content"):
                if get_text(block, "type") == "tool_use":
                    yield describe_call(get_text(block, "name"), get_object(block, "input"))
                elif text := get_text(block, "text"):
                    yield Progress(kind="text", text=text)
        elif kind == "control_request" and self._permit:
            self._answer(self._permit, get_object(event, "request"), get_text(event, "request_id"))
        elif subtype == "api_retry":
            attempt, status = get_count(event, "attempt"), get_count(event, "error_status")
            yield Progress(kind="text", text=f"the model's server answered {status}, attempt {attempt}")
        elif kind == "result":
            self._read_result(event, subtype)

    def _read_result(self, event: JsonObject, subtype: str) -> None:
        self.is_answering = False
        models = get_object(event, "modelUsage")
        self.tokens = get_tokens(get_object(event, "usage"), "anthropic") if not models else RunTokens()
        for usage in models.values():
            self.tokens += get_tokens(usage, "claude-code")
        self.cost_usd = get_cost(event, "total_cost_usd")
        text, errors, status = get_text(event, "result"), event.get("errors"), get_count(event, "api_error_status")
        message = "; ".join(str(error) for error in errors) if isinstance(errors, list) else ""
        if subtype == "success" and event.get("is_error") is False:
            self.text = text
            self._end()
        elif subtype in _LIMITS:
            self._end(_LIMITS[subtype], message or subtype)
        elif get_text(event, "terminal_reason").startswith("aborted"):
            self._end("stopped", message or "the run was interrupted")
        else:
            self._end(classify_error(f"status {status}" if status else text), message or text or subtype)

    def _answer(self, permit: Permit, request: JsonObject, number: str) -> None:
        """Answer a request. Blocks as long as `permit` does."""
        if get_text(request, "subtype") != "can_use_tool":
            error = f"request must be can_use_tool, got {get_text(request, 'subtype')!r}"
            response: dict[str, Any] = {"subtype": "error", "request_id": number, "error": error}
        else:
            question = PermissionQuestion(tool=get_text(request, "tool_name"), input=get_object(request, "input"))
            decision = permit(question)
            if decision == "allow":
                answer: dict[str, Any] = {"behavior": "allow", "updatedInput": question.input}
            elif decision == "later":
                self.questions.append(question)
                answer = {"behavior": "deny", "message": LATER_MESSAGE, "interrupt": True}
            else:
                answer = {"behavior": "deny", "message": DENIED_MESSAGE}
            response = {"subtype": "success", "request_id": number, "response": answer}
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

    def _read_event(self, event: JsonObject) -> Iterator[Progress]:
        item = get_object(event, "item")
        match get_text(event, "type"):
            case "thread.started":
                yield from self._start_session(get_text(event, "thread_id"))
            case "item.started":
                yield from _describe_item(item, get_text(item, "type"))
            case "item.completed" if get_text(item, "type") == "agent_message":
                yield from self._tell(get_text(item, "text"))
            case "error":  # the server is asked again, or `turn.failed` follows
                yield Progress(kind="text", text=get_text(event, "message"))
            case "turn.failed":
                self._end("model", get_text(event, "error.message") or "turn.failed")
            case "turn.completed":
                total = get_tokens(get_object(event, "usage"), "codex")
                # A thread that Codex has cut counts from 0 again.
                is_new = total.input < self._earlier.input or total.output < self._earlier.output
                self.tokens = total if is_new else total - self._earlier
                self._end()


def _describe_item(item: JsonObject, kind: str) -> Iterator[Progress]:
    if kind == "command_execution":
        yield describe_call("shell", item)
    elif kind == "file_change":
        for change in get_objects(item, "changes"):
            yield Progress(kind="file", text=get_text(change, "kind"), path=get_text(change, "path"))
    elif kind not in ("agent_message", "reasoning", "error"):
        yield describe_call(get_text(item, "tool") or kind, item)


class PiReader(OutputReader):
    """Reads the output of pi. Its exit status is 0 after every error of a model, and it retries by itself.

    The last message of the model decides. One without content is what pi makes of an answer that it could not read.
    """

    ignored_prefix = '{"type":"message_update"'  # which repeats the whole message so far

    def __init__(self) -> None:
        super().__init__()
        self._last_message: JsonObject = {}

    def _read_event(self, event: JsonObject) -> Iterator[Progress]:
        match get_text(event, "type"):
            case "session":
                yield from self._start_session(get_text(event, "id"))
            case "tool_execution_start":
                yield describe_call(get_text(event, "toolName"), get_object(event, "args"))
            case "auto_retry_start":
                yield Progress(kind="text", text=get_text(event, "errorMessage"))
            case "message_end" if get_text(event, "message.role") == "assistant":
                self._last_message = message = get_object(event, "message")
                self._add_usage(get_tokens(get_object(message, "usage"), "pi"), get_cost(message, "usage.cost.total"))
                yield from self._tell("".join(get_text(part, "text") for part in get_objects(message, "content")))
            case "agent_end":
                self._read_end(get_text(self._last_message, "stopReason"))

    def _read_end(self, reason: str) -> None:
        message = get_text(self._last_message, "errorMessage")
        if reason == "aborted":
            self._end("stopped", message or "the run was aborted")
        elif reason != "stop":
            self._end("model", message or f"stopReason must be stop, got {reason!r}")
        elif not get_objects(self._last_message, "content"):
            self._end("model", "the model's last message is empty")
        else:
            self._end()


class OpenCodeReader(OutputReader):
    """Reads the output of OpenCode. A step ends with its tokens; reason "stop" ends the run."""

    def _read_event(self, event: JsonObject) -> Iterator[Progress]:
        yield from self._start_session(get_text(event, "sessionID"))
        match get_text(event, "type"):
            case "text":
                yield from self._tell(get_text(event, "part.text"))
            case "tool_use":
                yield describe_call(get_text(event, "part.tool"), get_object(event, "part.state.input"))
            case "step_finish":
                tokens = get_tokens(get_object(event, "part.tokens"), "opencode")
                self._add_usage(tokens, get_cost(event, "part.cost"))
                if get_text(event, "part.reason") == "stop":
                    self._end()
            case "error":
                status = get_count(event, "error.data.statusCode")
                message = get_text(event, "error.data.message", "error.name") or "error"
                self._end(classify_error(f"status {status}" if status else message), message)


class GeminiReader(OutputReader):
    """Reads the output of the Gemini CLI. The status of an HTTP error is on standard error only."""

    def _read_event(self, event: JsonObject) -> Iterator[Progress]:
        match get_text(event, "type"):
            case "init":
                yield from self._start_session(get_text(event, "session_id"))
            case "message" if get_text(event, "role") == "assistant" and (text := get_text(event, "content")):
                self.text += text
                yield Progress(kind="text", text=text)
            case "tool_use":
                self.text = ""  # the reply is the text after the last call
                yield describe_call(get_text(event, "tool_name"), get_object(event, "parameters"))
            case "error":  # the result of a failed run may have no words of its own
                self.message = get_text(event, "message")
                yield Progress(kind="text", text=self.message)
            case "result":
                self.tokens = get_tokens(get_object(event, "stats"), "gemini-cli")
                status, error = get_text(event, "status"), get_object(event, "error")
                if status == "success" and not error:
                    self._end()
                else:
                    message = get_text(error, "message") or self.message
                    self._end("model", message or f"status must be success, got {status!r}")
