"""What a call used, in tokens: as its backend counted, or estimated. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.models import ANSWERS_KNOWN
from lemming.kernel.providers import Message, Reply

MOST_BYTES_A_TOKEN = 1024
"""Real ones have a hundred at most: a server that counts fewer tokens has not counted."""
MOST_TOKENS = 1 << 40  # of one call; more is a backend's mistake and would end in infinite credits


@dataclass(slots=True)  # made for every call, and a named tuple takes twice as long
class Tokens:
    """What a call used. Estimates (a quarter of the bytes) stand in for what the backend did not count."""

    input: int
    output: int
    cached: int
    is_estimated: bool
    written: int = 0


def tokens_in(messages: list[Message]) -> int:
    """Return an estimate of a prompt's tokens.

    >>> tokens_in([{"role": "user", "content": "Say hello."}])
    3
    """
    tokens = 0
    for message in messages:
        tokens += estimate_tokens(message["content"] if len(message) == 2 else _all_of(message))
    return tokens


def _all_of(message: Message) -> str:
    """Return the text of a message with what it has of tools and calls."""
    further = [message[key] for key in ("tools", "calls", "kept") if message.get(key)]
    return f"{message['content']}{to_line(further)}" if further else message["content"]


def tokens_used(messages: list[Message], reply: Reply, *, provider: str = "") -> Tokens:
    """Return what a call used, as its reply says or as far as the texts tell; `provider`: who answered.

    >>> tokens_used([{"role": "user", "content": "Say hello."}], Reply("x" * 4096, 0, 1))
    Tokens(input=3, output=1024, cached=0, is_estimated=True, written=0)
    """
    counted_in, counted_out = _counted(reply.input_tokens), _counted(reply.output_tokens)
    written = _counted(reply.written_tokens) or 0 if reply.written_tokens else 0
    cached = _counted(reply.cached_tokens) or 0 if reply.cached_tokens else 0
    if provider in ANSWERS_KNOWN and counted_in is not None and counted_out is not None:
        return Tokens(counted_in, counted_out, cached, False, written)
    estimated_in = tokens_in(messages)
    estimated_out = estimate_tokens(f"{reply.text}{to_line([*reply.calls])}" if reply.calls else reply.text)
    if counted_in is not None and counted_in * MOST_BYTES_A_TOKEN < estimated_in * 4:
        counted_in = None
    if counted_out is not None and counted_out * MOST_BYTES_A_TOKEN < estimated_out * 4:
        counted_out = None
    return Tokens(
        estimated_in if counted_in is None else counted_in,
        estimated_out if counted_out is None else counted_out,
        cached,
        counted_in is None or counted_out is None,
        written,
    )


def tokens_at(usage: object, *keys: str) -> int | None:
    """Return the count at a place in what a backend says of a call's usage; None when there is none.

    >>> tokens_at({"details": {"cached": 3.0}}, "details", "cached"), tokens_at({"cached": 1.5}, "cached")
    (3, None)
    """
    for key in keys:
        usage = usage.get(key) if isinstance(usage, dict) else None
    return _counted(usage)


def _counted(tokens: object) -> int | None:
    """Return a backend's count; None when it says nothing, or nothing that can be a count."""
    if tokens is None:
        return None
    if isinstance(tokens, float) and tokens.is_integer():  # a server whose JSON knows one kind of number
        tokens = int(tokens)
    if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= MOST_TOKENS:
        return tokens
    return None


def estimate_tokens(text: str) -> int:
    """Return an estimate of a text's tokens: a quarter of its bytes."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return (size + 3) // 4
