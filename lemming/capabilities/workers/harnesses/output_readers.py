"""Readers of the output of harnesses: plain text, events by rules, and the questions of Claude Code.

A line of output is written by a program that a model steers. The end of a run is success only if a line says so that
only a complete run prints, and the exit status agrees. Nothing in the output raises.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from lemming.capabilities.workers.harnesses.harness_types import (
    Decision,
    ErrorKind,
    EventRule,
    Harness,
    HarnessEnd,
    PermissionQuestion,
    Permit,
    Progress,
)
from lemming.capabilities.workers.harnesses.json_fields import JsonFields, RunTokens

MAX_MESSAGE_CHARS, MAX_TEXT_CHARS = 2000, 1_000_000
_LAST_LINES = 5
_STATUS = re.compile(r"(?:status:? |API Error: |HTTP |\(|^)([45]\d\d)\b", re.M)
_KINDS: dict[str, ErrorKind] = {"401": "auth", "403": "auth", "429": "rate_limit", "529": "rate_limit"}
_NAMES: dict[str, ErrorKind] = {
    "authentication_error": "auth", "authentication_failed": "auth", "UNAUTHENTICATED": "auth",
    "PERMISSION_DENIED": "auth", "rate_limit_error": "rate_limit", "RESOURCE_EXHAUSTED": "rate_limit",
}  # fmt: skip
_NO_SESSION = re.compile(
    r"No (conversation|session) found|Session not found|no rollout found|Invalid session identifier"
)
_SIGNAL_STATUSES = (130, 143)  # a program that catches SIGINT or SIGTERM and says so
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_EDITING_TOOLS = ("write", "edit", "multiedit", "notebookedit", "write_file", "replace", "patch")


def classify_error(*texts: str) -> ErrorKind:
    """Return the kind of an error of the model's server, from the words of a harness.

    >>> classify_error("unexpected status 401 Unauthorized: no key"), classify_error("400 bad request")
    ('auth', 'model')
    """
    for text in texts:
        if match := _STATUS.search(text):
            return _KINDS.get(match[1], "model")
        if kind := next((kind for name, kind in _NAMES.items() if name in text), None):
            return kind
    return "model"


def describe_call(tool: str, arguments: JsonFields) -> Progress:
    """Return the progress of a tool call: a changed file, or the tool with its most telling argument."""
    path = arguments.get_text("file_path", "filePath", "path", "notebook_path")
    if path and tool.lower() in _EDITING_TOOLS:
        return Progress(kind="file", text=tool, path=path)
    detail = arguments.get_text("command", "cmd", "pattern", "query", "url", "description") or path
    return Progress(kind="tool", text=f"{tool}: {detail}" if detail else tool, path=path)


class OutputReader:
    """Reads the output of one run by the rules of its harness, and writes its input.

    `earlier`: tokens of the session's runs before this one, as the harness counted them. `permit`: decides permission
    questions. `answers`: bytes for standard input, which the caller takes. `is_answering`: the input stays open for
    answers. `ends_process`: the harness stays when the turn has ended, and has to be ended.
    """

    is_answering = ends_process = False

    def __init__(self, harness: Harness, earlier: RunTokens | None = None, permit: Permit | None = None) -> None:
        self._harness, self._earlier, self._permit = harness, earlier or RunTokens(), permit
        self.text, self.session, self.message, self.answers = "", "", "", b""
        self.tokens: RunTokens | None = None
        self.cost_usd: float | None = None
        self.error: ErrorKind | None = None  # empty once the harness has told a success, None until it has told an end
        self.questions: list[PermissionQuestion] = []
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    def begin(self, prompt: str, *, session: str = "", folder: str = "") -> bytes:
        """Return the input that starts the turn. `session`: the one to resume. `folder`: the clone."""
        return prompt.encode()

    def read_line(self, line: bytes) -> Iterator[Progress]:
        """Yield the progress that a line of standard output tells."""
        text, skipped = line.decode("utf-8", "replace").strip(), self._harness.skipped_prefix
        if text:
            self._last_lines.append(text[:MAX_MESSAGE_CHARS])
        try:
            event = {} if skipped and text.startswith(skipped) else json.loads(text)
        except (ValueError, RecursionError):  # words of another program, or a line that was cut
            return
        if isinstance(event, dict):
            yield from self._read_event(JsonFields(event))

    def finish(self, exit_status: int, error_output: str) -> HarnessEnd:
        """Return the result, once the harness has ended. `exit_status` is negative for a signal."""
        error, message = self.error, self.message
        error_output = _COLOURS.sub("", error_output)
        if error == "" and exit_status != 0:
            error, message = "exit", f"exit status must be 0 after a success, got {exit_status}"
        if error is None:
            is_signal = exit_status < 0 or exit_status in _SIGNAL_STATUSES
            error = "stopped" if is_signal else "exit" if exit_status else "unreadable"
            message = error_output.strip()[-MAX_MESSAGE_CHARS:]
        elif error == "model":
            # The line that tells an error often lacks the status of the HTTP answer.
            error = classify_error(message, error_output)
        if error:
            message = message or "\n".join(self._last_lines)[-MAX_MESSAGE_CHARS:]
            message = message or f"no output, exit status {exit_status}"
        if error and _NO_SESSION.search(message):
            error = "session"
        if error == "stopped" and self.questions:  # a question for a person interrupts the turn
            error, message = "", ""
        return HarnessEnd(
            text=self.text.strip(), session=self.session, tokens=self.tokens, cost_usd=self.cost_usd, error=error,
            message=message, questions=tuple(self.questions),
        )  # fmt: skip

    def close(self) -> None:
        """Release what the reader holds, also after an error. Repeatable."""

    def end_turn(self, error: ErrorKind = "", message: str = "") -> None:
        """Keep the end of the run: an error, or success."""
        self.error, self.message, self.is_answering = error, message[:MAX_MESSAGE_CHARS], False

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        for rule in self._harness.events:
            parts = event.get_objects(rule.objects) if rule.objects else [event]
            for part in parts:
                fields = JsonFields({**event.values, "object": part.values}) if rule.objects else event
                is_met = all(fields.has_value(path, options) for path, options in rule.when.items())
                if is_met and not any(fields.has_value(path, options) for path, options in rule.unless.items()):
                    yield from self._apply(rule, fields)

    def _apply(self, rule: EventRule, event: JsonFields) -> Iterator[Progress]:
        yield from self._start_session(event.fill(rule.session))
        if rule.reply is not None:
            reply = event.fill(rule.reply)
            self.text = self.text + reply if rule.adds else reply or (self.text if rule.reply else "")
        if text := event.fill(*rule.say):
            yield Progress(kind="text", text=text)
        if tool := event.fill(*rule.tool):
            path = event.fill(rule.file)
            call = describe_call(tool, event.get_object(rule.input))
            yield Progress(kind="file", text=tool, path=path) if path else call
        if rule.usage and rule.end is not None:  # of the whole run
            self.tokens = self.cost_usd = None
        for usage in next(filter(None, map(event.get_objects, rule.usage)), []):
            self.tokens = (self.tokens or RunTokens()) + self._count_tokens(usage)
        if cost_usd := event.get_cost(rule.cost):  # a cost of 0 is that of a model without a price
            self.cost_usd = (self.cost_usd or 0.0) + cost_usd
        self.message = event.fill(*rule.message) or self.message
        if rule.end is not None:
            status = event.fill(rule.status)
            kind = classify_error(f"status {status}") if rule.end == "model" and status else rule.end
            self.end_turn(kind, self.message if kind else "")

    def _count_tokens(self, usage: JsonFields) -> RunTokens:
        total = usage.sum_tokens(self._harness.tokens)
        # A session that the harness has cut counts from 0 again.
        is_new = total.input < self._earlier.input or total.output < self._earlier.output
        return total - self._earlier if self._harness.counts_session and not is_new else total

    def _decide(self, tool: str, arguments: Mapping[str, Any]) -> Decision:
        """Return the answer to a permission question. Blocks as long as `permit` does."""
        question = PermissionQuestion(tool=tool, input=arguments)
        decision = self._permit(question) if self._permit else "allow"
        if decision == "later":
            self.questions.append(question)
        return decision

    def _start_session(self, session: str) -> Iterator[Progress]:
        if session and session != self.session:
            self.session = session
            yield Progress(kind="session", text=session)


class TextReader(OutputReader):
    """Reads plain text: all of standard output is the reply, and the exit status decides."""

    def __init__(self, harness: Harness, earlier: RunTokens | None = None, permit: Permit | None = None) -> None:
        super().__init__(harness, earlier, permit)
        self._lines, self._size = list[str](), 0

    def read_line(self, line: bytes) -> Iterator[Progress]:
        """Yield a line as progress."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        self._size += len(text) + 1
        if self._size <= MAX_TEXT_CHARS:
            self._lines.append(text)
            yield Progress(kind="text", text=text)

    def finish(self, exit_status: int, error_output: str) -> HarnessEnd:
        """Return the result. `exit_status` is negative for a signal."""
        self.text = "\n".join(self._lines)
        if exit_status == 0 and self._size <= MAX_TEXT_CHARS:
            self.end_turn()
        elif exit_status == 0:
            self.end_turn("unreadable", f"output must have at most {MAX_TEXT_CHARS} characters, got {self._size}")
        return super().finish(exit_status, error_output)


LATER_MESSAGE = "A person decides about this. The work goes on after the decision."
_ANSWERS: dict[Decision, dict[str, Any]] = {
    "allow": {"behavior": "allow"},
    "deny": {"behavior": "deny", "message": "This is not permitted."},
    "later": {"behavior": "deny", "message": LATER_MESSAGE, "interrupt": True},
}


class ClaudeReader(OutputReader):
    """Answers the permission questions of Claude Code besides reading its events.

    A question is a line `control_request`, its answer a line `control_response` on standard input, which stays open until
    the result. A question that a person decides later is denied and ends the turn; the session is resumed with the
    decision, and the model repeats the call.
    """

    def begin(self, prompt: str, *, session: str = "", folder: str = "") -> bytes:
        """Return the prompt, as a line of JSON if questions are answered."""
        if not self._permit:
            return prompt.encode()
        self.is_answering = True
        message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        return encode({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""})

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        yield from super()._read_event(event)
        if event.get_text("type") == "control_request" and self._permit:
            self._answer(event.get_object("request"), event.get_text("request_id"))

    def _answer(self, request: JsonFields, number: str) -> None:
        response: dict[str, Any] = {"subtype": "success", "request_id": number}
        if request.get_text("subtype") == "can_use_tool":
            arguments = request.get_object("input").values
            decision = self._decide(request.get_text("tool_name"), arguments)
            answer = _ANSWERS[decision]
            response["response"] = {**answer, "updatedInput": arguments} if decision == "allow" else answer
        else:
            error = f"request must be can_use_tool, got {request.get_text('subtype')!r}"
            response |= {"subtype": "error", "error": error}
        self.answers += encode({"type": "control_response", "response": response})


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as a line of JSON."""
    return json.dumps(message).encode() + b"\n"
