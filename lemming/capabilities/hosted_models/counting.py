"""Token counting by servers, without an answer.

OpenAI, Anthropic and llama.cpp's server have an endpoint for counting. vLLM and older versions of llama.cpp
expose their tokenizer. Formats: llama.cpp `tools/server/README.md`, vLLM's `/tokenize`, and the SDKs'
`responses.input_tokens` and `messages.count_tokens`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from lemming.kernel.base.errors import RequestRejected, UnknownModel
from lemming.kernel.llm.call_cost import usage_at_path

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
    """Return the fields of a body with these keys."""
    return {key: body[key] for key in keys if key in body}


async def count_chat(post: Post, root: str, body: Json) -> int | None:
    """Return the tokens of a chat completion as counted by its server, or None if unsupported.

    `root`: the server's address without the API's path. Empty: only the API itself is used.
    """
    counted = usage_at_path(await _post_optional(post, "/chat/completions/input_tokens", body), "input_tokens")
    if counted is not None or not root:
        return counted
    tokenize_body = pick(body, ("model", "messages", "tools"))
    counted = usage_at_path(await _post_optional(post, f"{root}/tokenize", tokenize_body), "count")
    if counted is not None:
        return counted
    template_answer = await _post_optional(post, f"{root}/apply-template", pick(body, ("messages", "tools")))
    prompt = template_answer.get("prompt") if isinstance(template_answer, dict) else None
    if not isinstance(prompt, str):
        return None
    return _count_listed_tokens(await _post_optional(post, f"{root}/tokenize", _tokenize_fields(prompt, is_whole=True)))


async def count_responses(post: Post, body: Json) -> int | None:
    """Return the tokens of a request as counted by OpenAI's responses API."""
    return usage_at_path(await _post_optional(post, "/responses/input_tokens", body), "input_tokens")


async def count_messages(post: Post, body: Json) -> int | None:
    """Return the tokens of a request as counted by Anthropic's API."""
    counted = await _post_optional(post, "/v1/messages/count_tokens", pick(body, COUNTED_MESSAGES))
    return usage_at_path(counted, "input_tokens")


async def count_texts(post: Post, root: str, model: str, texts: Sequence[str]) -> list[int] | None:
    """Return the tokens of each text by the tokenizer of llama.cpp or vLLM, or None if the server has neither."""
    counts: list[int] = []
    for text in texts:
        answer = await _post_optional(
            post, f"{root}/tokenize", {"model": model, "prompt": text, **_tokenize_fields(text)}
        )
        if (count := _count_listed_tokens(answer)) is None:
            return None
        counts.append(count)
    return counts


def _tokenize_fields(text: str, *, is_whole: bool = False) -> Json:
    """Return the body of a tokenizer request for llama.cpp and vLLM. `is_whole`: the text is a whole prompt."""
    return {"content": text, "add_special": is_whole, "parse_special": is_whole, "add_special_tokens": False}


def _count_listed_tokens(answer: object) -> int | None:
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    return len(tokens) if isinstance(tokens, list) else None


async def _post_optional(post: Post, path: str, body: Json) -> Any:
    """Return the answer of a server, or None if the server rejects the path or the body."""
    try:
        return await post(path, body)
    except (UnknownModel, RequestRejected):
        return None
