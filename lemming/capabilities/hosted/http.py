"""What the backends behind HTTP share: a status becomes an error, a body becomes a typed value.

SDKs hand back whatever a proxy in between sent, so a body is only trusted once it has the shape the
backend needs. Anything else is `Unavailable`, because the next attempt may reach the real server.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import ValidationError

from lemming.capabilities.background.calls import AsyncClient, SharedClient, run
from lemming.capabilities.hosted.bounded import host_of
from lemming.capabilities.hosted.rate_headers import refused_for_s, retry_after_s
from lemming.kernel.base.errors import (
    AuthenticationFailed,
    ConfigError,
    ProviderError,
    RateLimited,
    RequestRejected,
    Unavailable,
    UnknownModel,
)
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.redaction.secrets import excerpt, name_variables
from lemming.kernel.files.documents import adapter
from lemming.kernel.llm.calls import in_words
from lemming.kernel.llm.streaming import Hear, WholeWords
from lemming.kernel.llm.tokens import tokens_at
from lemming.kernel.plugins.errors import error_by_class, error_by_status
from lemming.kernel.providers import Backend, Message, Reply, Request

# What OpenAI, Anthropic, llama.cpp, vLLM and Ollama say of a prompt that is longer than the model takes.
_TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
_TOO_LONG = re.compile(
    r"maximum context length|prompt is too long|exceeds? the (?:available |maximum |model's )*context"
    r"|context (?:length|window|size) (?:is |was |has been )?exceeded|longer than the maximum model length"
    r"|input length exceeds|(?:prompt|input|request) (?:\S+ ){0,4}exceeds? (?:\S+ ){0,4}(?:tokens|context)",
    re.I,
)
_ABOUT_SCHEMA = re.compile(
    r"json.?schema|response_format|output_config|output_format|structured.output|text\.format"
    r"|guided.(?:json|decoding)|\.format\b",
    re.I,
)
_ABOUT = {
    "json_schema": _ABOUT_SCHEMA,
    "json_object": _ABOUT_SCHEMA,
    "tools": re.compile(r"\btools?\b|tool.(?:choice|call)|function.call", re.I),
    "encrypted_content": re.compile(r"encrypted.content|\binclude\b", re.I),
}
# What is said of one message, one tool or a length is about this conversation, and not about the server.
_ABOUT_THIS_ONE = re.compile(
    r"\b(?:messages?|tools?|functions|input|contents?)\s*(?:\[|\.)\s*\d|tool_call_id|tool_use_id"
    r"|too (?:long|many|large|big)|maximum (?:length|number)|at most \d|\bpreceding\b|must be followed",
    re.I,
)
_REFUSED = re.compile(
    r"not (?:be )?(?:supported|permitted|allowed|available|recogni[sz]ed|implemented)|unsupported|unknown"
    r"|unrecogni[sz]ed|unexpected|extra|forbidden|deprecated|does ?n.t (?:take|support)|does not support"
    r"|unavailable|must be|cannot (?:unmarshal|use|be used)|requires?|invalid",
    re.I,
)

_COUNTS = (
    ("prompt_tokens", "input_tokens", "prompt_eval_count"),
    ("completion_tokens", "output_tokens", "eval_count"),
)
"""What servers call the tokens that were read and written."""

T = TypeVar("T")
C = TypeVar("C", bound=AsyncClient)


class HttpBackend(Backend, Generic[C]):
    """A backend that asks a server through an SDK's async client, which it keeps."""

    keeps_deadline = True
    leaves_out = True
    max_concurrent = 64
    name: ClassVar[str]
    without_schema: ClassVar[str] = ""
    """The option with which a request is sent without a JSON schema."""
    is_local = False
    """Whether the server usually runs on a machine of the user."""

    def __init__(self, *, base_url: str | None = None, key_env: str = "", needs_key: bool = False) -> None:
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            message = (
                f"provider {self.name}: base_url {excerpt(base_url)!r} must start with http:// or https://"
            )
            raise ConfigError(message, where="config/models.json")
        name_variables({"api_key_env": key_env, "base_url": base_url or ""}, "config/models.json")
        self._key_env, self._needs_key, self._address = key_env, needs_key, base_url or ""
        self._client: SharedClient[C] = SharedClient(self._connect)

    def complete(self, request: Request) -> Reply:
        """Return the answer with its usage."""
        return self._complete(request, self._ask, [])

    def complete_heard(self, request: Request, hear: Hear) -> Reply:
        """Return the answer with its usage; its text is heard as it comes."""
        if "stream" in request.without:
            return self.complete(request)
        told = WholeWords(hear)
        try:
            return self._complete(request, partial(self._ask_heard, hear=told.hear), ["stream"])
        finally:
            told.end()

    def _complete(
        self, request: Request, ask: Callable[[C, Request], Coroutine[Any, Any, Reply]], further: list[str]
    ) -> Reply:
        """Ask; `further` are parts that a server may refuse beside those of the request."""
        request = self.worded(request)
        try:
            return self.run(lambda client: ask(client, request), request.deadline_s)
        except RequestRejected as error:
            error.refused = refused_part(error.message, [*self._parts(request), *further])
            raise

    def worded(self, request: Request) -> Request:
        """Return a request with its tools in words, where the server takes none."""
        return in_words(request) if "tools" in request.without else request

    def _parts(self, request: Request) -> list[str]:
        """Return which parts of a request, as it is sent, could be left out."""
        return []

    def run(self, work: Callable[[C], Coroutine[Any, Any, T]], deadline_s: float) -> T:
        """Do something with the client; raise `TimedOut` when it takes too long.

        The stop of an engine breaks off a call to a server of the user's own: nobody bills for it, and the
        next run asks again. A call that may be paid for is waited for.
        """
        client = self._client.get(key := self._key())
        is_unpaid = self.is_local and key == "none"
        return run(lambda: work(client), deadline_s, stop=self.stopping if is_unpaid else None)

    @abstractmethod
    def _connect(self, key: str) -> C:
        """Return a new client that sends `key`, retries nothing and has no timeouts of its own."""

    @abstractmethod
    async def _ask(self, client: C, request: Request) -> Reply:
        """Ask once; raise a `ProviderError` for whatever the SDK raises."""

    @abstractmethod
    async def _ask_heard(self, client: C, request: Request, hear: Hear) -> Reply:
        """Ask once as `_ask` does, and have the text heard as it comes."""

    def _key(self) -> str:
        key = os.environ.get(self._key_env, "").strip() if self._key_env else ""
        if not key and self._needs_key:
            raise AuthenticationFailed(
                f"no API key: the environment variable {self._key_env} is not set",
                where=self.name,
                hint=f"export {self._key_env}=..., or name another variable in options.api_key_env",
            )
        return key or "none"  # servers of one's own ask for no key, but the SDKs insist on sending one

    def _error(
        self, model_name: str, status: int, body: object, headers: Mapping[str, str] | None = None
    ) -> ProviderError:
        """Return the error that an HTTP status means."""
        detail, code = _detail(body)
        message = f"HTTP {status}: {excerpt(detail)}"
        where = f"{self.name} {model_name}"
        # OpenAI says 429 for an account without money, which no waiting helps.
        if status in (401, 402, 403) or code == "insufficient_quota":
            about_key = (
                f"check the key in {self._key_env}"
                if self._key_env
                else "name the variable that holds its key in options.api_key_env"
            )
            return AuthenticationFailed(message, where=where, hint=f"{about_key} and the account behind it")
        if status == 404:
            return UnknownModel(message, where=where, hint=self._hint_for_unknown(model_name))
        if status == 429:
            return RateLimited(message, where=where, retry_after_s=refused_for_s(headers or {}))
        if status in (408, 409, 425) or status >= 500:
            unavailable = Unavailable(message, where=where, retry_after_s=retry_after_s(headers or {}))
            return error_by_status(unavailable, status)
        return RequestRejected(message, where=where, hint=self._hint_for_rejected(status, detail, code))

    def _hint_for_rejected(self, status: int, detail: str, code: str) -> str:
        if status == 413 or code in _TOO_LONG_CODES or _TOO_LONG.search(detail):
            shorter = "lower inbox_chars or memory_chars in config/org.json, or clear memory"
            return f"the prompt is too long: {shorter}"
        if self.without_schema and _ABOUT_SCHEMA.search(detail):
            return f"the server takes no JSON schema: set {self.without_schema} in config/models.json"
        return "check the model's entry in config/models.json, options.extra included"

    def _hint_for_unknown(self, model_name: str) -> str:
        is_usual = not self._address or "/v1" in self._address
        ends = "" if is_usual else ", which ends with /v1 on most servers,"
        return f'check "model" ({model_name}) and the address{ends} in config/models.json'

    def _unreachable(self, model_name: str, cause: BaseException, url: Any) -> ProviderError:
        """Return the error for a connection that was refused, reset or cut, or for what was read from it."""
        if isinstance(cause, ProviderError):
            return cause
        shown = f"{type(cause).__name__}({str(cause)!r})"
        message = f"connection to {host_of(url)} failed: {excerpt(shown)}"
        return error_by_class(Unavailable(message, where=f"{self.name} {model_name}"), cause)

    def read_answer(self, model_name: str, kind: type[T], body: bytes) -> T | Reply:
        """Return the body of an answer as a value of `kind`; one that is another as an empty, paid reply.

        A body with an `error` is the provider's error, whatever its status: one that says what it has used is
        a failed, paid reply, and another is raised. Raises `Unavailable` for what says neither.
        """
        if b'"error"' in body and (failure := self._error_in(model_name, body)):
            paid = paid_reply(body, model_name, "")
            if paid is None:
                raise failure
            return failed_reply(paid, failure.message)
        try:
            return self.read(model_name, kind, body)
        except Unavailable as error:
            paid = paid_reply(body, model_name, error.message)
            if paid is None:
                raise
            return paid

    def _error_in(self, model_name: str, body: bytes) -> ProviderError | None:
        """Return the error that a body with a status of success tells of; None if it tells of none."""
        try:
            plain = parse(body)
        except JsonProblem:
            return None
        if not isinstance(plain, dict) or not plain.get("error"):
            return None
        code = plain["error"].get("code") if isinstance(plain["error"], dict) else None
        if isinstance(code, int) and 400 <= code < 600:  # routers send the status of the server behind them
            return self._error(model_name, code, plain)
        return Unavailable(excerpt(_detail(plain)[0]), where=f"{self.name} {model_name}")

    def read(self, model_name: str, kind: type[T], body: bytes) -> T:
        """Return a body as a value of `kind`; raise `Unavailable` when it is something else."""
        try:
            value: T = adapter(cast(Any, kind)).validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            problem = f"{place}: {first['msg']}" if place else first["msg"]
            message = f"not an answer ({excerpt(problem)}): {excerpt(body.decode('utf-8', 'replace'), 80)!r}"
            raise Unavailable(message, where=f"{self.name} {model_name}") from error
        return value


def paid_reply(body: bytes, model_name: str, why: str) -> Reply | None:
    """Return an answer that is not understood as an empty one with the usage it reports; None if it has none.

    It was paid for, so it is no failure of the server that is asked again for nothing.
    """
    try:
        plain = parse(body)
    except JsonProblem:
        return None
    usage = plain.get("usage", plain) if isinstance(plain, dict) else None
    read, written = (
        next((count for key in keys if (count := tokens_at(usage, key)) is not None), None)
        for keys in _COUNTS
    )
    if read is None and written is None:
        return None
    return Reply("", read, written, model=model_name, thinking=f"not understood: {why}")


def failed_reply(reply: Reply, words: str) -> Reply:
    """Return a reply that was charged, and in whose place the provider told of an error."""
    return reply._replace(text=f"the provider told of an error: {words}", finish="failed", thinking="")


def refused_part(message: str, parts: Sequence[str]) -> str:
    """Return which part of a request a server says that it does not take; empty when it means none of them.

    >>> refused_part("HTTP 400: Unsupported parameter: 'seed'", ["json_schema", "seed"])
    'seed'
    >>> refused_part("HTTP 400: messages[3]: role 'tool' must be a response to tool_calls", ["tools"])
    ''
    >>> refused_part("HTTP 400: This response_format type is unavailable now", ["json_schema"])
    'json_schema'
    """
    if _TOO_LONG.search(message) or _ABOUT_THIS_ONE.search(message) or not _REFUSED.search(message):
        return ""
    for part in parts:
        pattern = _ABOUT.get(part) or re.compile(rf"\b{part}")
        if pattern.search(message):
            return part
    return ""


def default_key_env(key_env: str, base_url: str | None, domain: str) -> str:
    """Return the variable that holds the key where none is named: none for somebody else's server.

    >>> default_key_env("OPENAI_API_KEY", "https://eu.api.openai.com/v1", "openai.com")
    'OPENAI_API_KEY'
    >>> default_key_env("OPENAI_API_KEY", "https://openai.com.example.org/v1", "openai.com")
    ''
    """
    host = urlsplit(base_url).hostname or "" if base_url else domain
    return key_env if host == domain or host.endswith(f".{domain}") else ""


def split_system(messages: list[Message]) -> tuple[str, list[Message]]:
    """Return the system messages as one text, and the others."""
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    return system, [message for message in messages if message["role"] != "system"]


def with_extra(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request without those that `extra` sets, plus `extra_body` to carry it.

    A field that `extra` sets to null is not sent at all.

    >>> with_extra({"model": "m", "seed": 1}, {"seed": None, "reasoning_effort": "low"})
    {'model': 'm', 'extra_body': {'reasoning_effort': 'low'}}
    """
    kept = {name: value for name, value in fields.items() if name not in extra}
    sent = {name: value for name, value in extra.items() if value is not None}
    return {**kept, "extra_body": sent} if sent else kept


def error_words(error: object) -> str:
    """Return what an error in the body of an answer says."""
    return excerpt(_detail({"error": error})[0])


def error_body(response: Any) -> object:
    """Return the body of an error of either generation of `httpx`: an object, or its text."""
    try:
        body: object = parse(response.content)
    except JsonProblem:
        return response.text
    return body if isinstance(body, Mapping) else response.text


def _detail(body: object) -> tuple[str, str]:
    """Return what an error body says, and its code: OpenAI's, Anthropic's, Ollama's, or plain text."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        code = next((kind for key in ("code", "type") if isinstance(kind := inner.get(key), str)), "")
        return str(inner.get("message") or inner.get("detail") or "no details"), code
    return str(inner or "no details"), ""
