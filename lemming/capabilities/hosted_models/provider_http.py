"""Base of the backends over HTTP: HTTP statuses become errors, and bodies become typed values.

SDKs pass on responses of any proxy in between, so a body is trusted only in the shape required by the
backend. Any other body is `Unavailable`, because the next attempt may reach the real server.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import ValidationError

from lemming.capabilities.hosted_models.bounded_response import get_host
from lemming.capabilities.hosted_models.rate_headers import rejection_wait_s, retry_after_s
from lemming.ext import ConfigError
from lemming.kernel.base.errors import (
    AuthenticationFailed,
    ProviderError,
    RateLimited,
    RequestRejected,
    Unavailable,
    UnknownModel,
)
from lemming.kernel.base.redaction.secrets import redacted_excerpt, register_secret_variables
from lemming.kernel.files.json_documents import adapter
from lemming.kernel.llm.call_cost import usage_at_path
from lemming.kernel.llm.model_call import describe_tool_calls
from lemming.kernel.plugins.provider_errors import mark_billing_by_cause, mark_billing_by_status
from lemming.kernel.providers import Backend, Message, Reply, Request
from lemming.libraries.concurrency.async_calls import AsyncClient, SharedClient, run_async
from lemming.libraries.lenient_json import parse_object_or_empty, parse_or_default
from lemming.libraries.streaming import DeltaCallback, WordBuffer

# Messages of OpenAI, Anthropic, llama.cpp, vLLM and Ollama for a prompt above the model's limit.
_TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
_TOO_LONG = re.compile(
    r"maximum context length|prompt is too long|exceeds? the (?:available |maximum |model's )*context"
    r"|context (?:length|window|size) (?:is |was |has been )?exceeded|longer than the maximum model length"
    r"|input length exceeds|(?:prompt|input|request) (?:\S+ ){0,4}exceeds? (?:\S+ ){0,4}(?:tokens|context)",
    re.I,
)
_SCHEMA_PATTERN = re.compile(
    r"json.?schema|response_format|output_config|output_format|structured.output|text\.format"
    r"|guided.(?:json|decoding)|\.format\b",
    re.I,
)
_PART_PATTERNS = {
    "json_schema": _SCHEMA_PATTERN,
    "json_object": _SCHEMA_PATTERN,
    "tools": re.compile(r"\btools?\b|tool.(?:choice|call)|function.call", re.I),
    "encrypted_content": re.compile(r"encrypted.content|\binclude\b", re.I),
}
# A message about one message, tool or length concerns this conversation, not the server.
_CONVERSATION_PATTERN = re.compile(
    r"\b(?:messages?|tools?|functions|input|contents?)\s*(?:\[|\.)\s*\d|tool_call_id|tool_use_id"
    r"|too (?:long|many|large|big)|maximum (?:length|number)|at most \d|\bpreceding\b|must be followed",
    re.I,
)
_REJECTION_PATTERN = re.compile(
    r"not (?:be )?(?:supported|permitted|allowed|available|recogni[sz]ed|implemented)|unsupported|unknown"
    r"|unrecogni[sz]ed|unexpected|extra|forbidden|deprecated|does ?n.t (?:take|support)|does not support"
    r"|unavailable|must be|cannot (?:unmarshal|use|be used)|requires?|invalid",
    re.I,
)

_USAGE_KEYS = (
    ("prompt_tokens", "input_tokens", "prompt_eval_count"),
    ("completion_tokens", "output_tokens", "eval_count"),
)
"""Names that servers give to input and output token counts."""

T = TypeVar("T")
C = TypeVar("C", bound=AsyncClient)


class HttpBackend(Backend, Generic[C]):
    """Backend for a server through an SDK's async client. The client is cached."""

    keeps_deadline = True
    leaves_out = True
    max_concurrent = 64
    name: ClassVar[str]
    without_schema: ClassVar[str] = ""
    """The option with which a request is sent without a JSON schema."""
    is_local = False
    """True if the server usually runs on the user's machine."""

    def __init__(self, *, base_url: str | None = None, key_env: str = "", needs_key: bool = False) -> None:
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            message = (
                f"provider {self.name}: base_url {redacted_excerpt(base_url)!r} must start with http:// or https://"
            )
            raise ConfigError(message, where="config/models.json")
        register_secret_variables({"api_key_env": key_env, "base_url": base_url or ""}, "config/models.json")
        self._key_env, self._needs_key, self._address = key_env, needs_key, base_url or ""
        self._client: SharedClient[C] = SharedClient(self._create_client)

    def complete(self, request: Request) -> Reply:
        """Return the answer with its usage."""
        return self._complete(request, None)

    def complete_streaming(self, request: Request, on_delta: DeltaCallback) -> Reply:
        """Return the answer with its usage, and stream its text."""
        if "stream" in request.without:
            return self.complete(request)
        word_stream = WordBuffer(on_delta)
        try:
            return self._complete(request, word_stream.feed)
        finally:
            word_stream.flush()

    def _complete(self, request: Request, on_delta: DeltaCallback | None) -> Reply:
        request = self.inline_tools(request)
        try:
            return self.run(lambda client: self._send_request(client, request, on_delta), request.deadline_s)
        except RequestRejected as error:
            parts = [*self._droppable_parts(request), *(["stream"] if on_delta else [])]
            error.refused = find_rejected_part(error.message, parts)
            raise

    def inline_tools(self, request: Request) -> Request:
        """Return a request with its tools as text if the server accepts no tools."""
        return describe_tool_calls(request) if "tools" in request.without else request

    @abstractmethod
    def _droppable_parts(self, request: Request) -> list[str]:
        """Return the parts of the request that may be dropped if rejected."""

    def run(self, work: Callable[[C], Coroutine[Any, Any, T]], deadline_s: float) -> T:
        """Run an operation with the client.

        Stopping the engine cancels a call to the user's own server: such a call is free, and the next run repeats the
        call. A call with possible costs is awaited. Raises: TimedOut after the deadline.
        """
        client = self._client.get(key := self._api_key())
        is_free = self.is_local and key == "none"
        return run_async(lambda: work(client), deadline_s, stop=self.stopping if is_free else None)

    @abstractmethod
    def _create_client(self, key: str) -> C:
        """Return a new client with this key, without retries and timeouts of its own."""

    @abstractmethod
    async def _send_request(self, client: C, request: Request, on_delta: DeltaCallback | None = None) -> Reply:
        """Send a request once, and stream the text with `on_delta`. Errors of the SDK become a `ProviderError`."""

    def _api_key(self) -> str:
        key = os.environ.get(self._key_env, "").strip() if self._key_env else ""
        if not key and self._needs_key:
            raise AuthenticationFailed(
                f"no API key: the environment variable {self._key_env} is not set",
                where=self.name,
                hint=f"export {self._key_env}=..., or name another variable in options.api_key_env",
            )
        return key or "none"  # servers of one's own ask for no key, but the SDKs insist on sending one

    def _status_error(
        self, model_name: str, status: int, body: object, headers: Mapping[str, str] | None = None
    ) -> ProviderError:
        detail, code = _parse_error_body(body)
        message = f"HTTP {status}: {redacted_excerpt(detail)}"
        location = f"{self.name} {model_name}"
        # OpenAI says 429 for an account without money, which no waiting helps.
        if status in (401, 402, 403) or code == "insufficient_quota":
            hint = "name the variable that holds its key in options.api_key_env"
            if status == 402 or code == "insufficient_quota":
                hint = "check the balance and the limits of the account"
            elif self._key_env:
                hint = f"check the key in {self._key_env} and the account behind it"
            return AuthenticationFailed(message, where=location, hint=hint)
        if status == 404:
            return UnknownModel(message, where=location, hint=self._hint_for_unknown(model_name))
        if status == 429:
            return RateLimited(message, where=location, retry_after_s=rejection_wait_s(headers or {}))
        if status in (408, 409, 425) or status >= 500:
            unavailable = Unavailable(message, where=location, retry_after_s=retry_after_s(headers or {}))
            return mark_billing_by_status(unavailable, status)
        return RequestRejected(message, where=location, hint=self._hint_for_rejected(status, detail, code))

    def _hint_for_rejected(self, status: int, detail: str, code: str) -> str:
        if status == 413 or code in _TOO_LONG_CODES or _TOO_LONG.search(detail):
            shorter = "lower inbox_chars or memory_chars in config/org.json, or clear memory"
            return f"{shorter}: the prompt is too long"
        if self.without_schema and _SCHEMA_PATTERN.search(detail):
            return f"set {self.without_schema} in config/models.json: the server does not accept JSON schemas"
        return "check the model's entry in config/models.json, options.extra included"

    def _hint_for_unknown(self, model_name: str) -> str:
        is_usual = not self._address or "/v1" in self._address
        ends = "" if is_usual else ", which ends with /v1 on most servers,"
        return f'check "model" ({model_name}) and the address{ends} in config/models.json'

    def _unreachable_error(self, model_name: str, cause: BaseException, url: Any) -> ProviderError:
        """Return the error for a refused, reset or broken connection, or for the data read from it."""
        if isinstance(cause, ProviderError):
            return cause
        cause_text = f"{type(cause).__name__}({str(cause)!r})"
        message = f"connection to {get_host(url)} failed: {redacted_excerpt(cause_text)}"
        return mark_billing_by_cause(Unavailable(message, where=f"{self.name} {model_name}"), cause)

    def parse_answer(self, model_name: str, kind: type[T], body: bytes) -> T | Reply:
        """Return the body of an answer as a value of `kind`, or as an empty, charged reply if malformed.

        A body with an `error` is the provider's error, regardless of its status. With usage, the error
        becomes a failed, charged reply; without usage, the error is raised. Raises `Unavailable` for a
        malformed body without usage.
        """
        if b'"error"' in body and (failure := self._embedded_error(model_name, body)):
            paid = to_charged_reply(body, model_name, "")
            if paid is None:
                raise failure
            return to_failed_reply(paid, failure.message)
        try:
            return self.parse_body(model_name, kind, body)
        except Unavailable as error:
            paid = to_charged_reply(body, model_name, error.message)
            if paid is None:
                raise
            return paid

    def _embedded_error(self, model_name: str, body: bytes) -> ProviderError | None:
        """Return the error inside a body with a success status, or None."""
        plain = parse_object_or_empty(body)
        if not plain.get("error"):
            return None
        code = plain["error"].get("code") if isinstance(plain["error"], dict) else None
        if isinstance(code, int) and 400 <= code < 600:  # routers send the status of the server behind them
            return self._status_error(model_name, code, plain)
        return Unavailable(redacted_excerpt(_parse_error_body(plain)[0]), where=f"{self.name} {model_name}")

    def parse_body(self, model_name: str, kind: type[T], body: bytes) -> T:
        """Return a body as a value of `kind`. Raises: Unavailable if the body has another shape."""
        try:
            value: T = adapter(cast(Any, kind)).validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            location = ".".join(map(str, first["loc"]))
            problem = f"{location}: {first['msg']}" if location else first["msg"]
            message = f"not an answer ({redacted_excerpt(problem)}): {redacted_excerpt(body.decode('utf-8', 'replace'), 80)!r}"
            raise Unavailable(message, where=f"{self.name} {model_name}") from error
        return value


def to_charged_reply(body: bytes, model_name: str, reason: str) -> Reply | None:
    """Return a malformed, but charged answer as an empty reply with its usage, or None if no usage was reported."""
    plain = parse_object_or_empty(body)
    usage = plain.get("usage", plain)
    input_tokens, output_tokens = (
        next((count for key in keys if (count := usage_at_path(usage, key)) is not None), None) for keys in _USAGE_KEYS
    )
    if input_tokens is None and output_tokens is None:
        return None
    return Reply("", input_tokens, output_tokens, model=model_name, thinking=f"not understood: {reason}")


def to_failed_reply(reply: Reply, message: str) -> Reply:
    """Return a charged reply as failed, with the provider's error message."""
    return reply._replace(text=f"the provider told of an error: {message}", finish="failed", thinking="")


def find_rejected_part(message: str, parts: Sequence[str]) -> str:
    """Return the part of a request rejected by a server, or the empty string for an unrelated error.

    >>> find_rejected_part("HTTP 400: Unsupported parameter: 'seed'", ["json_schema", "seed"])
    'seed'
    >>> find_rejected_part("HTTP 400: messages[3]: role 'tool' must be a response to tool_calls", ["tools"])
    ''
    >>> find_rejected_part("HTTP 400: This response_format type is unavailable now", ["json_schema"])
    'json_schema'
    """
    if _TOO_LONG.search(message) or _CONVERSATION_PATTERN.search(message) or not _REJECTION_PATTERN.search(message):
        return ""
    for part in parts:
        pattern = _PART_PATTERNS.get(part) or re.compile(rf"\b{part}")
        if pattern.search(message):
            return part
    return ""


def default_key_env(key_env: str, base_url: str | None, domain: str) -> str:
    """Return the default variable of the key, or the empty string for a server of another provider.

    >>> default_key_env("OPENAI_API_KEY", "https://eu.api.openai.com/v1", "openai.com")
    'OPENAI_API_KEY'
    >>> default_key_env("OPENAI_API_KEY", "https://openai.com.example.org/v1", "openai.com")
    ''
    """
    host = urlsplit(base_url).hostname or "" if base_url else domain
    return key_env if host == domain or host.endswith(f".{domain}") else ""


def split_system(messages: list[Message]) -> tuple[str, list[Message]]:
    """Return the system messages as one text, and all other messages."""
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    return system, [message for message in messages if message["role"] != "system"]


def describe_error(error: object) -> str:
    """Return the message of an error in the body of an answer."""
    return redacted_excerpt(_parse_error_body({"error": error})[0])


def error_body(response: Any) -> object:
    """Return the body of an error response of either `httpx` generation: an object, or its text."""
    body: object = parse_or_default(response.content, None)
    return body if isinstance(body, Mapping) else response.text


def _parse_error_body(body: object) -> tuple[str, str]:
    """Return the message and code of an error body: OpenAI's, Anthropic's, Ollama's, or plain text."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        code = next((kind for key in ("code", "type") if isinstance(kind := inner.get(key), str)), "")
        return str(inner.get("message") or inner.get("detail") or "no details"), code
    return str(inner or "no details"), ""
