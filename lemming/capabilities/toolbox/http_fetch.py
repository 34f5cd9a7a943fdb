"""Send a request to an allowed server, with strict limits: `fetch_url`.

The client resolves the name itself, checks every address, and connects to a checked address. A name with changing
addresses therefore leads nowhere else, and each redirect is checked the same way. docs/decisions.md, decision 13.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from lemming.capabilities.toolbox.toolbox_settings import USUAL_PORTS, HttpSettings, is_public, matches_host
from lemming.ext import LemmingError
from lemming.kernel.base.errors import PermissionDenied, ToolError

if TYPE_CHECKING:
    import httpx2

_REDIRECTS = (301, 302, 303, 307, 308)
_DECODED_CODINGS = ("gzip", "x-gzip", "deflate")
_ACCEPT = "text/html, text/markdown, text/plain, application/json, application/xml;q=0.9, */*;q=0.1"


class WebRequest(NamedTuple):
    """A request: method, URL, body and additional headers."""

    method: str
    url: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


class WebResponse(NamedTuple):
    """A response. `url` is the final URL; `is_cut` is True if the content was truncated."""

    status: int
    reason: str
    url: str
    content_type: str
    location: str
    content: bytes
    is_cut: bool


class OutcomeUnknown(ToolError):
    """Raised for a sent request without a response: the request may or may not have had an effect."""


def fetch_url(request: WebRequest, settings: HttpSettings, *, caller: str) -> WebResponse:
    """Return the response to a request. Raises `PermissionDenied` for a forbidden address.

    Raises `ToolError` without a response, and `OutcomeUnknown` if the request may have arrived.
    """
    from lemming.libraries.concurrency.async_calls import run_async

    pending = _PendingRequest(request, settings, caller)
    try:
        return run_async(pending.send, settings.timeout_s)
    except (PermissionDenied, ToolError):
        raise
    except LemmingError as error:  # of the loop: time is up, or the process ends
        raise pending.make_error(f"no answer within {settings.timeout_s:g} s") from error


class _PendingRequest:
    """A request in progress. After `may_have_arrived` is set, a failure says nothing about the request's effect."""

    def __init__(self, request: WebRequest, settings: HttpSettings, caller: str) -> None:
        self._request, self._settings, self._caller = request, settings, caller
        self.may_have_arrived = False

    def make_error(self, reason: str) -> ToolError:
        """Return the error for a failed request."""
        kind = OutcomeUnknown if self.may_have_arrived and self._request.method != "GET" else ToolError
        return kind(f"{self._caller}: {reason}")

    async def send(self) -> WebResponse:
        """Send the request, and follow the redirects of a GET."""
        import httpx2

        try:
            url = httpx2.URL(self._request.url)
            # No proxy from the environment: it would resolve names itself, and reach any address.
            verify = httpx2.create_ssl_context()  # SSL_CERT_FILE names an authority of one's own
            async with httpx2.AsyncClient(trust_env=False, timeout=None, verify=verify) as client:
                for _ in range(self._settings.max_redirects + 1):
                    page = await self._send_hop(client, url)
                    if page.status not in _REDIRECTS or not page.location or self._request.method != "GET":
                        return page
                    url = url.join(page.location)
                    client.cookies.clear()  # of one server, and not for the next
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, zlib.error) as error:
            raise self.make_error(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        raise self.make_error(f"more than {self._settings.max_redirects} redirects")

    async def _send_hop(self, client: httpx2.AsyncClient, url: httpx2.URL) -> WebResponse:
        """Send the request to a server, at a checked address."""
        import httpx2

        addresses = await self._allowed_addresses(url)
        for index, address in enumerate(addresses):
            request = client.build_request(
                self._request.method,
                # to the checked address; name and certificate stay those of the host
                url.copy_with(host=address, fragment=None),
                content=self._request.body,
                headers={
                    "Host": url.netloc.decode("ascii"),
                    "User-Agent": "lemming",
                    "Accept": _ACCEPT,
                    "Accept-Encoding": "gzip",
                    **dict(self._request.headers),
                },
                extensions={"sni_hostname": url.raw_host.decode("ascii").strip("[]")},
            )
            try:
                response = await self._send_request(client, request)
            except httpx2.ConnectError:
                if index + 1 == len(addresses):
                    raise
                continue
            try:
                return await self._read_response(response, url)
            finally:
                await response.aclose()
        raise self.make_error(f"{url.host} has no address")

    async def _send_request(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        import httpx2

        self.may_have_arrived = True
        try:
            return await client.send(request, stream=True, follow_redirects=False)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            self.may_have_arrived = False  # no server was reached
            raise

    async def _allowed_addresses(self, url: httpx2.URL) -> list[str]:
        """Return the addresses of a host, after checking the host and every address."""
        host = url.host.lower().rstrip(".")
        if url.scheme not in USUAL_PORTS or not host:
            raise self.make_error("an address begins with https:// or http:// and a host")
        if url.userinfo:
            raise self.make_error("an address with a user or a password in it is not asked")
        port = url.port or USUAL_PORTS[url.scheme]
        display_name = host if port in USUAL_PORTS.values() else f"{host}:{port}"
        if not matches_host(host, port, self._settings.hosts):
            allowed = ", ".join(self._settings.hosts)
            raise PermissionDenied(
                f"{self._caller}: {display_name} refused by config/org.json http.hosts (allowed: {allowed})"
            )
        addresses = await self._resolve_host(host, port)
        private = [address for address in addresses if not is_public(address)]
        if private and not matches_host(host, port, self._settings.private_hosts):
            raise PermissionDenied(
                f"{self._caller}: {display_name} is at {private[0]}, which is no public address; refused by "
                "config/org.json http.private_hosts"
            )
        return addresses

    async def _resolve_host(self, host: str, port: int) -> list[str]:
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise self.make_error(f"{host} cannot be resolved: {error}") from error
        return list(dict.fromkeys(str(item[4][0]) for item in infos))

    async def _read_response(self, response: httpx2.Response, url: httpx2.URL) -> WebResponse:
        content, is_cut = bytearray(), False
        async for piece in self._iter_decoded(response):
            content += piece
            if len(content) > self._settings.max_bytes:
                is_cut = True
                break
        headers = response.headers
        return WebResponse(
            response.status_code,
            response.reason_phrase,
            str(url),
            headers.get("content-type", ""),
            headers.get("location", ""),
            bytes(content[: self._settings.max_bytes]),
            is_cut,
        )

    async def _iter_decoded(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Yield the content, decoded in pieces of limited size: a small response may decode to gigabytes."""
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in (*_DECODED_CODINGS, "identity", ""):
            raise self.make_error(f'the answer is packed as "{coding[:40]}", which was not asked for')
        decoder = zlib.decompressobj(47) if coding in _DECODED_CODINGS else None  # 47: gzip and zlib
        async for raw in response.aiter_raw():
            if decoder is None:
                yield raw
                continue
            yield decoder.decompress(raw, self._settings.max_bytes + 1)  # a little may unpack to gigabytes
            while decoder.unconsumed_tail:
                yield decoder.decompress(decoder.unconsumed_tail, self._settings.max_bytes + 1)
