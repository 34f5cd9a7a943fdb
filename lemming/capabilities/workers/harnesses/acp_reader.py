"""The agent client protocol (ACP): one turn of a harness, by the package `agent-client-protocol` of the extra `workers`.

The package has the requests, the permission question and the types; the driver of all harnesses has the pipes. The client
offers neither files nor terminals: the harness works in its own sandbox, and a file that a client wrote for it would be
outside.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lemming.capabilities.workers.harnesses.harness_types import ErrorKind, Harness, HarnessEnd, Permit, Progress
from lemming.capabilities.workers.harnesses.json_fields import JsonFields, RunTokens, clean_text
from lemming.capabilities.workers.harnesses.output_readers import (
    ClaudeReader,
    OutputReader,
    TextReader,
    describe_call,
    encode,
)
from lemming.kernel.base.errors import Unusable
from lemming.libraries.optional_packages import install_command

if TYPE_CHECKING:
    from acp import schema
    from pydantic import BaseModel

_STOP_ERRORS: dict[schema.StopReason, ErrorKind] = {
    "end_turn": "", "cancelled": "stopped", "max_turn_requests": "turns", "max_tokens": "model", "refusal": "model",
}  # fmt: skip
# Keys of Codex that differ when a resumed session asks the same question again, and its copies of the command.
_PASSING_KEYS = {
    "call_id", "turn_id", "started_at_ms", "available_decisions", "proposed_execpolicy_amendment", "parsed_cmd",
}  # fmt: skip

# The connection takes them for granted, and another type would leave a request without its answer.
_TYPES: dict[str, tuple[type, ...]] = {"id": (int, str), "method": (str,), "error": (dict,)}


class _IdleSelector(selectors.DefaultSelector):
    """Stops its loop where it would wait: everything received so far is handled then."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            asyncio.get_running_loop().stop()
        return super().select(timeout or 0)


class _Messages:
    """The transport of the package's connection: messages that the driver of all harnesses has read, and will write."""

    def __init__(self, reader: OutputReader) -> None:
        self._reader, self.received = reader, asyncio.Queue[Mapping[str, Any] | None]()

    async def send(self, message: dict[str, Any]) -> None:
        self._reader.answers += encode(message)

    async def receive(self) -> Any:
        return await self.received.get()

    async def close(self) -> None:
        """Do nothing: the driver closes the pipes."""


def _to_recorded_part(part: BaseModel) -> dict[str, Any]:
    """Return a part of a call's content as grants have it: only the outer keys in snake case."""
    values = part.model_dump(by_alias=True, exclude_unset=True)
    keys = {name: field.alias or name for name, field in type(part).model_fields.items()}
    return {name: values[key] for name, key in keys.items() if values.get(key) is not None}


class AcpReader(OutputReader):
    """Holds the conversation of a turn: initialize, open a session, prompt, and read the updates until the answer.

    Raises `Unusable` if the package is not installed. It is imported here alone: 0.4 s, types of the whole protocol.
    """

    ends_process = True

    def __init__(self, harness: Harness, earlier: RunTokens | None = None, permit: Permit | None = None) -> None:
        super().__init__(harness, earlier, permit)
        if find_spec("acp") is None:
            message = "a harness by ACP needs the package agent-client-protocol, which is not installed"
            raise Unusable(message, where=harness.name, hint=install_command("workers"))
        self._loop, self._messages = asyncio.SelectorEventLoop(_IdleSelector()), _Messages(self)
        self._steps, self._line = list[Progress](), ""  # of the turn, and the last line of a text
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._reported: set[str] = set()
        self._is_refused = False

    def begin(self, prompt: str, *, session: str = "", folder: str = "") -> bytes:
        """Return the request that starts the conversation."""
        self.is_answering = True
        self._turn = self._loop.create_task(self._hold_turn(prompt, session, folder))  # a loop keeps no task alive
        self._go_on()
        start, self.answers = self.answers, b""
        return start

    def close(self) -> None:
        """End the conversation, if it has not ended. Repeatable."""
        if not self._loop.is_closed():
            self._go_on(None)
            self._loop.close()

    def finish(self, exit_status: int, error_output: str) -> HarnessEnd:
        """Return the result. The exit status tells nothing: most adapters stay until they are ended."""
        self.close()
        result = super().finish(0, error_output)
        return replace(result, message=f"{result.message} {error_output}".strip()) if result.error else result

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        from acp import CLIENT_METHODS, schema

        message = {key: value for key, value in event.values.items() if isinstance(value, _TYPES.get(key, (object,)))}
        if "id" in message:
            self._go_on(message)
            yield from self._steps
            self._steps.clear()
        # What comes before the session is open is its history.
        elif self.session and event.get_text("method") == CLIENT_METHODS["session_update"]:
            # Not through the connection: it would print a traceback for each update that does not fit.
            try:
                notification = schema.SessionNotification.model_validate(event.get_value("params"))
            except ValueError:
                return
            yield from self._read_update(notification.update)

    def _go_on(self, *messages: Mapping[str, Any] | None) -> None:
        """Let the turn and the connection go on as far as they can. None is the end of the output."""
        for message in messages:
            self._messages.received.put_nowait(message)
        thread = threading.Thread(target=self._loop.run_forever)  # that of the caller may have a running loop
        thread.start()
        thread.join()

    async def _hold_turn(self, prompt: str, session: str, folder: str) -> None:
        import acp

        connection, is_loading = acp.connect_to_agent(self, self._messages), False  # type: ignore[arg-type]  # no files
        try:
            answer = await connection.initialize(acp.PROTOCOL_VERSION)
            if not session:
                session = (await connection.new_session(folder, mcp_servers=[])).session_id
            elif answer.agent_capabilities and answer.agent_capabilities.load_session:
                is_loading = True
                await connection.load_session(folder, session, mcp_servers=[])
                is_loading = False
            else:
                return self.end_turn("session", f"{self._harness.name} cannot load a session")
            self._steps += self._start_session(clean_text(session))
            self._conclude((await connection.prompt(session, [acp.text_block(prompt)])).stop_reason)
        except acp.RequestError as error:
            kind: ErrorKind = "auth" if error.code == acp.RequestError.auth_required().code else "model"
            self.end_turn("session" if is_loading else kind, clean_text(f"{error} {error.data or ''}".strip()))
        except ValueError as error:
            self.end_turn("unreadable", clean_text(f"an answer must fit the protocol, got {error}"))
        except ConnectionError:
            self.end_turn("exit", "the harness ended before it answered")

    def _conclude(self, stop_reason: schema.StopReason) -> None:
        self._steps += self._read_text("\n")
        error: ErrorKind = "" if self.questions else _STOP_ERRORS[stop_reason]
        refused = " after a permission was refused" if self._is_refused else ""
        self.end_turn(error, f"stop reason must be end_turn, got {stop_reason}{refused}" if error else "")

    def _read_update(self, update: Any) -> Iterator[Progress]:
        if update.session_update == "agent_message_chunk" and update.content.type == "text":
            text = clean_text(update.content.text)
            self.text += text
            yield from self._read_text(text)
        elif update.session_update in ("tool_call", "tool_call_update"):
            self.text = ""  # the reply is the text after the last call
            yield from self._read_text("\n")
            yield from self._describe_call(update, *self._learn_call(update))

    def _read_text(self, chunk: str) -> Iterator[Progress]:
        """Yield the lines that a piece of text completes: pieces are as short as a word."""
        *lines, self._line = f"{self._line}{chunk}".split("\n")
        yield from (Progress(kind="text", text=line) for line in lines if line.strip())

    def _learn_call(self, call: schema.ToolCall | schema.ToolCallUpdate) -> tuple[str, Mapping[str, Any]]:
        """Return tool and input of a call, which may come in several messages."""
        tool, arguments = self._calls.get(call.tool_call_id, ("", {}))
        tool = tool or clean_text(call.kind or call.title or "")
        if isinstance(call.raw_input, dict) and call.raw_input:
            arguments = {key: value for key, value in call.raw_input.items() if key not in _PASSING_KEYS}
        elif not arguments and call.title:
            # A grant is for exactly this input: the title alone would stand for any text of the file.
            arguments = {"title": clean_text(call.title), "content": [*map(_to_recorded_part, call.content or ())]}
        self._calls[call.tool_call_id] = tool, arguments
        return tool, arguments

    def _describe_call(
        self, call: schema.ToolCall | schema.ToolCallUpdate, tool: str, arguments: Mapping[str, Any]
    ) -> Iterator[Progress]:
        title, places = clean_text(call.title or ""), call.locations
        if call.tool_call_id in self._reported or not (call.raw_input or call.content or places):
            return  # a call that is only announced is told once its input is there
        self._reported.add(call.tool_call_id)
        progress = describe_call(tool, JsonFields(arguments))
        if places and call.kind in ("edit", "delete", "move"):
            progress = Progress(kind="file", text=tool, path=clean_text(places[0].path))
        yield replace(progress, text=f"{tool}: {title}") if progress.text == tool and title else progress

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        """Answer a permission question, which the package passes on."""
        from acp import schema

        decision = self._decide(*self._learn_call(tool_call))
        self._is_refused = self._is_refused or decision != "allow"
        # "always" would answer questions that nobody has seen: where there is no option for once, the call is cancelled.
        kind = "allow_once" if decision == "allow" else "reject_once"
        choice = next((option.option_id for option in options if option.kind == kind), None)
        if choice is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=choice))


READERS = {"text": TextReader, "events": OutputReader, "claude": ClaudeReader, "acp": AcpReader}
"""Classes of readers by `output` of a harness."""
