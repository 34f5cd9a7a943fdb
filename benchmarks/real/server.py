"""Server on loopback with OpenAI's chat completions protocol and delayed answers.

    python -m benchmarks.real.server 0.3

The server prints the port and runs until standard input ends. Answers below `/contract` have the four keys of
a LeMMing reply, other answers a message and a memory. Standard library only.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

SENTENCE = "a sentence of an ordinary length, as one agent writes it to another"
ENTRY = {"kind": "message", "payload": {"text": SENTENCE}, "tags": []}
MEMORY = {"key": "state", "value": {"said": SENTENCE}}
CONTRACT = {"outbox_entries": [ENTRY], "tool_calls": [], "memory_updates": [MEMORY], "notes": ""}
PLAIN = {"text": SENTENCE, "memory": {"said": SENTENCE}}
BACKLOG = 4096


def make_http_response(content: object) -> bytes:
    """Return a complete HTTP response."""
    message = {"role": "assistant", "content": json.dumps(content)}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "stand-in",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 40, "total_tokens": 240},
    }
    raw = json.dumps(body).encode()
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req-1\r\n"
    return f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw


ANSWERS = {True: make_http_response(CONTRACT), False: make_http_response(PLAIN)}


class _Connection(asyncio.Protocol):
    """Connection of a client with consecutive requests."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s, self._raw = delay_s, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a server of streams"
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._raw += data
        while (end := self._raw.find(b"\r\n\r\n") + 4) > 3:
            head = self._raw[:end].lower()
            _, _, after_length = head.partition(b"content-length:")
            length = int(after_length.partition(b"\r\n")[0] or 0)
            if len(self._raw) < end + length:
                return
            self._raw = self._raw[end + length :]
            answer = ANSWERS[b"/contract/" in head.partition(b"\r\n")[0]]
            asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, answer)


async def serve(delay_s: float) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(delay_s), "127.0.0.1", 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def run_server(delay_s: float) -> Iterator[str]:
    """Run the server in a separate process, and yield the address."""
    command = [sys.executable, "-m", "benchmarks.real.server", str(delay_s)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout, "a pipe"
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.communicate()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
