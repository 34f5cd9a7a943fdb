"""Shapes of the model APIs that the gateway passes on: paths, keys, errors and usage.

Anthropic Messages, OpenAI Responses, OpenAI chat completions, and Gemini's generateContent. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from lemming.capabilities.workers.harnesses.harness_types import ModelApi, RunTokens
from lemming.kernel.base.integers import clamp_int

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
_LAST_EVENTS = {"message_stop", "response.completed", "response.incomplete", "response.failed"}


def find_operation(api: ModelApi, method: str, target: str) -> Operation:
    """Return the purpose of a request by its method and target."""
    path = urlsplit(target).path
    if method == "GET":
        return "list" if path == "/v1/models" and api != "gemini" else ""
    if method != "POST":
        return ""
    if api == "gemini":
        match = _GEMINI_PATH.fullmatch(path)
        return "" if match is None else "count" if match[2] == "countTokens" else "generate"
    return _PATHS.get(api, {}).get(path, "")


def find_model(api: ModelApi, target: str, body: dict[str, Any]) -> str:
    """Return the model that a request names, or an empty text."""
    if api == "gemini":
        match = _GEMINI_PATH.fullmatch(urlsplit(target).path)
        return match[1] if match else ""
    model = body.get("model")
    return model if isinstance(model, str) else ""


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
    if not key:
        return {}
    header = _KEY_HEADERS.get(api)
    return {header: key} if header else {"authorization": f"Bearer {key}"}


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
    """Reads the usage out of one answer as it passes, streamed or not.

    `is_final`: the answer has told its whole usage. `tokens`: None as long as no usage was seen.
    """

    def __init__(self, api: ModelApi) -> None:
        self._api, self._remainder, self._events = api, b"", 0
        self._usage: dict[str, Any] = {}
        self.is_final = False

    def feed(self, chunk: bytes) -> None:
        """Read a piece of a stream of server-sent events."""
        *lines, self._remainder = (self._remainder + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._read_event(line[5:].strip())

    def read_body(self, body: bytes) -> None:
        """Read a whole answer that is not streamed."""
        try:
            answers = json.loads(body)
        except (ValueError, RecursionError):
            return
        for answer in answers if isinstance(answers, list) else [answers]:  # Gemini streams a list without `alt=sse`
            self._read_answer(answer)
        self.is_final = bool(self._usage)

    @property
    def tokens(self) -> RunTokens | None:
        """Tokens of the answer as its server counts them, or None if it has told none."""
        return _to_tokens(self._api, self._usage) if self._usage else None

    def estimate(self, request_bytes: int, answer_bytes: int) -> RunTokens:
        """Return the tokens of an answer that was cut: those told so far, and a guess for the rest.

        A token is about four bytes, or one event of a stream.
        """
        tokens = self.tokens or RunTokens(input=request_bytes // 4)
        return RunTokens(
            input=tokens.input, cached=tokens.cached, written=tokens.written,
            output=max(tokens.output, self._events or answer_bytes // 4),
        )  # fmt: skip

    def _read_event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.is_final = bool(self._usage)
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        self._events += 1
        if isinstance(event, dict):
            self._read_answer(event)
            self.is_final = self.is_final or event.get("type") in _LAST_EVENTS

    def _read_answer(self, answer: Any) -> None:
        if not isinstance(answer, dict):
            return
        for holder in (answer, answer.get("message"), answer.get("response")):
            usage = (
                holder.get("usageMetadata" if self._api == "gemini" else "usage") if isinstance(holder, dict) else None
            )
            if isinstance(usage, dict):
                self._merge_usage(usage)
        candidates = answer.get("candidates")
        if isinstance(candidates, list) and any(
            isinstance(part, dict) and part.get("finishReason") for part in candidates
        ):
            self.is_final = bool(self._usage)

    def _merge_usage(self, usage: dict[str, Any]) -> None:
        """Take over counts. They only grow: the end of a stream may leave out those of its start, or tell 0."""
        for name, value in usage.items():
            if not isinstance(value, int) or value >= _count(self._usage, name):
                self._usage[name] = value


def _to_tokens(api: ModelApi, usage: dict[str, Any]) -> RunTokens:
    if api == "anthropic":
        cached, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
        total = _count(usage, "input_tokens") + cached + written
        return RunTokens(input=total, output=_count(usage, "output_tokens"), cached=cached, written=written)
    if api == "gemini":
        output = _count(usage, "candidatesTokenCount") + _count(usage, "thoughtsTokenCount")
        total = _count(usage, "promptTokenCount") + _count(usage, "toolUsePromptTokenCount")
        return RunTokens(input=total, output=output, cached=_count(usage, "cachedContentTokenCount"))
    if api == "openai-responses":
        details = usage.get("input_tokens_details")
        return RunTokens(
            input=_count(usage, "input_tokens"), output=_count(usage, "output_tokens"), cached=_count(details, "cached_tokens")
        )  # fmt: skip
    details = usage.get("prompt_tokens_details")
    return RunTokens(
        input=_count(usage, "prompt_tokens"), output=_count(usage, "completion_tokens"),
        cached=_count(details, "cached_tokens"),
    )  # fmt: skip


def _count(usage: Any, name: str) -> int:
    return (clamp_int(usage.get(name)) or 0) if isinstance(usage, dict) else 0
