"""Who may ask the page's server for what: checked before anything else sees a request. Plain ASGI.

The server listens on this machine only, and still any web page that is open here can send it requests. So the
name it was called by must be this machine's (DNS rebinding), whoever asks must have the token, and what is
posted must come from the page itself. Browsers send a cookie to every server of a machine, whatever its port:
the page's has a path that nobody else knows. What agents wrote is shown under a policy that runs none of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

from lemming.kernel.base.integers import read_int

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
_NO_TOKEN = "open the address that `lemming dash` printed: it has the token of this run\n"  # noqa: S105
_GOES_ON = '<!doctype html><title>LeMMing</title><meta http-equiv="refresh" content="0;url={place}">'
_ELSEWHERE = "this page is only for the machine that it runs on\n"


class Guard:
    """Lets through what comes from the page of this run; `is_read_only`: and looks only."""

    def __init__(self, app: App, *, token: str, is_read_only: bool = False) -> None:
        self._app, self._token, self._is_read_only = app, token, is_read_only
        self.place = f"/{sha256(f'place of {token}'.encode()).hexdigest()[:32]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        assert scope["type"] == "http", "nothing here speaks anything else"
        headers = _headers(scope)
        if _is_first_visit(scope) and _name(headers) in HOSTS:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            await (self._welcome(send, headers) if self._is_token(given) else _refuse(send, 403, _NO_TOKEN))
        elif refusal := self._refusal(scope, headers):
            await _refuse(send, *refusal)
        else:
            await self._app(self._without_place(scope), receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return with what a request is refused; None when it may go on."""
        if _name(headers) not in HOSTS:
            return 421, _ELSEWHERE
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, _ELSEWHERE
        if not (self._has_bearer(headers) or (self._is_in_place(scope) and self._has_cookie(headers))):
            return 403, _NO_TOKEN
        if scope["method"] == "POST":
            return self._refusal_of_post(headers)
        return None if scope["method"] in ("GET", "HEAD") else (405, "GET or POST\n")

    def _refusal_of_post(self, headers: dict[str, str]) -> tuple[int, str] | None:
        if self._is_read_only:
            return 403, "`lemming dash --read-only` changes nothing\n"
        if headers.get("origin") != f"http://{headers.get('host')}":
            return 403, "only the page itself may change anything\n"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "application/json\n"
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
            return 411, "how long is it?\n"
        return (413, "too long\n") if read_int(length, le=LARGEST_BODY_BYTES) is None else None

    def _has_bearer(self, headers: dict[str, str]) -> bool:
        word, _, given = headers.get("authorization", "").partition(" ")
        return word == "Bearer" and self._is_token(given)

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        """Return whether the page's cookie is there; those of other servers may be malformed."""
        cookies = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))
        return any(name == COOKIE and self._is_token(given) for name, _, given in cookies)

    def _is_in_place(self, scope: Scope) -> bool:
        return bool(scope["path"].startswith(f"{self.place}/"))

    def _without_place(self, scope: Scope) -> Scope:
        """Return the request as the page's routes know it."""
        if not self._is_in_place(scope):
            return scope
        return {**scope, "path": scope["path"].removeprefix(self.place)}

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    async def _welcome(self, send: Send, headers: dict[str, str]) -> None:
        """Keep the token in a cookie that no script reads, and take it out of the address.

        Who comes from elsewhere, as from the private file that the browser was opened with, goes on from a
        page of this server: browsers send no such cookie along a way that began elsewhere.
        """
        place = f"{self.place}/"
        cookie = (b"set-cookie", f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path={place}".encode())
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            await _answer(send, 303, "", ((b"location", place.encode()), cookie))
        else:
            kind = (b"content-type", b"text/html; charset=utf-8")
            await _answer(send, 200, _GOES_ON.format(place=place), (kind, cookie))


def _is_first_visit(scope: Scope) -> bool:
    return scope["method"] == "GET" and scope["path"] == "/" and b"token=" in scope["query_string"]


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by their names; of one that comes twice both, which is no valid value of any."""
    found: dict[str, str] = {}
    for raw_name, raw in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw.decode("latin-1")
        joint = "; " if name == "cookie" else ", "
        found[name] = f"{found[name]}{joint}{value}" if name in found else value
    return found


def _name(headers: dict[str, str]) -> str:
    """Return the name by which the server was called, without the port: a tunnel may have another one."""
    host, _, port = headers.get("host", "").rpartition(":")
    return host if port.isdigit() else headers.get("host", "")


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in HEADERS}
            kept = [header for header in message.get("headers", ()) if header[0].lower() not in names]
            message = {**message, "headers": [*kept, *HEADERS]}
        await send(message)

    return sent


async def _refuse(send: Send, status: int, text: str) -> None:
    await _answer(send, status, text, ((b"content-type", b"text/plain; charset=utf-8"),))


async def _answer(send: Send, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    body = text.encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers, *HEADERS]})
    await send({"type": "http.response.body", "body": body})
