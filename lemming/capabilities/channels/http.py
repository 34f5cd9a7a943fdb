"""The HTTP channel: signed webhooks and questions come in, answers are fetched or sent.

Here is what one request means, and how an entry is sent; who listens is `lemming.capabilities.serving`.
"""

from __future__ import annotations

import hmac
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from lemming.capabilities.channels.channel import (
    Channel,
    ChannelContext,
    Message,
    Outgoing,
    Receipt,
    require_kind,
    require_name,
)
from lemming.capabilities.channels.exchange import Exchange, open_exchange
from lemming.capabilities.channels.signatures import signature, signing_key, verified_id
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import ConfigError, PermissionDenied, RequestRejected, TimedOut, Unavailable
from lemming.kernel.base.integers import LAST_TICK, bounded_int
from lemming.kernel.base.json_schema.violations import flaw_of
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.reply_json import MAX_REPLY_DEPTH

ASK_KEYS = ("text", "id", "conversation", "schema", "deadline")
_PASSING = (408, 425, 429)  # too slow, too early, too many: worth another try


class HttpChannel(Channel):
    """Takes webhooks signed with the secret in `secret_env`, and questions with the token in `token_env`.

    `deliver_to`: where entries are sent; without it answers are fetched.
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
            hint = '"secret_env" for webhooks, "token_env" for questions, "deliver_to" for what goes out'
            raise ConfigError("nothing can come in or go out", hint=hint)
        if deliver_to and urlsplit(deliver_to).scheme not in ("http", "https"):
            raise ConfigError('option "deliver_to": it is no http address', hint="https://example.org/hook")
        if not 1 <= max_body_bytes <= 240_000:
            raise ConfigError(f'option "max_body_bytes": expected 1 to 240000, found {max_body_bytes}')
        self.to, self.kind, self.max_body_bytes = to, kind, max_body_bytes
        self.most_an_hour, self._timeout_s = per_sender_an_hour, timeout_s
        self._secret_env, self.token_env = secret_env, token_env
        self._deliver_to, self._deliver_secret_env = deliver_to, deliver_secret_env
        self.sends = bool(deliver_to)
        self.variables = [name for name in (secret_env, token_env, deliver_secret_env) if name]

    def place(self, host: str, port: int, agent: str) -> str:
        """Return the addresses that it answers."""
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        places = [f"POST {address}/hooks/{agent}"] if self._secret_env else []
        places += [f"POST {address}/ask", f"GET {address}/requests/ID"] if self.token_env else []
        places += [f"sends to {urlsplit(self._deliver_to).hostname}"] if self.sends else []
        return ", ".join(places)

    def receive_hook(
        self, context: ChannelContext, headers: Mapping[str, str], body: bytes, sender: str
    ) -> Receipt:
        """Take in a signed webhook; raises `PermissionDenied`, and what `ChannelContext.receive` does."""
        secret = value_of(self._secret_env)
        if not secret:
            hint = 'set "secret_env" in its options to the name of a variable that holds the secret'
            raise PermissionDenied("this channel takes no webhooks", hint=hint)
        ident = verified_id(headers, body, secret, time.time())
        plain = _parsed(body)
        event = headers.get("x-github-event") or (plain.get("type") if isinstance(plain, dict) else "")
        text = plain.get("text") if isinstance(plain, dict) else None
        message = Message(
            id=ident,
            text=text if isinstance(text, str) else f"webhook {event or ident}",
            sender=sender,
            kind=self.kind,
            target=self.to,
            more={"event": str(event), "body": plain} if event else {"body": plain},
            verified={"secret": self._secret_env},
        )
        return context.receive(message, most_an_hour=self.most_an_hour)

    def knows(self, authorization: str) -> bool:
        """Return whether an `Authorization` header holds this channel's token."""
        token = value_of(self.token_env)
        scheme, _, given = authorization.partition(" ")
        # In constant time, and also where no token is set, which then lets nobody in.
        is_same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
        return bool(token) and scheme.lower() == "bearer" and is_same

    def receive_question(self, context: ChannelContext, key: str, body: bytes, sender: str) -> Receipt:
        """Take in a question of `POST /ask`; `key` is its idempotency key, which `id` may be as well."""
        plain = _parsed(body)
        if not isinstance(plain, dict):
            raise RequestRejected("the body is no JSON object", hint='{"text": "..."}')
        if unknown := [name for name in plain if name not in ASK_KEYS]:
            raise RequestRejected(f'unknown key "{unknown[0]}"', hint=f"keys: {', '.join(ASK_KEYS)}")
        text = plain.get("text")
        if not isinstance(text, str) or not text.strip():
            raise RequestRejected('"text" must be a text that is not empty', hint='{"text": "..."}')
        more = {name: plain[name] for name in ("conversation", "schema", "deadline") if name in plain}
        _check(more)
        ident = plain.get("id") or key
        message = Message(
            id=str(ident),
            text=text,
            sender=sender,
            kind="request",
            target=self.to,
            more=more,
            verified={"token": self.token_env},
        )
        return context.receive(message, most_an_hour=self.most_an_hour)

    def deliver(self, context: ChannelContext, outgoing: Outgoing) -> None:
        """Post an entry, signed as a Standard Webhook; its id is the entry's identity."""
        body, at = compact(_envelope(outgoing)), str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": outgoing.key,
            "webhook-id": outgoing.key,
            "webhook-timestamp": at,
        }
        if secret := value_of(self._deliver_secret_env):
            headers["webhook-signature"] = f"v1,{signature(signing_key(secret), outgoing.key, at, body)}"
        request = urllib.request.Request(self._deliver_to, body, headers, method="POST")  # noqa: S310 - http
        peer, deadline = urlsplit(self._deliver_to).hostname or "the target", Deadline(self._timeout_s)
        try:
            with (
                open_exchange(peer, deadline, context.stop) as exchange,
                _opener(exchange).open(request, timeout=self._timeout_s),
            ):
                exchange.require_whole()  # of its body nothing counts
        except urllib.error.HTTPError as error:
            error.close()
            why = f"{peer} answered {error.code} {error.reason}"
            raise (
                Unavailable(why) if error.code >= 500 or error.code in _PASSING else RequestRejected(why)
            ) from error
        except TimeoutError as error:
            raise TimedOut(f"{peer}: no answer within {self._timeout_s:g} s") from error
        except (OSError, ValueError, http.client.HTTPException) as error:  # a broken status line, say
            raise Unavailable(str(getattr(error, "reason", error)) or type(error).__name__) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address that sends elsewhere is refused: the operator named where entries go."""

    def redirect_request(self, *_: Any) -> None:
        """Return nothing, so that the redirect is an error."""


class _WatchedHttp(urllib.request.HTTPHandler):
    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPConnection, self._exchange), request)


class _WatchedHttps(urllib.request.HTTPSHandler):
    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPSConnection, self._exchange), request)


def _watched(kind: type[http.client.HTTPConnection], exchange: Exchange) -> Any:
    """Return a kind of connection that the exchange can cut."""

    def make(host: str, **options: Any) -> http.client.HTTPConnection:
        connection = kind(host, **options)
        exchange.watch(lambda: connection.sock)
        return connection

    return make


def _opener(exchange: Exchange) -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirect, _WatchedHttp(exchange), _WatchedHttps(exchange))


def value_of(variable: str) -> str:
    """Return what an environment variable holds; empty for none."""
    return os.environ.get(variable, "").strip() if variable else ""


def _parsed(body: bytes) -> Any:
    try:
        return parse(body, max_depth=MAX_REPLY_DEPTH)  # it goes into an entry, where it stands deeper
    except JsonProblem as error:
        raise RequestRejected(f"the body is not JSON: {error.message}") from error


def _check(more: Mapping[str, Any]) -> None:
    """Raise `RequestRejected` for what a question may not have."""
    if not isinstance(more.get("conversation", ""), str):
        raise RequestRejected('"conversation" must be a text')
    if not isinstance(more.get("schema", {}), dict):
        raise RequestRejected('"schema" must be a JSON schema, an object')
    flaw, pointer = flaw_of(more.get("schema", {}))
    if flaw:
        raise RequestRejected(f'"schema"{pointer and " " + pointer}: {flaw}')
    if bounded_int(more.get("deadline", 1), ge=1, le=LAST_TICK) is None:
        raise RequestRejected(f'"deadline" must be a number of ticks from 1 to {LAST_TICK}')


def _envelope(outgoing: Outgoing) -> dict[str, Any]:
    entry = outgoing.entry
    asked = outgoing.answers
    return {
        "key": outgoing.key,
        "agent": entry.agent,
        "tick": entry.tick,
        "kind": entry.kind,
        "text": outgoing.text,
        "payload": entry.payload,
        "answers": {"id": asked.id, "message_id": asked.payload.get("message_id")} if asked else None,
    }
