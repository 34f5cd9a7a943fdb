"""Token usage of a call, as reported by the backend or estimated. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.model_entries import PROVIDERS_WITHOUT_MODEL
from lemming.kernel.providers import Message, Reply

MAX_BYTES_PER_TOKEN = 1024
"""Real ones have a hundred at most: a server that counts fewer tokens has not counted."""
MAX_TOKENS = 1 << 40  # of one call; more is a backend's mistake and would end in infinite credits


@dataclass(slots=True)  # made for every call, and a named tuple takes twice as long
class Tokens:
    """Token usage of a call. Estimates (a quarter of the bytes) replace missing counts."""

    input: int
    output: int
    cached: int
    is_estimated: bool
    written: int = 0


def estimate_prompt_tokens(messages: list[Message]) -> int:
    """Return an estimate of a prompt's tokens.

    >>> estimate_prompt_tokens([dict(role="user", content="Say hello.")])
    3
    """
    tokens = 0
    for message in messages:
        tokens += estimate_tokens(message["content"] if len(message) == 2 else _message_text(message))
    return tokens


def _message_text(message: Message) -> str:
    """Return the text of a message with the tools and calls."""
    extra_values = [message[key] for key in ("tools", "calls", "kept") if message.get(key)]
    return f"{message['content']}{to_line(extra_values)}" if extra_values else message["content"]


def tokens_used(messages: list[Message], reply: Reply, *, provider: str = "") -> Tokens:
    """Return the token usage of a call, as reported in the reply or estimated from the texts.

    `provider`: the name of the answering provider.

    >>> tokens_used([dict(role="user", content="Say hello.")], Reply("x" * 4096, 0, 1))
    Tokens(input=3, output=1024, cached=0, is_estimated=True, written=0)
    """
    counted_in, counted_out = _to_count(reply.input_tokens), _to_count(reply.output_tokens)
    written = _to_count(reply.written_tokens) or 0 if reply.written_tokens else 0
    cached = _to_count(reply.cached_tokens) or 0 if reply.cached_tokens else 0
    if provider in PROVIDERS_WITHOUT_MODEL and counted_in is not None and counted_out is not None:
        return Tokens(counted_in, counted_out, cached, False, written)
    estimated_in = estimate_prompt_tokens(messages)
    estimated_out = estimate_tokens(f"{reply.text}{to_line([*reply.calls])}" if reply.calls else reply.text)
    if counted_in is not None and counted_in * MAX_BYTES_PER_TOKEN < estimated_in * 4:
        counted_in = None
    if counted_out is not None and counted_out * MAX_BYTES_PER_TOKEN < estimated_out * 4:
        counted_out = None
    return Tokens(
        estimated_in if counted_in is None else counted_in,
        estimated_out if counted_out is None else counted_out,
        cached,
        counted_in is None or counted_out is None,
        written,
    )


def usage_at_path(usage: object, *keys: str) -> int | None:
    """Return the count at a key path in a backend's usage report, or None.

    >>> usage_at_path({"details": {"cached": 3.0}}, "details", "cached"), usage_at_path({"cached": 1.5}, "cached")
    (3, None)
    """
    for key in keys:
        usage = usage.get(key) if isinstance(usage, dict) else None
    return _to_count(usage)


def _to_count(tokens: object) -> int | None:
    """Return a backend's token count, or None for a missing or impossible count."""
    if tokens is None:
        return None
    if isinstance(tokens, float) and tokens.is_integer():  # a server whose JSON has only floats
        tokens = int(tokens)
    if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= MAX_TOKENS:
        return tokens
    return None


def estimate_tokens(text: str) -> int:
    """Return an estimate of a text's tokens: a quarter of its bytes."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return (size + 3) // 4
