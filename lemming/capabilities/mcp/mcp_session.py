"""Session with one MCP server, by the official SDK: opened on first use, cached, and reopened after a failure.

All sessions run on the background loop. Errors become a `ToolError` or a `TimedOut` with messages free of secrets, and
every operation has a time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.capabilities.mcp import mcp_launcher
from lemming.capabilities.mcp.mcp_lock_file import MAX_TOOLS
from lemming.capabilities.mcp.mcp_settings import McpServerSettings, build_environment, build_headers, expand_variables
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.redaction.secrets import redacted_excerpt

if TYPE_CHECKING:
    import httpx2
    from mcp import Client


MESSAGE_LIMIT_BYTES = 4 << 20
"""Longest message of a server; one that says more ends its session."""

_MOST_PAGES = 50
_CLOSING_TIME_S = 10.0
_CONNECTION_CLOSED = -32000


class ToolCallResponse(NamedTuple):
    """Response of a call: content blocks and structured content as JSON, or the server's questions.

    `output_schema`: the JSON Schema of the structured content, or None.
    """

    is_error: bool
    content: list[dict[str, Any]]
    structured: Any = None
    output_schema: Any = None
    elicitations: Mapping[str, Any] | None = None
    state: str | None = None


class SessionClosed(ToolError):
    """The server disconnected."""


class McpSession:
    """Session with a server. All methods except the constructor run on the background loop."""

    def __init__(self, name: str, server: McpServerSettings, base: Path) -> None:
        self._name, self._server, self._base = name, server, base
        self._client: asyncio.Future[Client] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Event | None = None
        self._errors, self._status = -1, 0
        self._output_schemas: dict[str, Any] = {}

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the server's descriptions of its tools, in order. Raises: ToolError for too many tools or pages."""
        async with self._borrow_client() as client:
            tools: list[dict[str, Any]] = []
            cursor = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                tools += [_tool_to_json(tool) for tool in page.tools]
                cursor = page.next_cursor
                if len(tools) > MAX_TOOLS:
                    raise ToolError(f"it has more than {MAX_TOOLS} tools")
                if not cursor:
                    self._output_schemas = {listed_tool["name"]: listed_tool["output_schema"] for listed_tool in tools}
                    return tools
            raise ToolError(f"its list of tools has more than {_MOST_PAGES} pages")

    async def call_tool(
        self, tool: str, arguments: dict[str, Any], *, answers: Any = None, state: str | None = None
    ) -> ToolCallResponse:
        """Call a tool. `answers`, by the server's keys, and `state` continue a call after questions."""
        from mcp_types import ElicitResult, InputRequiredResult

        responses = {key: ElicitResult(action="accept", content=answer) for key, answer in (answers or {}).items()}
        async with self._borrow_client() as client:
            result = await client.session.call_tool(
                tool, arguments, input_responses=responses or None, request_state=state, allow_input_required=True
            )
        if isinstance(result, InputRequiredResult):
            payload = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            questions, state = payload.get("inputRequests") or {}, result.request_state
            return ToolCallResponse(False, [], elicitations=questions, state=state)
        blocks = [block.model_dump(mode="json", exclude_none=True) for block in result.content]
        promised = None if result.is_error else self._output_schemas.get(tool)
        return ToolCallResponse(bool(result.is_error), blocks, result.structured_content, promised)

    async def close(self) -> None:
        """Close the session and end the program. A program too slow to end is left to its launcher."""
        if self._closing is None or self._task is None:
            return
        self._closing.set()
        if self._client is not None and not self._client.done():
            self._task.cancel()  # it has not answered yet
        await asyncio.wait({self._task}, timeout=_CLOSING_TIME_S)
        self._task = self._closing = self._client = None

    @contextlib.asynccontextmanager
    async def _borrow_client(self) -> AsyncIterator[Client]:
        """Provide the client of an open session. After a broken connection, the session is closed."""
        from mcp import MCPError

        client = await self.open()
        try:
            yield client
        except MCPError as error:
            if error.code == _CONNECTION_CLOSED:
                raise SessionClosed(await self._end_reason()) from None
            raise ToolError(f"it answers: {redacted_excerpt(str(error), 500)}") from None
        except (OSError, EOFError, ValueError) as error:
            await self.close()
            raise ToolError(f"{type(error).__name__}: {redacted_excerpt(str(error), 300)}") from None

    async def open(self) -> Client:
        """Open the session within `start_timeout_s`. Raises: ToolError if the server cannot be started or reached."""
        if self._task is not None and self._task.done():
            self._task = self._client = None
        if self._client is None:
            self._client, self._closing = asyncio.get_running_loop().create_future(), asyncio.Event()
            # The error must be retrieved, or asyncio reports it later on the engine's output.
            self._client.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._task = asyncio.create_task(self._run_session(self._client, self._closing))
        # A caller with an expired deadline must not end the session for the others.
        return await asyncio.shield(self._client)

    async def _run_session(self, ready: asyncio.Future[Client], over: asyncio.Event) -> None:
        """Run the session until closed. The SDK's client must be closed in the task that opened it."""
        from mcp import Client

        limit_s, reason = self._server.start_timeout_s, ""
        try:
            async with contextlib.AsyncExitStack() as stack:
                transport = await self._open_http(stack) if self._server.url else self._start_program(stack)
                async with asyncio.timeout(limit_s):
                    client = await stack.enter_async_context(
                        Client(transport, cache=None, elicitation_callback=_decline_elicitation)
                    )
                client.session.validate_tool_result = _skip_validation
                ready.set_result(client)
                await over.wait()
        except TimeoutError:
            limit = f"{limit_s:g} s of being started (start_timeout_s of its line in config/mcp.json)"
            reason = f"it did not answer within {limit}"
        except BaseException as error:  # noqa: BLE001 - the edge of a session: becomes what its calls are told
            reason = self._describe_error(error)
        finally:
            if not ready.done():
                ready.set_exception(ToolError(reason))
            if self._errors >= 0:
                os.close(self._errors)
                self._errors = -1

    async def _end_reason(self) -> str:
        """Return the reason for the server's disconnect, and close the session."""
        await asyncio.sleep(0.05)  # the launcher's last line holds the program's output
        last_line = self._last_error_line()
        await self.close()
        return f"the server ended{f': {last_line}' if last_line else ''}"

    def _describe_error(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if last_line := self._last_error_line():
            return f"it did not start: {last_line}"
        if isinstance(error, ToolError):
            return str(error)
        if self._status >= 400:
            hint = "; check headers_env" if self._status in (401, 403) else "; check url"
            return f"it refuses with HTTP status {self._status}{hint}"
        return f"it cannot be reached: {type(error).__name__}: {redacted_excerpt(str(error), 300)}"

    def _last_error_line(self) -> str:
        if self._errors < 0:
            return ""
        with contextlib.suppress(OSError):
            text = os.read(self._errors, 1 << 16).decode("utf-8", "replace").strip()
            return redacted_excerpt(text.splitlines()[-1], 300) if text else ""
        return ""

    async def _open_http(self, stack: contextlib.AsyncExitStack) -> Any:
        from mcp.client.streamable_http import streamable_http_client

        longest_s = max(self._server.timeout_s, self._server.start_timeout_s)
        headers = build_headers(self._server)
        client = make_bounded_client(headers, longest_s, MESSAGE_LIMIT_BYTES, partial(setattr, self, "_status"))
        await stack.enter_async_context(client)
        return streamable_http_client(expand_variables(self._server.url), http_client=client)

    def _start_program(self, stack: contextlib.AsyncExitStack) -> Any:
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        self._errors, write_end = os.pipe()
        os.set_blocking(self._errors, False)
        error_log = stack.enter_context(os.fdopen(write_end, "w"))
        command = [expand_variables(argument) for argument in self._server.command]
        launcher_args = [str(os.getpid()), str(MESSAGE_LIMIT_BYTES)]
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-I", "-S", mcp_launcher.__file__, *launcher_args, *command],
            env=build_environment(self._server),
            cwd=self._base / expand_variables(self._server.cwd),
            encoding_error_handler="replace",
        )
        return stdio_client(parameters, errlog=error_log)


async def _skip_validation(name: str, result: Any) -> None:
    """Skip validation in the SDK: the SDK would validate without a time limit, on the loop of all sessions."""


async def _decline_elicitation(context: Any, params: Any) -> Any:
    """Decline a question during a call. The callback tells servers that questions are supported."""
    from mcp_types import ElicitResult

    return ElicitResult(action="decline")


def _tool_to_json(tool: Any) -> dict[str, Any]:
    hints = tool.annotations.model_dump(mode="json", exclude_none=True) if tool.annotations else {}
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "hints": hints,
    }


def make_bounded_client(
    headers: Mapping[str, str], timeout_s: float, limit_bytes: int, on_status: Callable[[int], None]
) -> httpx2.AsyncClient:
    """Return a client that limits responses, except event streams (by the SDK). `on_status` gets each status."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            received = 0
            async for chunk in self._stream:
                received += len(chunk)
                if received > limit_bytes:
                    raise httpx2.ReadError(f"an answer longer than {limit_bytes} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    class Transport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            on_status(response.status_code)
            is_events = response.headers.get("content-type", "").startswith("text/event-stream")
            if not is_events and isinstance(response.stream, httpx2.AsyncByteStream):
                response.stream = Bounded(response.stream)
            return response

    # No variables of the environment: a server is reached as the settings say.
    return httpx2.AsyncClient(headers=dict(headers), timeout=timeout_s, transport=Transport(), trust_env=False)
