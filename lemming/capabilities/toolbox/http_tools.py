"""The tools `http_get` and `http_post`: access servers permitted by `config/org.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from lemming.capabilities.toolbox.toolbox_settings import get_http_settings
from lemming.ext import describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, ToolResult, interrupted_result
from lemming.kernel.tools.tool_context import ToolContext

if TYPE_CHECKING:
    from lemming.capabilities.toolbox.http_fetch import WebResponse

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
        from lemming.capabilities.toolbox.http_fetch import WebRequest, fetch_url

        page = fetch_url(WebRequest("GET", url), get_http_settings(context.settings), caller=self.name)
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
        from lemming.capabilities.toolbox.http_fetch import OutcomeUnknown, WebRequest, fetch_url

        if text and json is not None:
            raise ToolError(f"{self.name}: give either json or text")
        body = text.encode("utf-8", "replace") if text else dump_compact(json)
        kind = "text/plain; charset=utf-8" if text else "application/json"
        headers = (("Content-Type", kind), ("Idempotency-Key", context.idempotency_key))
        try:
            page = fetch_url(
                WebRequest("POST", url, body, headers), get_http_settings(context.settings), caller=self.name
            )
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
        _raise_unsupported_type(kind, head, caller)
    cut = f"\n[cut: only the first {len(page.content)} bytes were taken]" if page.is_cut else ""
    text = _extract_page_text(page.content, parameters) if kind in _HTML else _decode_text(page.content, parameters)
    return ToolResult(page.status < 400, f"{head}\n\n{text}{cut}".rstrip())


def _extract_page_text(content: bytes, parameters: str) -> str:
    """Return the text of an HTML page, or the raw page without the packages for documents."""
    from lemming.capabilities.toolbox.document_tool import DocumentPackagesMissing, extract_text

    try:
        text, has_more = extract_text(_decode_text(content, parameters).encode(), "html")
    except DocumentPackagesMissing as error:
        return f"[this is HTML as it came; {error.message}]\n{_decode_text(content, parameters)}"
    except ToolError as error:
        return f"[this is HTML as it came: {error.message}]\n{_decode_text(content, parameters)}"
    return f"{text}\n[cut: the page goes on]" if has_more else text


def _raise_unsupported_type(kind: str, head: str, caller: str) -> NoReturn:
    raise ToolError(f"{caller}: {head}: the answer is {kind[:100]}, which is no text")


def _decode_text(content: bytes, parameters: str) -> str:
    """Return the text in the response's character set, or in UTF-8 for an unknown one."""
    named = [part.partition("=")[2].strip(" \"'") for part in parameters.split(";") if "charset" in part.lower()]
    try:
        return content.decode(named[0] if named else "utf-8", "replace")
    except (LookupError, ValueError):  # an unknown codec, or one that cannot decode, such as "idna"
        return content.decode("utf-8", "replace")
