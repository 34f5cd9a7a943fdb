"""APIs of models, as `model_apis.json` declares them: vendor, requests, keys, usage, and errors of the gateway.

Anthropic Messages, OpenAI Responses, OpenAI chat completions, and Gemini's generateContent.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from lemming.capabilities.workers.harnesses.json_fields import JsonFields, RunTokens

Operation = Literal["", "generate", "count", "list"]
"""Purpose of a request. "generate" costs money; an empty text is no request that a harness needs."""

_FILE = Path(__file__).with_name("model_apis.json")
_MODEL = re.compile(r"[\w.-]*")
_LAST_EVENTS = ("message_stop", "response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True, kw_only=True)
class VendorApi:
    """An API of models, and its vendor.

    `key_variable`: variable with the key. `address_variable`: variable with another server's address. `model`: a model
    for coding; with OpenAI Responses one that has its tools in a form that offline tests speak. `hosted_provider` and
    `hosted_model`: a cheap model, as `config/models.json` names it. `requests`: purposes by method and path, with
    {model} for the model's name. `query`: parameters that are passed on. `key_header`: header with the key. `tokens`:
    paths of input, output, cached and written tokens; several are added. `input` includes what was cached.
    """

    name: str
    key_variable: str
    address_variable: str
    address: str
    model: str
    hosted_provider: str
    hosted_model: str
    requests: Mapping[str, Operation]
    query: Sequence[str] = ()
    key_header: str = "authorization"
    tokens: Sequence[str]

    def find_address(self) -> str:
        """Return the address of the server: that of the environment, else the vendor's."""
        return os.environ.get(self.address_variable) or self.address

    def parse_request(self, method: str, target: str, body: Mapping[str, Any]) -> tuple[Operation, str]:
        """Return the purpose of a request, and the model that it names or an empty text."""
        request = f"{method} {urlsplit(target).path}"
        for form, operation in self.requests.items():
            start, mark, end = form.partition("{model}")
            model = request.removeprefix(start).removesuffix(end)
            if request == start + model + end and bool(mark) == bool(model) and _MODEL.fullmatch(model):
                return operation, model or JsonFields(body).get_text("model")
        return "", ""

    def build_url(self, base_url: str, target: str) -> str:
        """Return the server's address for a request of a harness.

        >>> load_api("anthropic").build_url("https://api.anthropic.com", "/v1/messages?beta=true")
        'https://api.anthropic.com/v1/messages?beta=true'
        >>> load_api("openai-chat").build_url("https://host.example/api/openai", "/v1/chat/completions")
        'https://host.example/api/openai/chat/completions'
        """
        parts, base = urlsplit(target), base_url.rstrip("/")
        path = parts.path
        if self.name.startswith("openai") and urlsplit(base).path:  # such an address has the version already
            path = path.removeprefix("/v1")
        else:
            base = re.sub(r"/v1(?:beta)?\Z", "", base)
        query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] in self.query])
        return f"{base}{path}?{query}" if query else f"{base}{path}"

    def build_key_headers(self, key: str) -> dict[str, str]:
        """Return the headers that carry a key; none without a key."""
        text = f"Bearer {key}" if self.key_header == "authorization" else key
        return {self.key_header: text} if key else {}

    def format_error(self, status: int, message: str) -> bytes:
        """Return an error of the gateway in the API's own shape."""
        kind = "permission_error" if status in (401, 403) else "invalid_request_error"
        kind = "api_error" if status >= 500 else kind
        body: dict[str, Any] = {"error": {"message": message, "type": kind, "code": "lemming_gateway", "param": None}}
        if self.name == "anthropic":
            body = {"type": "error", "error": {"type": kind, "message": message}}
        elif self.name == "gemini":
            body = {"error": {"code": status, "message": message, "status": "FAILED_PRECONDITION"}}
        return json.dumps(body).encode()


def load_api(name: str) -> VendorApi:
    """Return an API by name. Raises `KeyError` for "none"."""
    return VendorApi(name=name, **json.loads(_FILE.read_bytes())[name])


class UsageCounter:
    """Reads the usage out of a passing answer, streamed or not. `is_final`: the whole usage was told."""

    def __init__(self, api: VendorApi, request_bytes: int) -> None:
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
        tokens = RunTokens(input=self._request_bytes // 4)
        if self._usage:
            tokens = JsonFields(self._usage).sum_tokens(self._api.tokens)
            if self.is_final:
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
