"""The HTTP client for MCP servers: what one answer may bring is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


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
