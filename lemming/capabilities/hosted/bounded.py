"""What is taken in from a model's server: so many bytes, unpacked, and nothing from another address.

The SDKs read an answer whole, unpack it as it comes and follow redirects, prompt and all. Here each answer
is counted while it is read, after unpacking and piece by piece, so that neither a server that never stops
nor a compressed bomb fills the memory; and a redirect is an error that names both addresses.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

from lemming.kernel.base.errors import AnswerTooLarge, RequestRejected, Unavailable
from lemming.kernel.base.redaction.secrets import without_userinfo

ANSWER_LIMIT_BYTES = 16 << 20
"""The longest answer to one call. Answers are a few thousand bytes; one with all its reasoning, a million."""

_PIECE_BYTES = 64 << 10
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS

_limit_bytes: ContextVar[int] = ContextVar("_limit_bytes", default=ANSWER_LIMIT_BYTES)


def client_settings() -> dict[str, Any]:
    """Return the arguments of an `httpx` client (of either generation) that makes it so."""
    return {
        "event_hooks": {"response": [_bound]},
        "follow_redirects": False,
        "headers": {"accept-encoding": "gzip"},  # what is unpacked here
        "timeout": None,
    }


@contextlib.contextmanager
def answers_up_to(limit_bytes: int) -> Iterator[None]:
    """Let answers in the block be as long as this."""
    token = _limit_bytes.set(limit_bytes)
    try:
        yield
    finally:
        _limit_bytes.reset(token)


def host_of(url: Any) -> str:
    """Return `host:port` of an `httpx` URL."""
    port = url.port or {"http": 80, "https": 443}.get(url.scheme, "?")
    name = f"[{url.host}]" if ":" in url.host else url.host
    return f"{name}:{port}"


def rewritten(stream: Any, rewrite: Callable[[bytes], bytes]) -> Any:
    """Return the stream of an answer that was put right by `rewrite` once it was read whole.

    What `rewrite` raises, the caller of the SDK gets.
    """
    body = bytearray()
    return listened_to(stream, body.extend, lambda: rewrite(bytes(body)))


def listened_to(stream: Any, listen: Callable[[bytes], None], whole: Callable[[], bytes]) -> Any:
    """Return the stream of an answer whose bytes `listen` gets as they come; the answer is then `whole()`."""
    return _in_place_of(stream, _Listened, listen, whole)


async def _bound(response: Any) -> None:
    """Refuse a redirect; else have the answer counted. An event hook: the body has not been read."""
    url = response.request.url
    if response.has_redirect_location:
        target = without_userinfo(str(url.join(response.headers["location"]))).partition("?")[0]
        raise RequestRejected(
            f"HTTP {response.status_code}: {host_of(url)} sends the prompt on to {target}: not followed",
            hint="if that is the server you mean, put its address into options in config/models.json",
        )
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    unpacker = None if encoding == "identity" else _unpacker(encoding, host_of(url))
    response.headers.pop("content-encoding", None)  # else it would be unpacked again
    source = response.stream
    response.stream = _in_place_of(source, _Bounded, unpacker, _limit_bytes.get())


def _unpacker(encoding: str, host: str) -> Any:
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(_GZIP_OR_ZLIB)
    raise Unavailable(f"not an answer: {host} packed it with {encoding!r}, which nobody asked for")


class _Bounded:
    """The bytes of an answer, unpacked and counted."""

    def __init__(self, source: Any, unpacker: Any, limit_bytes: int) -> None:
        self._source, self._unpacker, self._limit_bytes = source, unpacker, limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for chunk in self._source:
            for piece in self._pieces(chunk):
                taken += len(piece)
                if taken > self._limit_bytes:
                    limit = f"{self._limit_bytes >> 20} MiB"
                    raise AnswerTooLarge(f"the answer is longer than {limit}: the rest was not read")
                yield piece

    async def aclose(self) -> None:
        await self._source.aclose()

    def _pieces(self, chunk: bytes) -> Iterator[bytes]:
        if self._unpacker is None:
            yield chunk
            return
        try:
            while chunk and not self._unpacker.eof:
                yield self._unpacker.decompress(chunk, _PIECE_BYTES)
                chunk = self._unpacker.unconsumed_tail
        except zlib.error as error:
            raise Unavailable(f"not an answer: it cannot be unpacked ({error})") from error


class _Listened:
    """The bytes of an answer, told as they come and put together at their end."""

    def __init__(self, source: Any, listen: Callable[[bytes], None], whole: Callable[[], bytes]) -> None:
        self._source, self._listen, self._whole = source, listen, whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._source:
            self._listen(piece)
        yield self._whole()

    async def aclose(self) -> None:
        await self._source.aclose()


def _in_place_of(stream: Any, kind: type, *arguments: Any) -> Any:
    """Return a stream of a kind of ours that is one of the client's own generation of `httpx` too."""
    kind_of_stream: Any = type(stream)
    return _class_beside(kind_of_stream, kind)(stream, *arguments)


@cache
def _class_beside(stream: type[Any], kind: type[Any]) -> type[Any]:
    base = next(base for base in stream.__mro__ if base.__name__ == "AsyncByteStream")
    return type(f"{kind.__name__}Stream", (kind, base), {})
