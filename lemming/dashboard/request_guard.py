"""Access checks of the page's server, in front of every request. Plain ASGI.

The server listens on this machine only, but any web page open in a local browser can send requests to the server. The
host name must therefore be this machine's (against DNS rebinding), the client must have the token, and a POST must come
from the page itself. Browsers send a cookie to every server of a machine, on any port: the page's cookie therefore has
a secret path. Text of agents is shown under a policy against foreign scripts.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

from lemming.kernel.base.integers import parse_int

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
COOKIE = "lemming"
LARGEST_BODY_BYTES = 512 << 10
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
_NO_TOKEN = "open the address printed by `lemming dash`: it has the token of this run\n"  # noqa: S105
_REDIRECT_PAGE = '<!doctype html><title>LeMMing</title><meta http-equiv="refresh" content="0;url={place}">'
_FOREIGN_ORIGIN = "this page is only for the machine it runs on\n"


class Guard:
    """ASGI access control: requests come from this run's page; with `is_read_only` they must not change anything."""

    def __init__(self, app: App, *, token: str, is_read_only: bool = False) -> None:
        self._app, self._token, self._is_read_only = app, token, is_read_only
        self.base_path = f"/{sha256(f'place of {token}'.encode()).hexdigest()[:32]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse the request."""
        assert scope["type"] == "http", "the page is served over HTTP only"
        headers = _parse_headers(scope)
        if _is_first_visit(scope) and _get_host(headers) in HOSTS:
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            await (self._set_cookie(send, headers) if self._is_token(token) else _send_refusal(send, 403, _NO_TOKEN))
        elif refusal := self._find_refusal(scope, headers):
            await _send_refusal(send, *refusal)
        else:
            path = scope["path"].removeprefix(self.base_path) if self._has_base_path(scope) else scope["path"]
            await self._app({**scope, "path": path}, receive, _add_security_headers(send))

    def _find_refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return the status and text of a refusal, or None if the request is allowed."""
        if _get_host(headers) not in HOSTS:
            return 421, _FOREIGN_ORIGIN
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, _FOREIGN_ORIGIN
        if not (self._has_bearer(headers) or (self._has_base_path(scope) and self._has_cookie(headers))):
            return 403, _NO_TOKEN
        if scope["method"] != "POST":
            return None if scope["method"] in ("GET", "HEAD") else (405, "GET or POST\n")
        if self._is_read_only:
            return 403, "`lemming dash --read-only` changes nothing\n"
        if headers.get("origin") != f"http://{headers.get('host')}":
            return 403, "only the page itself may change anything\n"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "application/json\n"
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
            return 411, "how long is it?\n"
        return (413, "too long\n") if parse_int(length, le=LARGEST_BODY_BYTES) is None else None

    def _has_bearer(self, headers: dict[str, str]) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme == "Bearer" and self._is_token(token)

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        """Return True if the page's cookie is present. Cookies of other servers may be malformed."""
        cookies = (cookie.strip().partition("=") for cookie in headers.get("cookie", "").split(";"))
        return any(name == COOKIE and self._is_token(token) for name, _, token in cookies)

    def _has_base_path(self, scope: Scope) -> bool:
        return bool(scope["path"].startswith(f"{self.base_path}/"))

    def _is_token(self, token: str) -> bool:
        return secrets.compare_digest(token.encode("utf-8", "replace"), self._token.encode())

    async def _set_cookie(self, send: Send, headers: dict[str, str]) -> None:
        """Store the token in a cookie hidden from scripts, and remove the token from the address.

        A browser arriving from another origin, such as the private file, is redirected from a page of this
        server: browsers send no SameSite=Strict cookie along a navigation from a foreign page.
        """
        cookie_path = f"{self.base_path}/"
        cookie = (b"set-cookie", f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path={cookie_path}".encode())
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            await _send_response(send, 303, "", ((b"location", cookie_path.encode()), cookie))
        else:
            content_type = (b"content-type", b"text/html; charset=utf-8")
            await _send_response(send, 200, _REDIRECT_PAGE.format(place=cookie_path), (content_type, cookie))


def _is_first_visit(scope: Scope) -> bool:
    return scope["method"] == "GET" and scope["path"] == "/" and b"token=" in scope["query_string"]


def _parse_headers(scope: Scope) -> dict[str, str]:
    """Return the headers by name. Values of a repeated header are joined, which makes every header invalid."""
    headers: dict[str, str] = {}
    for raw_name, raw in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw.decode("latin-1")
        separator = "; " if name == "cookie" else ", "
        headers[name] = f"{headers[name]}{separator}{value}" if name in headers else value
    return headers


def _get_host(headers: dict[str, str]) -> str:
    """Return the host name of the request without the port, because a tunnel may use another port."""
    host, _, port = headers.get("host", "").rpartition(":")
    return host if port.isdigit() else headers.get("host", "")


def _add_security_headers(send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in HEADERS}
            other_headers = [header for header in message.get("headers", ()) if header[0].lower() not in names]
            message = {**message, "headers": [*other_headers, *HEADERS]}
        await send(message)

    return send_with_headers


async def _send_refusal(send: Send, status: int, text: str) -> None:
    await _send_response(send, status, text, ((b"content-type", b"text/plain; charset=utf-8"),))


async def _send_response(send: Send, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    body = text.encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers, *HEADERS]})
    await send({"type": "http.response.body", "body": body})
