"""One request to a server that the organisation allows, with limits that hold: `fetch`.

The name is resolved here, every address is looked at, and the connection goes to one that was looked at, so
that a name which changes its mind between the two leads nowhere else; each redirect is checked the same way.
docs/decisions/0013.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from lemming.capabilities.toolbox.hosts import USUAL_PORTS, is_named, is_public
from lemming.capabilities.toolbox.settings import Http
from lemming.kernel.base.errors import LemmingError, PermissionDenied, ToolError

if TYPE_CHECKING:
    import httpx2

_REDIRECTS = (301, 302, 303, 307, 308)
_UNPACKS = ("gzip", "x-gzip", "deflate")
_ACCEPTS = "text/html, text/markdown, text/plain, application/json, application/xml;q=0.9, */*;q=0.1"


class WebRequest(NamedTuple):
    """What is asked: the method, the address, what is sent, and further headers."""

    method: str
    url: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


class WebPage(NamedTuple):
    """What came back: `url` is where it was found, `is_cut` whether there was more than is taken."""

    status: int
    reason: str
    url: str
    content_type: str
    location: str
    content: bytes
    is_cut: bool


class NobodyKnows(ToolError):
    """A request was on its way, and its answer did not come: it may or may not have had an effect."""


def fetch(request: WebRequest, rules: Http, *, caller: str) -> WebPage:
    """Return the answer to a request. Raises `PermissionDenied` for an address that is not allowed.

    Raises `ToolError` when there is no answer, and `NobodyKnows` when the request may have arrived.
    """
    from lemming.capabilities.background.calls import run

    asked = _Asked(request, rules, caller)
    try:
        return run(asked.answer, rules.timeout_s)
    except (PermissionDenied, ToolError):
        raise
    except LemmingError as error:  # of the loop: time is up, or the process ends
        raise asked.failed(f"no answer within {rules.timeout_s:g} s") from error


class _Asked:
    """A request under way. `may_have_arrived`: from then on a failure tells nothing about the effect."""

    def __init__(self, request: WebRequest, rules: Http, caller: str) -> None:
        self._request, self._rules, self._caller = request, rules, caller
        self.may_have_arrived = False

    def failed(self, why: str) -> ToolError:
        """Return the error for a request that came to nothing."""
        kind = NobodyKnows if self.may_have_arrived and self._request.method != "GET" else ToolError
        return kind(f"{self._caller}: {why}")

    async def answer(self) -> WebPage:
        """Follow redirects of a GET to the answer."""
        import httpx2

        try:
            url = httpx2.URL(self._request.url)
            # No proxy of the environment: it would resolve names itself, and reach what it likes.
            verify = httpx2.create_ssl_context()  # SSL_CERT_FILE names an authority of one's own
            async with httpx2.AsyncClient(trust_env=False, timeout=None, verify=verify) as client:
                for _ in range(self._rules.max_redirects + 1):
                    page = await self._hop(client, url)
                    if page.status not in _REDIRECTS or not page.location or self._request.method != "GET":
                        return page
                    url = url.join(page.location)
                    client.cookies.clear()  # of one server, and not for the next
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, zlib.error) as error:
            raise self.failed(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        raise self.failed(f"more than {self._rules.max_redirects} redirects")

    async def _hop(self, client: httpx2.AsyncClient, url: httpx2.URL) -> WebPage:
        """Ask one server, at an address that was looked at."""
        import httpx2

        addresses = await self._addresses(url)
        for place, address in enumerate(addresses):
            request = client.build_request(
                self._request.method,
                # to the address that was looked at; name and certificate stay those of the host
                url.copy_with(host=address, fragment=None),
                content=self._request.body,
                headers={
                    "Host": url.netloc.decode("ascii"),
                    "User-Agent": "lemming",
                    "Accept": _ACCEPTS,
                    "Accept-Encoding": "gzip",
                    **dict(self._request.headers),
                },
                extensions={"sni_hostname": url.raw_host.decode("ascii").strip("[]")},
            )
            try:
                response = await self._send(client, request)
            except httpx2.ConnectError:
                if place + 1 == len(addresses):
                    raise
                continue
            try:
                return await self._read(response, url)
            finally:
                await response.aclose()
        raise self.failed(f"{url.host} has no address")

    async def _send(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        import httpx2

        self.may_have_arrived = True
        try:
            return await client.send(request, stream=True, follow_redirects=False)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            self.may_have_arrived = False  # nobody was reached
            raise

    async def _addresses(self, url: httpx2.URL) -> list[str]:
        """Return where a host is, once it and all its addresses are allowed."""
        host = url.host.lower().rstrip(".")
        if url.scheme not in USUAL_PORTS or not host:
            raise self.failed("an address begins with https:// or http:// and a host")
        if url.userinfo:
            raise self.failed("an address with a user or a password in it is not asked")
        port = url.port or USUAL_PORTS[url.scheme]
        shown = host if port in USUAL_PORTS.values() else f"{host}:{port}"
        if not is_named(host, port, self._rules.hosts):
            allowed = ", ".join(self._rules.hosts)
            raise PermissionDenied(
                f"{self._caller}: {shown} refused by config/org.json http.hosts (allowed: {allowed})"
            )
        found = await self._resolved(host, port)
        closed = [address for address in found if not is_public(address)]
        if closed and not is_named(host, port, self._rules.private_hosts):
            raise PermissionDenied(
                f"{self._caller}: {shown} is at {closed[0]}, which is no public address; refused by "
                "config/org.json http.private_hosts"
            )
        return found

    async def _resolved(self, host: str, port: int) -> list[str]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise self.failed(f"{host} cannot be resolved: {error}") from error
        return list(dict.fromkeys(str(item[4][0]) for item in found))

    async def _read(self, response: httpx2.Response, url: httpx2.URL) -> WebPage:
        content, is_cut = bytearray(), False
        async for piece in self._unpacked(response):
            content += piece
            if len(content) > self._rules.max_bytes:
                is_cut = True
                break
        headers = response.headers
        return WebPage(
            response.status_code,
            response.reason_phrase,
            str(url),
            headers.get("content-type", ""),
            headers.get("location", ""),
            bytes(content[: self._rules.max_bytes]),
            is_cut,
        )

    async def _unpacked(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Yield the content, unpacked a bounded piece at a time: a small answer may unpack to anything."""
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in (*_UNPACKS, "identity", ""):
            raise self.failed(f'the answer is packed as "{coding[:40]}", which was not asked for')
        unpack = zlib.decompressobj(47) if coding in _UNPACKS else None  # 47: gzip and zlib
        async for raw in response.aiter_raw():
            if unpack is None:
                yield raw
                continue
            yield unpack.decompress(raw, self._rules.max_bytes + 1)  # a little may unpack to gigabytes
            while unpack.unconsumed_tail:
                yield unpack.decompress(unpack.unconsumed_tail, self._rules.max_bytes + 1)
