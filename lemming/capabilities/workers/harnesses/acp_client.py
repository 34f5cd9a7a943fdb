"""Client of the agent client protocol (ACP): one turn of a harness over the pipes of its process.

The client offers neither files nor terminals: the harness works in its own sandbox, and a file that a client wrote for
it would be outside. The protocol's types are those of the package `agent-client-protocol`, extra `workers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, Any

from lemming.capabilities.workers.harnesses.harness_types import (
    ErrorKind,
    HarnessResult,
    HarnessRun,
    PermissionQuestion,
    Progress,
)
from lemming.capabilities.workers.harnesses.output_readers import OutputReader, describe_call
from lemming.capabilities.workers.running.api_shapes import JsonFields
from lemming.kernel.base.errors import Unusable
from lemming.libraries.optional_packages import install_command

MAX_LINE_BYTES = 64 << 20
_STOP_ERRORS: dict[str, ErrorKind] = {"max_turn_requests": "turns", "max_tokens": "model", "refusal": "model"}
# Keys of Codex that differ when a resumed session asks the same question again, and its copies of the command.
_PASSING_KEYS = {
    "call_id", "turn_id", "started_at_ms", "available_decisions", "proposed_execpolicy_amendment", "parsed_cmd",
}  # fmt: skip
_KINDS = {"allow": "allow_once", "deny": "reject_once", "later": "reject_once"}


def run_acp(
    stdin: IO[bytes], stdout: IO[bytes], run: HarnessRun, on_output: Callable[[], object] = lambda: None
) -> HarnessResult:
    """Run one turn over the pipes of a started process, and close both. Blocks until the turn or the process ends.

    `run.permit` decides permission questions in a thread of its own; without it each question is allowed. `on_output` is
    called for each message of the harness, also for those without progress.

    Raises: `Unusable` if the package is not installed.
    """
    try:
        import acp
    except ImportError as error:
        message, hint = "the protocol ACP needs the package agent-client-protocol", install_command("workers")
        raise Unusable(message, where=run.harness.name, hint=hint) from error
    client = _Client(run, on_output)
    try:
        asyncio.run(_run_turn(client, stdin, stdout))
    except acp.RequestError as error:
        client.explain(error)
    except (ConnectionError, EOFError, ValueError) as error:
        # ValueError: an answer that does not fit the protocol
        client.end_turn("exit", f"the harness ended before it answered: {error}")
    return client.finish(0, "")


async def _run_turn(client: _Client, stdin: IO[bytes], stdout: IO[bytes]) -> None:
    import acp
    from acp.schema import ClientCapabilities, FileSystemCapabilities

    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader(limit=MAX_LINE_BYTES)
    source, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), stdout)
    sink, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, stdin)
    offered: Any = client  # without the methods of files and terminals, which the package then refuses
    connection = acp.connect_to_agent(offered, _Messages(lines, sink, client.on_output))
    try:
        files = FileSystemCapabilities(read_text_file=False, write_text_file=False)
        capabilities = ClientCapabilities(fs=files, terminal=False)
        answer = await connection.initialize(acp.PROTOCOL_VERSION, client_capabilities=capabilities)
        agent = answer.agent_capabilities
        if await _open_session(connection, client, can_load=bool(agent and agent.load_session)):
            reply = await connection.prompt(session_id=client.session, prompt=[acp.text_block(client.run.prompt)])
            client.conclude(str(reply.stop_reason))
    finally:
        await connection.close()
        source.close()


class _Messages:
    """Transport of the protocol, as the package calls it: a message is a line of JSON."""

    def __init__(
        self, lines: asyncio.StreamReader, sink: asyncio.WriteTransport, on_output: Callable[[], object]
    ) -> None:
        self._lines, self._sink, self._on_output = lines, sink, on_output

    async def send(self, message: dict[str, Any]) -> None:
        self._sink.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end. Other lines, such as warnings of npm, are passed over."""
        try:
            while line := await self._lines.readline():
                self._on_output()
                with contextlib.suppress(ValueError, RecursionError):
                    if isinstance(message := json.loads(line), dict):
                        return message
        except ValueError:  # a line over `MAX_LINE_BYTES`
            pass
        return None

    async def close(self) -> None:
        self._sink.close()


async def _open_session(connection: Any, client: _Client, *, can_load: bool) -> bool:
    """Begin a session, or load the one to resume. Return False if the harness cannot load it."""
    folder, session = str(client.run.clone), client.run.session
    if session and not can_load:
        client.end_turn("session", f"{client.run.harness.name} cannot load a session")
        return False
    if session:
        client.is_loading = True
        await connection.load_session(cwd=folder, session_id=session, mcp_servers=[])
        client.is_loading = False
    else:
        client.session = str((await connection.new_session(cwd=folder, mcp_servers=[])).session_id)
    client.report(Progress(kind="session", text=client.session))
    return True


class _Client(OutputReader):
    """The client's side of the protocol, and what the turn has told so far."""

    def __init__(self, run: HarnessRun, on_output: Callable[[], object]) -> None:
        super().__init__()
        self.run, self.on_output, self.session, self._line = run, on_output, run.session, ""
        self.is_loading = False  # while the history of a session is told again
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._reported: set[str] = set()
        self._is_refused = False

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Take a notification of the harness: a piece of text or a tool call."""
        if self.is_loading:
            return
        kind = update.session_update
        if kind == "agent_message_chunk" and update.content.type == "text":
            self.text += update.content.text
            self._report_text(update.content.text)
        elif kind in ("tool_call", "tool_call_update"):
            self.text = ""  # the reply is the text after the last call
            self._report_text("\n")
            self._report_call(update, *self._learn_call(update))

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        """Answer a permission question of the harness."""
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        tool, arguments = self._learn_call(tool_call)
        question = PermissionQuestion(tool=tool, input=arguments)
        decision = await asyncio.to_thread(self.run.permit, question) if self.run.permit else "allow"
        self.on_output()
        if decision != "allow":
            self._is_refused = True
        if decision == "later":
            self.questions.append(question)
        # "always" would answer questions that nobody has seen: where there is no option for once, the call is cancelled.
        choice = next((option.option_id for option in options if option.kind == _KINDS[decision]), None)
        if choice is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=choice))

    def _learn_call(self, call: Any) -> tuple[str, Mapping[str, Any]]:
        """Return tool and input of a call, which may come in several messages."""
        tool, arguments = self._calls.get(call.tool_call_id, ("", {}))
        tool = tool or str(call.kind or "") or str(call.title or "")
        if isinstance(call.raw_input, dict) and call.raw_input:
            arguments = {key: value for key, value in call.raw_input.items() if key not in _PASSING_KEYS}
        elif not arguments and call.title:
            # A grant is for exactly this input: the title alone would stand for any text of the file.
            content = [part.model_dump(mode="json", exclude_none=True) for part in call.content or ()]
            arguments = {"title": call.title, "content": content}
        self._calls[call.tool_call_id] = tool, arguments
        return tool, arguments

    def _report_call(self, call: Any, tool: str, arguments: Mapping[str, Any]) -> None:
        paths = [place.path for place in call.locations or ()]
        if call.tool_call_id in self._reported or not (call.raw_input or call.content or paths):
            return  # a call that is only announced is told once its input is there
        self._reported.add(call.tool_call_id)
        progress = describe_call(tool, JsonFields(arguments))
        if paths and call.kind in ("edit", "delete", "move"):
            progress = Progress(kind="file", text=tool, path=paths[0])
        if progress.text == tool and call.title:
            progress = replace(progress, text=f"{tool}: {call.title}")
        self.report(progress)

    def _report_text(self, chunk: str) -> None:
        """Report the lines that a piece of text completes: pieces are as short as a word."""
        *lines, self._line = f"{self._line}{chunk}".split("\n")
        for line in filter(str.strip, lines):
            self.report(Progress(kind="text", text=line))

    def report(self, progress: Progress) -> None:
        """Pass a step of the worker on."""
        if self.run.on_progress is not None:
            self.run.on_progress(progress)

    def conclude(self, stop_reason: str) -> None:
        """Keep the end of a turn that the harness has ended."""
        self._report_text("\n")
        if stop_reason == "end_turn" or self.questions:
            self.end_turn()
        elif stop_reason == "cancelled":
            self.end_turn("stopped", "a permission was refused" if self._is_refused else "the turn was cancelled")
        else:
            message = f"stop reason must be end_turn, got {stop_reason}"
            self.end_turn(_STOP_ERRORS.get(stop_reason, "unreadable"), message)

    def explain(self, error: Any) -> None:
        """Keep the end of a turn by an error of the protocol."""
        details = f"{error} {error.data}" if error.data else str(error)
        self.end_turn("session" if self.is_loading else "auth" if error.code == -32000 else "model", details)
