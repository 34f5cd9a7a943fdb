"""A session with one MCP server, by the official SDK: begun when first needed, kept, begun anew when it died.

All of it lives on the background loop. What goes wrong comes out as a `ToolError` or a `TimedOut`, in words
that hold no secret, and nothing that a server does takes longer than it may.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.capabilities.mcp import launcher
from lemming.capabilities.mcp.lock import MOST_TOOLS
from lemming.capabilities.mcp.settings import McpServer, environment_of, filled_in, headers_of
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.redaction.secrets import excerpt

if TYPE_CHECKING:
    import httpx2
    from mcp import Client


MESSAGE_LIMIT_BYTES = 4 << 20
"""Longest message of a server; one that says more ends its session."""

_MOST_PAGES = 50
_CLOSING_TIME_S = 10.0
_CONNECTION_CLOSED = -32000


class Answered(NamedTuple):
    """What a call gave: its content blocks and structured content as JSON, or what the server asks back.

    `promised`: the JSON Schema that the tool's structured content is to satisfy; None for none.
    """

    is_error: bool
    content: list[dict[str, Any]]
    structured: Any = None
    promised: Any = None
    questions: Mapping[str, Any] | None = None
    state: str | None = None


class SessionEnded(ToolError):
    """The server went away."""


class Session:
    """One session with a server; every method but the constructor runs on the background loop."""

    def __init__(self, name: str, server: McpServer, base: Path) -> None:
        self._name, self._server, self._base = name, server, base
        self._client: asyncio.Future[Client] | None = None
        self._life: asyncio.Task[None] | None = None
        self._over: asyncio.Event | None = None
        self._errors, self._status = -1, 0
        self._promised: dict[str, Any] = {}

    async def begin(self) -> None:
        """Have the session open, for at most `start_timeout_s`. Raises `ToolError`."""
        await self._open()

    async def tools(self) -> list[dict[str, Any]]:
        """Return what the server says of each of its tools, in its order. Raises `ToolError`."""
        async with self._used() as client:
            found: list[dict[str, Any]] = []
            cursor = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                found += [_tool_as_listed(tool) for tool in page.tools]
                cursor = page.next_cursor
                if len(found) > MOST_TOOLS:
                    raise ToolError(f"it has more than {MOST_TOOLS} tools")
                if not cursor:
                    self._promised = {it["name"]: it["output_schema"] for it in found}
                    return found
            raise ToolError(f"its list of tools has more than {_MOST_PAGES} pages")

    async def call(
        self, tool: str, arguments: dict[str, Any], *, answers: Any = None, state: str | None = None
    ) -> Answered:
        """Call a tool; `answers`, by the server's keys, and `state` are for a call that asked back."""
        from mcp_types import ElicitResult, InputRequiredResult

        given = {key: ElicitResult(action="accept", content=it) for key, it in (answers or {}).items()}
        async with self._used() as client:
            result = await client.session.call_tool(
                tool, arguments, input_responses=given or None, request_state=state, allow_input_required=True
            )
        if isinstance(result, InputRequiredResult):
            asked = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            questions, state = asked.get("inputRequests") or {}, result.request_state
            return Answered(False, [], questions=questions, state=state)
        blocks = [block.model_dump(mode="json", exclude_none=True) for block in result.content]
        promised = None if result.is_error else self._promised.get(tool)
        return Answered(bool(result.is_error), blocks, result.structured_content, promised)

    async def close(self) -> None:
        """End the session and the program; when that takes too long it is left to its launcher."""
        if self._over is None or self._life is None:
            return
        self._over.set()
        if self._client is not None and not self._client.done():
            self._life.cancel()  # it has not answered yet
        await asyncio.wait({self._life}, timeout=_CLOSING_TIME_S)
        self._life = self._over = self._client = None

    @contextlib.asynccontextmanager
    async def _used(self) -> AsyncIterator[Client]:
        """Give the client of a session that is open; one that broke in the block is let go."""
        from mcp import MCPError

        client = await self._open()
        try:
            yield client
        except MCPError as error:
            if error.code == _CONNECTION_CLOSED:
                raise SessionEnded(await self._why_it_ended()) from None
            raise ToolError(f"it answers: {excerpt(str(error), 500)}") from None
        except (OSError, EOFError, ValueError) as error:
            await self.close()
            raise ToolError(f"{type(error).__name__}: {excerpt(str(error), 300)}") from None

    async def _open(self) -> Client:
        if self._life is not None and self._life.done():
            self._life = self._client = None
        if self._client is None:
            self._client, self._over = asyncio.get_running_loop().create_future(), asyncio.Event()
            # Somebody has to look at its error, or asyncio complains of it later, on the engine's output.
            self._client.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._life = asyncio.create_task(self._live(self._client, self._over))
        # A caller whose time is over must not end the session for the others.
        return await asyncio.shield(self._client)

    async def _live(self, ready: asyncio.Future[Client], over: asyncio.Event) -> None:
        """Keep the session open until it is over: it must be left where it was entered."""
        from mcp import Client

        limit_s = self._server.start_timeout_s
        try:
            async with contextlib.AsyncExitStack() as stack:
                transport = await self._transport(stack)
                async with asyncio.timeout(limit_s):
                    client = await stack.enter_async_context(
                        Client(transport, cache=None, elicitation_callback=_decline)
                    )
                client.session.validate_tool_result = _leave_to_us
                ready.set_result(client)
                await over.wait()
        except TimeoutError:
            limit = f"{limit_s:g} s of being started (start_timeout_s of its line in config/mcp.json)"
            self._fail(ready, f"it did not answer within {limit}")
        except BaseException as error:  # noqa: BLE001 - the edge of a session: becomes what its calls are told
            self._fail(ready, self._in_words(error))
        finally:
            if self._errors >= 0:
                os.close(self._errors)
                self._errors = -1

    def _fail(self, ready: asyncio.Future[Client], why: str) -> None:
        if not ready.done():
            ready.set_exception(ToolError(why))

    async def _why_it_ended(self) -> str:
        """Return in words why the server went away; the session is let go."""
        await asyncio.sleep(0.05)  # the launcher says last what the program said
        said = self._last_error_lines()
        await self.close()
        return f"the server ended{f': {said}' if said else ''}"

    def _in_words(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if said := self._last_error_lines():
            return f"it did not start: {said}"
        if isinstance(error, ToolError):
            return str(error)
        if self._status >= 400:
            hint = "; check headers_env" if self._status in (401, 403) else "; check url"
            return f"it refuses with HTTP status {self._status}{hint}"
        return f"it cannot be reached: {type(error).__name__}: {excerpt(str(error), 300)}"

    def _last_error_lines(self) -> str:
        if self._errors < 0:
            return ""
        with contextlib.suppress(OSError):
            said = os.read(self._errors, 1 << 16).decode("utf-8", "replace").strip()
            return excerpt(said.splitlines()[-1], 300) if said else ""
        return ""

    # --- how it is reached ---

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        return await self._http(stack) if self._server.url else self._program(stack)

    async def _http(self, stack: contextlib.AsyncExitStack) -> Any:
        from mcp.client.streamable_http import streamable_http_client

        longest_s = max(self._server.timeout_s, self._server.start_timeout_s)
        headers = headers_of(self._server)
        client = bounded_client(headers, longest_s, MESSAGE_LIMIT_BYTES, self._note_status)
        await stack.enter_async_context(client)
        return streamable_http_client(filled_in(self._server.url), http_client=client)

    def _note_status(self, status: int) -> None:
        self._status = status

    def _program(self, stack: contextlib.AsyncExitStack) -> Any:
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        self._errors, end = os.pipe()
        os.set_blocking(self._errors, False)
        told = stack.enter_context(os.fdopen(end, "w"))
        words = [filled_in(word) for word in self._server.command]
        own = [str(os.getpid()), str(MESSAGE_LIMIT_BYTES)]
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-I", "-S", launcher.__file__, *own, *words],
            env=environment_of(self._server),
            cwd=self._base / filled_in(self._server.cwd),
            encoding_error_handler="replace",
        )
        return stdio_client(parameters, errlog=told)


async def _leave_to_us(name: str, result: Any) -> None:
    """Hold a result to nothing here: the SDK would do it without a bound, on the loop of all sessions."""


async def _decline(context: Any, params: Any) -> Any:
    """Refuse a question that cannot wait. That there is this tells servers that a person can be asked."""
    from mcp_types import ElicitResult

    return ElicitResult(action="decline")


def _tool_as_listed(tool: Any) -> dict[str, Any]:
    hints = tool.annotations.model_dump(mode="json", exclude_none=True) if tool.annotations else {}
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "hints": hints,
    }


def bounded_client(
    headers: Mapping[str, str], timeout_s: float, limit_bytes: int, note: Callable[[int], None]
) -> httpx2.AsyncClient:
    """Return a client whose answers end with an error beyond so many bytes; `note` is told each status.

    Streams of events are not counted: the SDK bounds each event itself.
    """
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
            note(response.status_code)
            is_events = response.headers.get("content-type", "").startswith("text/event-stream")
            if not is_events and isinstance(response.stream, httpx2.AsyncByteStream):
                response.stream = Bounded(response.stream)
            return response

    # No variables of the environment: a server is reached as the settings say.
    return httpx2.AsyncClient(
        headers=dict(headers), timeout=timeout_s, transport=Transport(), trust_env=False
    )
