"""How servers count the tokens of a request without answering it.

OpenAI and Anthropic have an endpoint for it, and so has llama.cpp's server; vLLM's and older ones of
llama.cpp give their tokenizer. Formats: llama.cpp `tools/server/README.md`, vLLM's `/tokenize`, and the SDKs'
`responses.input_tokens` and `messages.count_tokens`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from lemming.kernel.base.errors import RequestRejected, UnknownModel
from lemming.kernel.llm.tokens import tokens_at

Json = dict[str, Any]
Post = Callable[[str, Json], Awaitable[Any]]
"""Posts a JSON object to a path or an address, and gives the JSON of the answer; raises a `ProviderError`."""

DEADLINE_S = 10.0
COUNTED_RESPONSES = ("model", "input", "instructions", "tools", "tool_choice", "text", "reasoning")
COUNTED_MESSAGES = (
    "model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control",
)  # fmt: skip
"""The fields of a request that its API counts by; it refuses others."""


def pick(body: Mapping[str, Any], keys: Sequence[str]) -> Json:
    """Return the fields of a body that are among these."""
    return {key: body[key] for key in keys if key in body}


async def count_chat(post: Post, root: str, body: Json) -> int | None:
    """Return the tokens of a chat completion as its server counts them; None where it does not.

    `root`: the server's address without the API's path, empty where only the API itself may be asked.
    """
    counted = tokens_at(await _posted(post, "/chat/completions/input_tokens", body), "input_tokens")
    if counted is not None or not root:
        return counted
    asked = pick(body, ("model", "messages", "tools"))
    counted = tokens_at(await _posted(post, f"{root}/tokenize", asked), "count")
    if counted is not None:
        return counted
    told = await _posted(post, f"{root}/apply-template", pick(body, ("messages", "tools")))
    prompt = told.get("prompt") if isinstance(told, dict) else None
    if not isinstance(prompt, str):
        return None
    return _length(await _posted(post, f"{root}/tokenize", _text(prompt, is_whole=True)))


async def count_responses(post: Post, body: Json) -> int | None:
    """Return the tokens of a request to OpenAI's responses API as it counts them."""
    return tokens_at(await _posted(post, "/responses/input_tokens", body), "input_tokens")


async def count_messages(post: Post, body: Json) -> int | None:
    """Return the tokens of a request to Anthropic's API as it counts them."""
    counted = await _posted(post, "/v1/messages/count_tokens", pick(body, COUNTED_MESSAGES))
    return tokens_at(counted, "input_tokens")


async def count_texts(post: Post, root: str, model: str, texts: Sequence[str]) -> list[int] | None:
    """Return the tokens of each text, by llama.cpp's or vLLM's tokenizer; None where there is neither."""
    counts: list[int] = []
    for text in texts:
        said = await _posted(post, f"{root}/tokenize", {"model": model, "prompt": text, **_text(text)})
        if (count := _length(said)) is None:
            return None
        counts.append(count)
    return counts


def _text(text: str, *, is_whole: bool = False) -> Json:
    """Return what llama.cpp's and vLLM's tokenizers are asked of a text; `is_whole`: of a whole prompt."""
    return {"content": text, "add_special": is_whole, "parse_special": is_whole, "add_special_tokens": False}


def _length(said: object) -> int | None:
    tokens = said.get("tokens") if isinstance(said, dict) else None
    return len(tokens) if isinstance(tokens, list) else None


async def _posted(post: Post, path: str, body: Json) -> Any:
    """Return what a server says; None where it knows no such path, or takes no such body."""
    try:
        return await post(path, body)
    except (UnknownModel, RequestRejected):
        return None
