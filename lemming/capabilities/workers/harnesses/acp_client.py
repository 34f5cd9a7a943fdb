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
    PermissionQuestion,
    Progress,
)
from lemming.capabilities.workers.harnesses.line_reader import MAX_MESSAGE_CHARS, classify_error, describe_call
from lemming.capabilities.workers.running.run_types import HarnessRun
from lemming.kernel.base.errors import Unusable
from lemming.kernel.base.optional_packages import install_command

MAX_LINE_BYTES = 64 << 20
_STOP_ERRORS: dict[str, ErrorKind] = {"max_turn_requests": "turns", "max_tokens": "model", "refusal": "model"}
# Keys of Codex that differ when a resumed session asks the same question again, and its copies of the command.
_PASSING_KEYS = {
    "call_id", "turn_id", "started_at_ms", "available_decisions", "proposed_execpolicy_amendment", "parsed_cmd",
}  # fmt: skip
_KINDS = {"allow": "allow_once", "deny": "reject_once", "later": "reject_once"}


def run_acp(
    stdin: IO[bytes], stdout: IO[bytes], run: HarnessRun, *, on_output: Callable[[], object] | None = None
) -> HarnessResult:
    """Run one turn over the pipes of a started process, and close both. Blocks until the turn or the process ends.

    `run.permit` decides permission questions in a thread of its own; without it each question is allowed. `on_output` is
    called for each message of the harness, also for those without progress.

    Raises: `Unusable` if the package is not installed.
    """
    try:
        import acp
    except ImportError as error:
        raise Unusable(
            "the protocol ACP needs the package agent-client-protocol",
            where=run.harness.name,
            hint=install_command("workers"),
        ) from error
    client = _Client(run, on_output or (lambda: None))
    try:
        return asyncio.run(_run_turn(client, stdin, stdout))
    except acp.RequestError as error:
        return client.explain(error)
    except (ConnectionError, EOFError, ValueError) as error:
        # ValueError: an answer that does not fit the protocol
        message = f"the harness ended before it answered: {error}"
        return client.end("exit", message[:MAX_MESSAGE_CHARS])


async def _run_turn(client: _Client, stdin: IO[bytes], stdout: IO[bytes]) -> HarnessResult:
    import acp
    from acp.schema import ClientCapabilities, FileSystemCapabilities

    loop = asyncio.get_running_loop()
    lines, reader = asyncio.StreamReader(limit=MAX_LINE_BYTES), asyncio.StreamReader()
    output, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), stdout)
    transfer = asyncio.create_task(_pass_messages(lines, reader))
    sink, protocol = await loop.connect_write_pipe(lambda: asyncio.streams.FlowControlMixin(loop), stdin)
    writer = asyncio.StreamWriter(sink, protocol, None, loop)
    offered: Any = client  # without the methods of files and terminals, which the package then refuses
    connection = acp.connect_to_agent(offered, writer, reader)
    try:
        files = FileSystemCapabilities(read_text_file=False, write_text_file=False)
        capabilities = ClientCapabilities(fs=files, terminal=False)
        answer = await connection.initialize(acp.PROTOCOL_VERSION, client_capabilities=capabilities)
        agent = answer.agent_capabilities
        session = await _open_session(connection, client, can_load=bool(agent and agent.load_session))
        if not session:
            return client.end("session", f"{client.run.harness.name} cannot load a session")
        reply = await connection.prompt(session_id=session, prompt=[acp.text_block(client.run.prompt)])
        return client.conclude(str(reply.stop_reason))
    finally:
        await connection.close()
        transfer.cancel()
        sink.close()
        output.close()


async def _pass_messages(source: asyncio.StreamReader, target: asyncio.StreamReader) -> None:
    """Pass the messages of the protocol on, until the end or a line that is too long.

    Other lines, such as warnings of npm, end the package's connection, or are printed by it with a traceback.
    """
    try:
        while line := await source.readline():
            with contextlib.suppress(ValueError, RecursionError):
                if isinstance(json.loads(line), dict):
                    target.feed_data(line)
    except ValueError:
        pass
    target.feed_eof()


async def _open_session(connection: Any, client: _Client, *, can_load: bool) -> str:
    """Return the id of a new session, or of the one to resume; an empty text if the harness cannot load it."""
    folder = str(client.run.clone)
    if not client.run.session:
        created = await connection.new_session(cwd=folder, mcp_servers=[])
        client.start(created.session_id)
        return str(created.session_id)
    if not can_load:
        return ""
    client.is_loading = True
    await connection.load_session(cwd=folder, session_id=client.run.session, mcp_servers=[])
    client.is_loading = False
    client.start(client.run.session)
    return client.run.session


class _Client:
    """The client's side of the protocol, and what the turn has told so far."""

    def __init__(self, run: HarnessRun, on_output: Callable[[], object]) -> None:
        self.run, self._on_output = run, on_output
        self.is_loading = False
        """True while the history of a session is told again."""
        self._session, self._texts, self._line = "", list[str](), ""
        self._questions: list[PermissionQuestion] = []
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._reported: set[str] = set()
        self._is_refused = False

    def start(self, session: str) -> None:
        """Keep the session's id."""
        self._session = session
        self._report(Progress(kind="session", text=session))

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Take a notification of the harness: a piece of text or a tool call."""
        self._on_output()
        if self.is_loading:
            return
        kind = update.session_update
        if kind == "agent_message_chunk" and update.content.type == "text":
            self._texts.append(update.content.text)
            self._report_text(update.content.text)
        elif kind in ("tool_call", "tool_call_update"):
            self._texts.clear()  # the reply is the text after the last call
            self._report_text("\n")
            self._report_call(update, *self._learn_call(update))

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        """Answer a permission question of the harness."""
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        self._on_output()
        tool, arguments = self._learn_call(tool_call)
        question = PermissionQuestion(tool=tool, input=arguments)
        decision = await asyncio.to_thread(self.run.permit, question) if self.run.permit else "allow"
        self._on_output()
        if decision != "allow":
            self._is_refused = True
        if decision == "later":
            self._questions.append(question)
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
        progress = describe_call(tool, arguments)
        if paths and call.kind in ("edit", "delete", "move"):
            progress = Progress(kind="file", text=tool, path=paths[0])
        self._report(
            replace(progress, text=f"{tool}: {call.title}") if progress.text == tool and call.title else progress
        )

    def _report_text(self, chunk: str) -> None:
        """Report the lines that a piece of text completes: pieces are as short as a word."""
        *lines, self._line = f"{self._line}{chunk}".split("\n")
        for line in filter(str.strip, lines):
            self._report(Progress(kind="text", text=line))

    def _report(self, progress: Progress) -> None:
        if self.run.on_progress is not None:
            self.run.on_progress(progress)

    def conclude(self, stop_reason: str) -> HarnessResult:
        """Return the result of a turn that the harness has ended."""
        self._report_text("\n")
        if stop_reason == "end_turn" or self._questions:
            return self.end("", "")
        if stop_reason == "cancelled":
            reason = "a permission was refused" if self._is_refused else "the turn was cancelled"
            return self.end("stopped", reason)
        return self.end(_STOP_ERRORS.get(stop_reason, "unreadable"), f"stop reason must be end_turn, got {stop_reason}")

    def explain(self, error: Any) -> HarnessResult:
        """Return the result of a turn that ended with an error of the protocol."""
        details = f"{error} {error.data}" if error.data else str(error)
        kind = "session" if self.is_loading else "auth" if error.code == -32000 else classify_error(details)
        return self.end(kind, details[:MAX_MESSAGE_CHARS])

    def end(self, error: ErrorKind, message: str) -> HarnessResult:
        """Return the result with everything that the turn has told."""
        text = "".join(self._texts).strip()
        session = self._session or self.run.session
        return HarnessResult(text=text, session=session, error=error, message=message, questions=tuple(self._questions))
