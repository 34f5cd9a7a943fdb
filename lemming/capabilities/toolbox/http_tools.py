"""The tools `http_get` and `http_post`: access servers permitted by `config/org.json`, with strict limits.

The client resolves the name itself, checks every address, and connects to a checked address. A name with changing
addresses therefore leads nowhere else, and each redirect is checked the same way. docs/decisions.md, decision 13.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from lemming.capabilities.toolbox.toolbox_settings import (
    USUAL_PORTS,
    HttpSettings,
    get_http_settings,
    is_public,
    matches_host,
)
from lemming.ext import LemmingError, describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, ToolResult, interrupted_result
from lemming.kernel.tools.tool_context import ToolContext

if TYPE_CHECKING:
    import httpx2

_REDIRECTS = (301, 302, 303, 307, 308)
_DECODED_CODINGS = ("gzip", "x-gzip", "deflate")
_ACCEPT = "text/html, text/markdown, text/plain, application/json, application/xml;q=0.9, */*;q=0.1"


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


def fetch_url(
    method: str,
    url: str,
    settings: HttpSettings,
    *,
    caller: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> WebResponse:
    """Return the response to a request. Raises `PermissionDenied` for a forbidden address.

    Raises `ToolError` without a response, and `OutcomeUnknown` if the request may have arrived.
    """
    from lemming.libraries.concurrency.async_calls import run_async

    pending = _PendingRequest(method, url, body, headers, settings, caller)
    try:
        return run_async(pending.send, settings.timeout_s)
    except (PermissionDenied, ToolError):
        raise
    except LemmingError as error:  # of the loop: time is up, or the process ends
        raise pending.make_error(f"no answer within {settings.timeout_s:g} s") from error


@dataclass
class _PendingRequest:
    """A request in progress. After `may_have_arrived` is set, a failure says nothing about the request's effect."""

    method: str
    url: str
    body: bytes | None
    headers: Mapping[str, str]
    settings: HttpSettings
    caller: str
    may_have_arrived: bool = False

    def make_error(self, reason: str) -> ToolError:
        """Return the error for a failed request."""
        kind = OutcomeUnknown if self.may_have_arrived and self.method != "GET" else ToolError
        return kind(f"{self.caller}: {reason}")

    async def send(self) -> WebResponse:
        """Send the request, and follow the redirects of a GET."""
        import httpx2

        try:
            url = httpx2.URL(self.url)
            # No proxy from the environment: it would resolve names itself, and reach any address.
            verify = httpx2.create_ssl_context()  # SSL_CERT_FILE names an authority of one's own
            async with httpx2.AsyncClient(trust_env=False, timeout=None, verify=verify) as client:
                for _ in range(self.settings.max_redirects + 1):
                    page = await self._send_hop(client, url)
                    if page.status not in _REDIRECTS or not page.location or self.method != "GET":
                        return page
                    url = url.join(page.location)
                    client.cookies.clear()  # of one server, and not for the next
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, zlib.error) as error:
            raise self.make_error(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        raise self.make_error(f"more than {self.settings.max_redirects} redirects")

    async def _send_hop(self, client: httpx2.AsyncClient, url: httpx2.URL) -> WebResponse:
        import httpx2

        addresses = await self._allowed_addresses(url)
        for index, address in enumerate(addresses):
            request = client.build_request(
                self.method,
                # to the checked address; name and certificate stay those of the host
                url.copy_with(host=address, fragment=None),
                content=self.body,
                headers={
                    "Host": url.netloc.decode("ascii"),
                    "User-Agent": "lemming",
                    "Accept": _ACCEPT,
                    "Accept-Encoding": "gzip",
                    **self.headers,
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
        if not matches_host(host, port, self.settings.hosts):
            allowed = ", ".join(self.settings.hosts)
            raise PermissionDenied(
                f"{self.caller}: {display_name} refused by config/org.json http.hosts (allowed: {allowed})"
            )
        addresses = await self._resolve_host(host, port)
        private = [address for address in addresses if not is_public(address)]
        if private and not matches_host(host, port, self.settings.private_hosts):
            raise PermissionDenied(
                f"{self.caller}: {display_name} is at {private[0]}, which is no public address; refused by "
                "config/org.json http.private_hosts"
            )
        return addresses

    async def _resolve_host(self, host: str, port: int) -> list[str]:
        import asyncio  # not for the turns that ask no server

        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise self.make_error(f"{host} cannot be resolved: {error}") from error
        return list(dict.fromkeys(str(item[4][0]) for item in infos))

    async def _read_response(self, response: httpx2.Response, url: httpx2.URL) -> WebResponse:
        content, is_cut = bytearray(), False
        async for piece in self._iter_decoded(response):
            content += piece
            if len(content) > self.settings.max_bytes:
                is_cut = True
                break
        headers = response.headers
        return WebResponse(
            response.status_code,
            response.reason_phrase,
            str(url),
            headers.get("content-type", ""),
            headers.get("location", ""),
            bytes(content[: self.settings.max_bytes]),
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
            yield decoder.decompress(raw, self.settings.max_bytes + 1)  # a little may unpack to gigabytes
            while decoder.unconsumed_tail:
                yield decoder.decompress(decoder.unconsumed_tail, self.settings.max_bytes + 1)


_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml+xml", "application/javascript")
_HTML = ("text/html", "application/xhtml+xml")
_ENDINGS = ("+json", "+xml")


class _WebTool(EngineTool):
    """The common base of both tools. The tool class is `send` even for a GET: an agent can leak knowledge in a URL."""

    tool_class = "send"
    keeps_deadline = True  # config/org.json http.timeout_s holds for the whole call
    output_limit_bytes = 128 << 10

    def refusal_reason(self, agent: Agent, settings: OrgSettings) -> str:
        """Return the rule against a call: without a permitted host no call is possible."""
        has_hosts = bool(get_http_settings(settings).hosts)
        return super().refusal_reason(agent, settings) or (
            "" if has_hosts else "refused by config/org.json http.hosts []: no host is allowed"
        )

    def describe_side_effects(self, settings: OrgSettings) -> str:
        """Return a description of the servers reachable by calls."""
        hosts = ", ".join(get_http_settings(settings).hosts)
        return f"send to and read from the servers {hosts} ({self.name})" if hosts else ""


class HttpGetTool(_WebTool):
    """Reads a web page."""

    name = "http_get"
    description = "Read a web page or an API as text. Only hosts that the organisation allows are asked."
    parallel = True

    def plan(
        self,
        context: ToolContext,
        url: Annotated[str, describe_field("The address, with https://.", min_length=1, max_length=4000)],
    ) -> ToolResult:
        """Return the status, the final URL and the text."""
        page = fetch_url("GET", url, get_http_settings(context.settings), caller=self.name)
        return _to_result(page, self.name)


class HttpPostTool(_WebTool):
    """Sends data to a server, at most once."""

    name = "http_post"
    description = (
        "Send JSON or text to a server and read its answer. Only hosts that the organisation allows are "
        "asked. A call is made at most once."
    )
    repeatable = False

    def plan(
        self,
        context: ToolContext,
        url: Annotated[str, describe_field("The address, with https://.", min_length=1, max_length=4000)],
        json: Annotated[Any, describe_field("Any JSON value to be sent.")] = None,
        text: Annotated[str, describe_field("Text to be sent, in place of `json`.", max_length=200_000)] = "",
    ) -> ToolResult:
        """Return the status and the text of the response."""
        if text and json is not None:
            raise ToolError(f"{self.name}: give either json or text")
        body = text.encode("utf-8", "replace") if text else dump_compact(json)
        kind = "text/plain; charset=utf-8" if text else "application/json"
        headers = {"Content-Type": kind, "Idempotency-Key": context.idempotency_key}
        settings = get_http_settings(context.settings)
        try:
            page = fetch_url("POST", url, settings, caller=self.name, body=body, headers=headers)
        except OutcomeUnknown as error:
            return interrupted_result(error.message)
        return _to_result(page, self.name)


def _to_result(page: WebResponse, caller: str) -> ToolResult:
    kind, _, parameters = page.content_type.partition(";")
    kind = kind.strip().lower()
    head = f"HTTP {page.status} {page.reason}".rstrip() + f", {page.url}"
    if page.location:
        head += f"\n(it points to {page.location}, which was not followed)"
    if page.content and not (kind.startswith(_TEXTS) or kind.endswith(_ENDINGS) or not kind):
        raise ToolError(f"{caller}: {head}: the answer is {kind[:100]}, which is no text")
    cut = f"\n[cut: only the first {len(page.content)} bytes were taken]" if page.is_cut else ""
    text = _extract_page_text(page.content, parameters) if kind in _HTML else _decode_text(page.content, parameters)
    return ToolResult(page.status < 400, f"{head}\n\n{text}{cut}".rstrip())


def _extract_page_text(content: bytes, parameters: str) -> str:
    """Return the text of an HTML page, or the raw page without the packages for documents."""
    from lemming.capabilities.toolbox.file_tools import DocumentPackagesMissing, extract_text

    try:
        text, has_more = extract_text(_decode_text(content, parameters).encode(), "html")
    except DocumentPackagesMissing as error:
        return f"[this is HTML as it came; {error.message}]\n{_decode_text(content, parameters)}"
    except ToolError as error:
        return f"[this is HTML as it came: {error.message}]\n{_decode_text(content, parameters)}"
    return f"{text}\n[cut: the page goes on]" if has_more else text


def _decode_text(content: bytes, parameters: str) -> str:
    """Return the text in the response's character set, or in UTF-8 for an unknown one."""
    named = [part.partition("=")[2].strip(" \"'") for part in parameters.split(";") if "charset" in part.lower()]
    try:
        return content.decode(named[0] if named else "utf-8", "replace")
    except (LookupError, ValueError):  # an unknown codec, or one that cannot decode, such as "idna"
        return content.decode("utf-8", "replace")
