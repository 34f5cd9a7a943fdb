"""Shapes of model APIs: usage, paths, keys and errors.

Anthropic Messages, OpenAI Responses, OpenAI chat completions, and Gemini's generateContent. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from lemming.capabilities.workers.harnesses.harness_types import ModelApi
from lemming.capabilities.workers.harnesses.json_fields import JsonFields, RunTokens

# Paths of input, output, cached and written tokens; several are added. `input` includes what was cached.
_USAGES = {
    "anthropic": (
        "input_tokens cache_read_input_tokens cache_creation_input_tokens", "output_tokens", "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ),
    "openai-responses": ("input_tokens", "output_tokens", "input_tokens_details.cached_tokens", ""),
    "openai-chat": ("prompt_tokens", "completion_tokens", "prompt_tokens_details.cached_tokens", ""),
    "gemini": (
        "promptTokenCount toolUsePromptTokenCount", "candidatesTokenCount thoughtsTokenCount", "cachedContentTokenCount", "",
    ),
}  # fmt: skip
Operation = Literal["", "generate", "count", "list"]
"""Purpose of a request. "generate" costs money; an empty text is no request that a harness needs."""

_GEMINI_PATH = re.compile(r"/v1(?:beta)?/models/([\w.-]+):(generateContent|streamGenerateContent|countTokens)")
_PATHS: dict[str, dict[str, Operation]] = {
    "anthropic": {"/v1/messages": "generate", "/v1/messages/count_tokens": "count"},
    "openai-responses": {"/v1/responses": "generate"},
    "openai-chat": {"/v1/chat/completions": "generate"},
}
_KEY_HEADERS = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
_QUERY = {"anthropic": {"beta"}, "gemini": {"alt"}}
_LAST_EVENTS = ("message_stop", "response.completed", "response.incomplete", "response.failed")


def parse_request(api: ModelApi, method: str, target: str, body: Mapping[str, Any]) -> tuple[Operation, str]:
    """Return the purpose of a request, and the model that it names or an empty text."""
    path, model = urlsplit(target).path, JsonFields(body).get_text("model")
    if method == "GET":
        return "list" if path == "/v1/models" and api != "gemini" else "", ""
    if api == "gemini" and (match := _GEMINI_PATH.fullmatch(path)):
        return "count" if match[2] == "countTokens" else "generate", match[1]
    return _PATHS.get(api, {}).get(path, ""), model


def build_url(api: ModelApi, base_url: str, target: str) -> str:
    """Return the server's address for a request of a harness.

    >>> build_url("anthropic", "https://api.anthropic.com", "/v1/messages?beta=true")
    'https://api.anthropic.com/v1/messages?beta=true'
    >>> build_url("openai-chat", "https://host.example/api/openai", "/v1/chat/completions")
    'https://host.example/api/openai/chat/completions'
    """
    parts, base = urlsplit(target), base_url.rstrip("/")
    path = parts.path
    if api.startswith("openai") and urlsplit(base).path:  # such an address has the version, whatever it looks like
        path = path.removeprefix("/v1")
    else:
        base = re.sub(r"/v1(?:beta)?\Z", "", base)
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] in _QUERY.get(api, ())])
    return f"{base}{path}?{query}" if query else f"{base}{path}"


def build_key_headers(api: ModelApi, key: str) -> dict[str, str]:
    """Return the headers that carry a key; none without a key."""
    name = _KEY_HEADERS.get(api, "authorization")
    return {name: f"Bearer {key}" if name == "authorization" else key} if key else {}


def format_error(api: ModelApi, status: int, message: str) -> bytes:
    """Return an error of the gateway in the API's own shape."""
    kind = "api_error" if status >= 500 else "permission_error" if status in (401, 403) else "invalid_request_error"
    body: dict[str, Any] = {"error": {"message": message, "type": kind, "code": "lemming_gateway", "param": None}}
    if api == "anthropic":
        body = {"type": "error", "error": {"type": kind, "message": message}}
    elif api == "gemini":
        body = {"error": {"code": status, "message": message, "status": "FAILED_PRECONDITION"}}
    return json.dumps(body).encode()


class UsageCounter:
    """Reads the usage out of a passing answer, streamed or not. `is_final`: the whole usage was told."""

    def __init__(self, api: ModelApi, request_bytes: int) -> None:
        self._api, self._request_bytes, self._answer_bytes = api, request_bytes, 0
        self._remainder, self._events = b"", 0
        self._usage: dict[str, Any] = {}
        self.is_final = False

    def feed(self, chunk: bytes) -> None:
        """Read a piece of a stream of server-sent events."""
        self._answer_bytes += len(chunk)
        *lines, self._remainder = (self._remainder + chunk).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                self.is_final = bool(self._usage)
            elif line.startswith(b"data:"):
                self._events += 1
                self._read_answer(data)

    def read_body(self, body: bytes) -> None:
        """Read a whole answer that is not streamed."""
        self._answer_bytes += len(body)
        self._read_answer(body)
        self.is_final = bool(self._usage)

    def count_tokens(self) -> RunTokens:
        """Return the tokens of the answer. For one that was cut, those told so far, and a guess for the rest.

        A token is about four bytes, or one event of a stream.
        """
        tokens = (
            JsonFields(self._usage).sum_tokens(_USAGES[self._api])
            if self._usage
            else RunTokens(input=self._request_bytes // 4)
        )
        if self.is_final and self._usage:
            return tokens
        return replace(tokens, output=max(tokens.output, self._events or self._answer_bytes // 4))

    def _read_answer(self, content: bytes) -> None:
        try:
            answers = json.loads(content)
        except (ValueError, RecursionError):
            return
        for answer in answers if isinstance(answers, list) else [answers]:  # Gemini streams a list without `alt=sse`
            fields = JsonFields(answer)
            for path in ("usage", "message.usage", "response.usage", "usageMetadata"):
                self._merge_usage(fields.get_object(path).values)
            is_last_part = any(part.get_value("finishReason") for part in fields.get_objects("candidates"))
            self.is_final |= fields.get_text("type") in _LAST_EVENTS or (is_last_part and bool(self._usage))

    def _merge_usage(self, usage: Mapping[str, Any]) -> None:
        """Take over counts. They only grow: the end of a stream may leave out those of its start, or tell 0."""
        for name, value in usage.items():
            if not isinstance(value, int) or value >= JsonFields(self._usage).get_count(name):
                self._usage[name] = value
