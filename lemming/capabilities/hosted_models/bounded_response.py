"""Limits on responses of model servers: a maximum size after decompression, and no redirects.

The SDKs read an answer whole, decompress while reading and follow redirects with the prompt. Here each answer
is counted while it is read, after decompression and piece by piece. Neither an endless response nor a
compressed bomb can fill the memory, and a redirect is an error with both addresses.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

from lemming.kernel.base.errors import AnswerTooLarge, RequestRejected, Unavailable
from lemming.kernel.base.redaction.secrets import strip_userinfo

ANSWER_LIMIT_BYTES = 16 << 20
"""The longest answer to a call. Answers are a few thousand bytes; one with all its reasoning, a million."""

_PIECE_BYTES = 64 << 10
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS

_limit_bytes: ContextVar[int] = ContextVar("_limit_bytes", default=ANSWER_LIMIT_BYTES)


def client_settings() -> dict[str, Any]:
    """Return the arguments for an `httpx` client (of either generation) with these limits."""
    return {
        "event_hooks": {"response": [_limit_response]},
        "follow_redirects": False,
        "headers": {"accept-encoding": "gzip"},  # encodings that are decoded here
        "timeout": None,
    }


@contextlib.contextmanager
def allow_response_size(limit_bytes: int) -> Iterator[None]:
    """Raise the size limit of responses inside the block."""
    token = _limit_bytes.set(limit_bytes)
    try:
        yield
    finally:
        _limit_bytes.reset(token)


def get_host(url: Any) -> str:
    """Return `host:port` of an `httpx` URL."""
    port = url.port or {"http": 80, "https": 443}.get(url.scheme, "?")
    name = f"[{url.host}]" if ":" in url.host else url.host
    return f"{name}:{port}"


def tee_stream(stream: Any, on_chunk: Callable[[bytes], None], get_body: Callable[[], bytes]) -> Any:
    """Return a response stream. `on_chunk` receives bytes on arrival, and `get_body` returns the final body."""
    return _wrap_stream(stream, _TeeStream, on_chunk, get_body)


async def _limit_response(response: Any) -> None:
    """Reject a redirect, otherwise wrap the response in a counting stream. An event hook, before the body is read."""
    url = response.request.url
    if response.has_redirect_location:
        target = strip_userinfo(str(url.join(response.headers["location"]))).partition("?")[0]
        raise RequestRejected(
            f"HTTP {response.status_code}: {get_host(url)} sends the prompt on to {target}: not followed",
            hint="put that address into options in config/models.json if you trust it",
        )
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise Unavailable(f"not an answer: {get_host(url)} packed it with {encoding!r}, which nobody asked for")
    unpacker = None if encoding == "identity" else zlib.decompressobj(_GZIP_OR_ZLIB)
    response.headers.pop("content-encoding", None)  # otherwise it would be decoded again
    source = response.stream
    response.stream = _wrap_stream(source, _BoundedStream, unpacker, _limit_bytes.get())


class _BoundedStream:
    """Decompressed and counted bytes of a response."""

    def __init__(self, source: Any, unpacker: Any, limit_bytes: int) -> None:
        self._source, self._unpacker, self._limit_bytes = source, unpacker, limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total_bytes = 0
        async for chunk in self._source:
            for piece in self._decompress(chunk):
                total_bytes += len(piece)
                if total_bytes > self._limit_bytes:
                    limit = f"{self._limit_bytes >> 20} MiB"
                    raise AnswerTooLarge(f"the answer is longer than {limit}: the rest was not read")
                yield piece

    async def aclose(self) -> None:
        await self._source.aclose()

    def _decompress(self, chunk: bytes) -> Iterator[bytes]:
        if self._unpacker is None:
            yield chunk
            return
        try:
            while chunk and not self._unpacker.eof:
                yield self._unpacker.decompress(chunk, _PIECE_BYTES)
                chunk = self._unpacker.unconsumed_tail
        except zlib.error as error:
            raise Unavailable(f"not an answer: it cannot be unpacked ({error})") from error


class _TeeStream:
    """Bytes of a response, passed to a callback on arrival and replaced by the final body."""

    def __init__(self, source: Any, on_chunk: Callable[[bytes], None], get_body: Callable[[], bytes]) -> None:
        self._source, self._on_chunk, self._get_body = source, on_chunk, get_body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._source:
            self._on_chunk(piece)
        yield self._get_body()

    async def aclose(self) -> None:
        await self._source.aclose()


def _wrap_stream(stream: Any, kind: type, *arguments: Any) -> Any:
    """Return a stream of our class, derived from the stream class of the client's `httpx` generation."""
    kind_of_stream: Any = type(stream)
    return _derive_stream_class(kind_of_stream, kind)(stream, *arguments)


@cache
def _derive_stream_class(stream: type[Any], kind: type[Any]) -> type[Any]:
    base = next(base for base in stream.__mro__ if base.__name__ == "AsyncByteStream")
    return type(f"{kind.__name__}Stream", (kind, base), {})
