"""Servers with OpenAI's chat completions under names of their own: OpenRouter, and vLLM's."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from lemming.llm.backends.openai import OpenAIProvider
from lemming.llm.backends.openai_wire import JsonMode

OPENROUTER = "https://openrouter.ai/api/v1"


class OpenRouterProvider(OpenAIProvider):
    """Asks OpenRouter, whose models are named `vendor/model`; the key is in OPENROUTER_API_KEY."""

    name = "openrouter"

    def __init__(
        self,
        *,
        base_url: str = OPENROUTER,
        api_key_env: str = "OPENROUTER_API_KEY",
        json: JsonMode = "schema",
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(base_url=base_url, api_key_env=api_key_env, json=json, extra=extra)


class VllmProvider(OpenAIProvider):
    """Asks a vLLM server at `base_url`: `localhost:8000` is `http://localhost:8000/v1`."""

    name = "vllm"

    def __init__(
        self,
        *,
        base_url: str,
        api_key_env: str | None = None,
        json: JsonMode = "schema",
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(base_url=whole_address(base_url), api_key_env=api_key_env, json=json, extra=extra)


def whole_address(address: str) -> str:
    """Return the address of an API with its scheme, and with `/v1` where it names no path.

    >>> [whole_address(it) for it in ("localhost:8000", "https://gpu.example/v1/", "http://gpu:8000/llm/v1")]
    ['http://localhost:8000/v1', 'https://gpu.example/v1', 'http://gpu:8000/llm/v1']
    """
    whole = (address if "://" in address else f"http://{address}").rstrip("/")
    return whole if urlsplit(whole).path else f"{whole}/v1"
