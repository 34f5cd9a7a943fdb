"""HTTP channel: signed webhooks and questions are received, answers are fetched or sent.

This module handles single requests and deliveries; `http_api` has the routes.
"""

from __future__ import annotations

import binascii
import hmac
import os
import ssl
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from lemming.capabilities.channels.channel import (
    Channel,
    ChannelContext,
    InboundMessage,
    OutgoingEntry,
    Receipt,
    require_kind,
    require_name,
)
from lemming.ext import ConfigError
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import PermissionDenied, RequestRejected, TimedOut, Unavailable
from lemming.kernel.base.integers import LAST_TICK, bounded_int, parse_int
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.reply_json import MAX_REPLY_DEPTH
from lemming.libraries.concurrency.async_calls import run_async

ASK_KEYS = ("text", "id", "conversation", "schema", "deadline")
_RETRYABLE_STATUSES = (408, 425, 429)  # too slow, too early, too many: worth another try


class HttpChannel(Channel):
    """Channel for webhooks signed with the secret in `secret_env`, and for questions with the token in
    `token_env`.

    `deliver_to`: target of delivered entries; without a target, answers are fetched.
    """

    seen_to_by: ClassVar[Literal["engine", "serve"]] = "serve"

    def __init__(
        self,
        *,
        to: str = "",
        kind: MessageKind = "request",
        secret_env: str = "",
        token_env: str = "",
        deliver_to: str = "",
        deliver_secret_env: str = "",
        max_body_bytes: int = 200_000,
        per_sender_an_hour: int | None = 600,
        timeout_s: float = 20.0,
    ) -> None:
        require_kind(kind)
        require_name(to)
        if not (secret_env or token_env or deliver_to):
            hint = 'set "secret_env" for webhooks, "token_env" for questions, "deliver_to" for outgoing entries'
            raise ConfigError('the channel must have "secret_env", "token_env" or "deliver_to"', hint=hint)
        if deliver_to and urlsplit(deliver_to).scheme not in ("http", "https"):
            raise ConfigError(
                'option "deliver_to" must be an http or https address',
                hint="write https://example.org/hook, for example",
            )
        if not 1 <= max_body_bytes <= 240_000:
            raise ConfigError(f'option "max_body_bytes" must be 1 to 240000, got {max_body_bytes}')
        self.to, self.kind, self.max_body_bytes = to, kind, max_body_bytes
        self.most_an_hour, self._timeout_s = per_sender_an_hour, timeout_s
        self._secret_env, self.token_env = secret_env, token_env
        self._deliver_to, self._deliver_secret_env = deliver_to, deliver_secret_env
        self.sends = bool(deliver_to)
        self.variables = [name for name in (secret_env, token_env, deliver_secret_env) if name]

    def endpoint(self, host: str, port: int, agent: str) -> str:
        """Return the addresses of the channel's endpoints."""
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        endpoints = [f"POST {address}/hooks/{agent}"] if self._secret_env else []
        endpoints += [f"POST {address}/ask", f"GET {address}/requests/ID"] if self.token_env else []
        endpoints += [f"sends to {urlsplit(self._deliver_to).hostname}"] if self.sends else []
        return ", ".join(endpoints)

    def receive_hook(self, context: ChannelContext, headers: Mapping[str, str], body: bytes, sender: str) -> Receipt:
        """Receive a signed webhook. Raises: PermissionDenied, and the errors of `ChannelContext.receive`."""
        secret = get_variable(self._secret_env)
        if not secret:
            hint = 'set "secret_env" in its options to the name of a variable that holds the secret'
            raise PermissionDenied("the channel does not accept webhooks", hint=hint)
        ident = verify_webhook(headers, body, secret, time.time())
        plain = _parse_body(body)
        event = headers.get("x-github-event") or (plain.get("type") if isinstance(plain, dict) else "")
        text = plain.get("text") if isinstance(plain, dict) else None
        message = InboundMessage(
            id=ident,
            text=text if isinstance(text, str) else f"webhook {event or ident}",
            sender=sender,
            kind=self.kind,
            target=self.to,
            more={"event": str(event), "body": plain} if event else {"body": plain},
            verified={"secret": self._secret_env},
        )
        return context.receive(message, most_an_hour=self.most_an_hour)

    def is_authorized(self, authorization: str) -> bool:
        """Return True if an `Authorization` header has the channel's token."""
        token = get_variable(self.token_env)
        scheme, _, presented = authorization.partition(" ")
        # In constant time, and also without a configured token, which then admits no request.
        is_same = hmac.compare_digest(presented.strip().encode("utf-8", "replace"), token.encode())
        return bool(token) and scheme.lower() == "bearer" and is_same

    def receive_question(self, context: ChannelContext, key: str, body: bytes, sender: str) -> Receipt:
        """Receive a question of `POST /ask`. `key` is its idempotency key, unless the body has an `id`."""
        plain = _parse_body(body)
        if not isinstance(plain, dict):
            raise RequestRejected("the body must be a JSON object", hint='send {"text": "..."}')
        if unknown := [name for name in plain if name not in ASK_KEYS]:
            raise RequestRejected(f'unknown key "{unknown[0]}"', hint=f"use the keys {', '.join(ASK_KEYS)}")
        text = plain.get("text")
        if not isinstance(text, str) or not text.strip():
            raise RequestRejected('"text" must be a non-empty text', hint='send {"text": "..."}')
        extra_fields = {name: plain[name] for name in ("conversation", "schema", "deadline") if name in plain}
        _require_valid_fields(extra_fields)
        ident = plain.get("id") or key
        message = InboundMessage(
            id=str(ident),
            text=text,
            sender=sender,
            kind="request",
            target=self.to,
            more=extra_fields,
            verified={"token": self.token_env},
        )
        return context.receive(message, most_an_hour=self.most_an_hour)

    def deliver(self, context: ChannelContext, outgoing: OutgoingEntry) -> None:
        """Post an entry, signed as a Standard Webhook, with the entry's identity as id."""
        answered = outgoing.answers
        answers = {"id": answered.id, "message_id": answered.payload.get("message_id")} if answered else None
        body, at = dump_compact({"key": outgoing.key, **outgoing.facts, "answers": answers}), str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": outgoing.key,
            "webhook-id": outgoing.key,
            "webhook-timestamp": at,
        }
        if secret := get_variable(self._deliver_secret_env):
            headers["webhook-signature"] = f"v1,{sign_webhook(decode_secret(secret), outgoing.key, at, body)}"
        import httpx2

        peer = urlsplit(self._deliver_to).hostname or "the target"

        async def post() -> tuple[int, str]:
            async with (
                httpx2.AsyncClient(timeout=None, verify=ssl.create_default_context()) as client,
                # Without redirects, as the operator chose the target, and of the answer's body nothing counts.
                client.stream("POST", self._deliver_to, content=body, headers=headers) as response,
            ):
                return response.status_code, response.reason_phrase

        try:
            status, phrase = run_async(post, self._timeout_s, stop=context.stop)
        except TimedOut as error:
            raise TimedOut(f"{peer} did not answer within {self._timeout_s:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise Unavailable(f"{peer}: {str(error) or type(error).__name__}") from error
        if not 200 <= status < 300:
            is_temporary = status >= 500 or status in _RETRYABLE_STATUSES
            raise (Unavailable if is_temporary else RequestRejected)(f"{peer} answered {status} {phrase}")


def get_variable(variable: str) -> str:
    """Return the value of an environment variable, or the empty string."""
    return os.environ.get(variable, "").strip() if variable else ""


def _parse_body(body: bytes) -> Any:
    try:
        return parse(body, max_depth=MAX_REPLY_DEPTH)  # it goes into an entry, where it stands deeper
    except JsonProblem as error:
        raise RequestRejected(f"the body must be JSON: {error.message}") from error


def _require_valid_fields(fields: Mapping[str, Any]) -> None:
    if not isinstance(fields.get("conversation", ""), str):
        raise RequestRejected('"conversation" must be a text')
    if not isinstance(fields.get("schema", {}), dict):
        raise RequestRejected('"schema" must be a JSON Schema (an object)')
    flaw, pointer = find_schema_flaw(fields.get("schema", {}))
    if flaw:
        raise RequestRejected(f'"schema"{pointer and " " + pointer}: {flaw}')
    if bounded_int(fields.get("deadline", 1), ge=1, le=LAST_TICK) is None:
        raise RequestRejected(f'"deadline" must be a number of ticks from 1 to {LAST_TICK}')


# Signatures of webhooks: Standard Webhooks 1.0 (standardwebhooks.com), and GitHub's.
TOLERANCE_S = 300
_PREFIX = "whsec_"


def verify_webhook(headers: Mapping[str, str], body: bytes, secret: str, now_s: float) -> str:
    """Return the id of a correctly signed webhook.

    `headers` have lower-case names. A Standard Webhook must be at most five minutes old. Raises: PermissionDenied with
    the reason.
    """
    if "webhook-signature" in headers:
        return _verify_standard_webhook(headers, body, secret, now_s)
    if "x-hub-signature-256" in headers:
        return _verify_github(headers, body, secret)
    hint = "send webhook-id, webhook-timestamp and webhook-signature, or X-Hub-Signature-256"
    raise PermissionDenied("the request is not signed", hint=hint)


def _verify_standard_webhook(headers: Mapping[str, str], body: bytes, secret: str, now_s: float) -> str:
    ident, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    seconds = parse_int(at)
    if not ident or seconds is None:
        raise PermissionDenied("webhook-id must be present, and webhook-timestamp must be a number of seconds")
    if abs(now_s - seconds) > TOLERANCE_S:
        raise PermissionDenied(f"webhook-timestamp must be within {TOLERANCE_S} seconds of the current time")
    candidates = [part.removeprefix("v1,") for part in headers["webhook-signature"].split(" ") if "v1," in part]
    expected = [sign_webhook(key, ident, at, body) for key in _candidate_keys(secret)]
    if not any(_is_equal(candidate, other) for candidate in candidates for other in expected):
        raise PermissionDenied("the signature is wrong")
    return ident


def _verify_github(headers: Mapping[str, str], body: bytes, secret: str) -> str:
    expected = "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()
    if not _is_equal(headers["x-hub-signature-256"], expected):
        raise PermissionDenied("the signature is wrong")
    if not headers.get("x-github-delivery"):
        raise PermissionDenied("X-GitHub-Delivery is missing")
    return f"github-{sha256(body).hexdigest()}"  # the header is not signed: the same body is the same message


def sign_webhook(key: bytes, ident: str, at: str, body: bytes) -> str:
    """Return the signature of a Standard Webhook, without the prefix `v1,`."""
    signed = f"{ident}.{at}.".encode() + body
    return b64encode(hmac.new(key, signed, sha256).digest()).decode()


def decode_secret(secret: str) -> bytes:
    """Return the signing key of a secret: base64 after `whsec_`, else the bytes of the text.

    >>> decode_secret("whsec_bWF5ZmFpcg=="), decode_secret("mayfair")
    (b'mayfair', b'mayfair')
    """
    return next(_candidate_keys(secret))


def _candidate_keys(secret: str) -> Iterator[bytes]:
    """Yield the possible keys of a secret. Some programs treat a secret without a prefix as base64 too."""
    plain = secret.removeprefix(_PREFIX)
    # Senders without the prefix mean either the text itself or its base64 form.
    if plain == secret:
        yield secret.encode()
    try:
        yield b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        if plain != secret:
            yield plain.encode()


def _is_equal(candidate: str, expected: str) -> bool:
    return hmac.compare_digest(candidate.encode("utf-8", "replace"), expected.encode())
