"""The agent client protocol (ACP): one turn of a harness, as lines of JSON-RPC on its standard input and output.

The client offers neither files nor terminals: the harness works in its own sandbox, and a file that a client wrote for
it would be outside. https://agentclientprotocol.com, version 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lemming.capabilities.workers.harnesses.harness_types import (
    ErrorKind,
    Harness,
    HarnessEnd,
    Permit,
    Progress,
)
from lemming.capabilities.workers.harnesses.json_fields import JsonFields, RunTokens
from lemming.capabilities.workers.harnesses.output_readers import (
    ClaudeReader,
    OutputReader,
    TextReader,
    describe_call,
    encode,
)

_METHOD_NOT_FOUND, _AUTH_REQUIRED = -32601, -32000
_STOP_ERRORS: dict[str, ErrorKind] = {"max_turn_requests": "turns", "max_tokens": "model", "refusal": "model"}
# Keys of Codex that differ when a resumed session asks the same question again, and its copies of the command.
_PASSING_KEYS = {
    "call_id", "turn_id", "started_at_ms", "available_decisions", "proposed_execpolicy_amendment", "parsed_cmd",
}  # fmt: skip
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")


class AcpReader(OutputReader):
    """Holds the conversation of a turn: initialize, open a session, prompt, and read the updates until the answer."""

    ends_process = True

    def __init__(self, harness: Harness, earlier: RunTokens | None = None, permit: Permit | None = None) -> None:
        super().__init__(harness, earlier, permit)
        self._method, self._number, self._line = "", 0, ""  # of the last request, and the last line of a text
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._reported: set[str] = set()
        self._is_refused = False

    def begin(self, prompt: str, *, session: str = "", folder: str = "") -> bytes:
        """Return the request that starts the conversation."""
        self.is_answering, self._prompt, self._resumed, self._folder = True, prompt, session, folder
        offered = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        self._request("initialize", protocolVersion=1, clientCapabilities=offered)
        start, self.answers = self.answers, b""
        return start

    def finish(self, exit_status: int, error_output: str) -> HarnessEnd:
        """Return the result. The exit status tells nothing: most adapters stay until they are ended."""
        if self.error is None:
            self.end_turn("exit", "the harness ended before it answered")
        result = super().finish(0, error_output)
        return replace(result, message=f"{result.message} {error_output}".strip()) if result.error else result

    def _send(self, **message: Any) -> None:
        self.answers += encode({"jsonrpc": "2.0", **message})

    def _request(self, method: str, **parameters: Any) -> None:
        self._method, self._number = method, self._number + 1
        self._send(id=self._number, method=method, params=parameters)

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        method, number = event.get_text("method"), event.get_value("id")
        if method == "session/update" and self._method == "session/prompt":  # not the history of a session
            yield from self._read_update(event.get_object("params.update"))
        elif method == "session/request_permission":
            self._answer(number, event.get_object("params.toolCall"), event.get_objects("params.options"))
        elif method and number is not None:
            self._send(id=number, error={"code": _METHOD_NOT_FOUND, "message": "Method not found"})
        elif number == self._number and not method:
            yield from self._go_on(event.get_object("error"), event.get_object("result"))

    def _go_on(self, error: JsonFields, result: JsonFields) -> Iterator[Progress]:
        """Take the answer to the last request, and send the next one."""
        session, place = self._resumed, {"cwd": self._folder, "mcpServers": []}
        if error.values:
            is_auth = error.get_value("code") == _AUTH_REQUIRED
            kind: ErrorKind = "session" if self._method == "session/load" else "auth" if is_auth else "model"
            self.end_turn(kind, f"{error.get_text('message')} {error.get_value('data') or ''}".strip())
        elif self._method == "session/prompt":
            yield from self._read_text("\n")
            self._conclude(result.get_text("stopReason"))
        elif self._method != "initialize":
            yield from self._start_session(result.get_text("sessionId") or session)
            text = {"type": "text", "text": self._prompt}
            self._request("session/prompt", sessionId=self.session, prompt=[text])
        elif not session:
            self._request("session/new", **place)
        elif result.get_value("agentCapabilities.loadSession"):
            self._request("session/load", sessionId=session, **place)
        else:
            self.end_turn("session", f"{self._harness.name} cannot load a session")

    def _conclude(self, stop_reason: str) -> None:
        if stop_reason == "end_turn" or self.questions:
            self.end_turn()
        elif stop_reason == "cancelled":
            self.end_turn("stopped", "a permission was refused" if self._is_refused else "the turn was cancelled")
        else:
            message = f"stop reason must be end_turn, got {stop_reason}"
            self.end_turn(_STOP_ERRORS.get(stop_reason, "unreadable"), message)

    def _read_update(self, update: JsonFields) -> Iterator[Progress]:
        kind = update.get_text("sessionUpdate")
        if kind == "agent_message_chunk":
            text = update.get_text("content.text")
            self.text += text
            yield from self._read_text(text)
        elif kind in ("tool_call", "tool_call_update"):
            self.text = ""  # the reply is the text after the last call
            yield from self._read_text("\n")
            yield from self._describe_call(update, *self._learn_call(update))

    def _read_text(self, chunk: str) -> Iterator[Progress]:
        """Yield the lines that a piece of text completes: pieces are as short as a word."""
        *lines, self._line = f"{self._line}{chunk}".split("\n")
        yield from (Progress(kind="text", text=line) for line in lines if line.strip())

    def _learn_call(self, call: JsonFields) -> tuple[str, Mapping[str, Any]]:
        """Return tool and input of a call, which may come in several messages."""
        number = call.get_text("toolCallId")
        tool, arguments = self._calls.get(number, ("", {}))
        tool, title = tool or call.get_text("kind", "title"), call.get_text("title")
        if raw := call.get_object("rawInput").values:
            arguments = {key: value for key, value in raw.items() if key not in _PASSING_KEYS}
        elif not arguments and title:
            # A grant is for exactly this input: the title alone would stand for any text of the file.
            parts = [{_to_snake_case(key): value for key, value in part.values.items() if value is not None}
                     for part in call.get_objects("content")]  # fmt: skip
            arguments = {"title": title, "content": parts}
        self._calls[number] = tool, arguments
        return tool, arguments

    def _describe_call(self, call: JsonFields, tool: str, arguments: Mapping[str, Any]) -> Iterator[Progress]:
        number, title = call.get_text("toolCallId"), call.get_text("title")
        paths = [place.get_text("path") for place in call.get_objects("locations")]
        if number in self._reported or not (call.get_value("rawInput") or call.get_value("content") or paths):
            return  # a call that is only announced is told once its input is there
        self._reported.add(number)
        progress = describe_call(tool, JsonFields(arguments))
        if paths and call.get_text("kind") in ("edit", "delete", "move"):
            progress = Progress(kind="file", text=tool, path=paths[0])
        yield replace(progress, text=f"{tool}: {title}") if progress.text == tool and title else progress

    def _answer(self, number: Any, call: JsonFields, options: list[JsonFields]) -> None:
        decision = self._decide(*self._learn_call(call))
        self._is_refused = self._is_refused or decision != "allow"
        # "always" would answer questions that nobody has seen: where there is no option for once, the call is cancelled.
        kind = "allow_once" if decision == "allow" else "reject_once"
        choice = next((option.get_text("optionId") for option in options if option.get_text("kind") == kind), "")
        outcome = {"outcome": "selected", "optionId": choice} if choice else {"outcome": "cancelled"}
        self._send(id=number, result={"outcome": outcome})


def _to_snake_case(name: str) -> str:
    """Return a key as grants in journals have it."""
    return _CAPITAL.sub(lambda match: f"_{match[1].lower()}", name)


READERS = {"text": TextReader, "events": OutputReader, "claude": ClaudeReader, "acp": AcpReader}
"""Classes of readers by `output` of a harness."""
