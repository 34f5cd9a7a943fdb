"""`http_get`, `http_post`: servers that `config/org.json` names, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from lemming.capabilities.toolbox.settings import http_of
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import Org
from lemming.kernel.tools import EngineTool, ToolResult, interrupted
from lemming.kernel.tools.context import ToolContext

if TYPE_CHECKING:
    from lemming.capabilities.toolbox.fetching import WebPage

_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml+xml", "application/javascript")
_HTML = ("text/html", "application/xhtml+xml")
_ENDINGS = ("+json", "+xml")


class _Web(EngineTool):
    """What both have in common.

    The class is `send` for a GET too: what an agent knows can leave in an address.
    """

    tool_class = "send"
    keeps_deadline = True  # config/org.json http.timeout_s holds for the whole call
    output_limit_bytes = 128 << 10

    def why_refused(self, agent: Agent, settings: Org) -> str:
        """Return the rule: without a host that is allowed there is nothing to call."""
        is_open = bool(http_of(settings).hosts)
        return super().why_refused(agent, settings) or (
            "" if is_open else "refused by config/org.json http.hosts []: no host is allowed"
        )

    def reaches_outside(self, settings: Org) -> str:
        """Return which servers its calls can reach."""
        hosts = ", ".join(http_of(settings).hosts)
        return f"send to and read from the servers {hosts} ({self.name})" if hosts else ""


class HttpGet(_Web):
    """Reads a page."""

    name = "http_get"
    description = "Read a web page or an API as text. Only hosts that the organisation allows are asked."
    parallel = True

    def plan(
        self,
        context: ToolContext,
        url: Annotated[str, about("The address, with https://.", min_length=1, max_length=4000)],
    ) -> ToolResult:
        """Return status and address of what was found, and its text."""
        from lemming.capabilities.toolbox.fetching import WebRequest, fetch

        page = fetch(WebRequest("GET", url), http_of(context.settings), caller=self.name)
        return _shown(page, self.name)


class HttpPost(_Web):
    """Sends something to a server, at most once."""

    name = "http_post"
    description = (
        "Send JSON or text to a server and read its answer. Only hosts that the organisation allows are "
        "asked. A call is made at most once."
    )
    repeatable = False

    def plan(
        self,
        context: ToolContext,
        url: Annotated[str, about("The address, with https://.", min_length=1, max_length=4000)],
        json: Annotated[Any, about("Any JSON value to be sent.")] = None,
        text: Annotated[str, about("Text to be sent, in place of `json`.", max_length=200_000)] = "",
    ) -> ToolResult:
        """Return status and text of the answer."""
        from lemming.capabilities.toolbox.fetching import NobodyKnows, WebRequest, fetch

        if text and json is not None:
            raise ToolError(f"{self.name}: give either json or text")
        body = text.encode("utf-8", "replace") if text else compact(json)
        kind = "text/plain; charset=utf-8" if text else "application/json"
        headers = (("Content-Type", kind), ("Idempotency-Key", context.idempotency_key))
        try:
            page = fetch(WebRequest("POST", url, body, headers), http_of(context.settings), caller=self.name)
        except NobodyKnows as error:
            return interrupted(error.message)
        return _shown(page, self.name)


def _shown(page: WebPage, caller: str) -> ToolResult:
    kind, _, rest = page.content_type.partition(";")
    kind = kind.strip().lower()
    head = f"HTTP {page.status} {page.reason}".rstrip() + f", {page.url}"
    if page.location:
        head += f"\n(it points to {page.location}, which was not followed)"
    if page.content and not (kind.startswith(_TEXTS) or kind.endswith(_ENDINGS) or not kind):
        _refuse_kind(kind, head, caller)
    cut = f"\n[cut: only the first {len(page.content)} bytes were taken]" if page.is_cut else ""
    text = _page_text(page.content, rest) if kind in _HTML else _text(page.content, rest)
    return ToolResult(page.status < 400, f"{head}\n\n{text}{cut}".rstrip())


def _page_text(content: bytes, parameters: str) -> str:
    """Return the text of an HTML page; the page as it is where nothing is installed that reads it."""
    from lemming.capabilities.toolbox.documents import NotInstalled, text_of

    try:
        text, has_more = text_of(_text(content, parameters).encode(), "html")
    except NotInstalled as error:
        return f"[this is HTML as it came; {error.message}]\n{_text(content, parameters)}"
    except ToolError as error:
        return f"[this is HTML as it came: {error.message}]\n{_text(content, parameters)}"
    return f"{text}\n[cut: the page goes on]" if has_more else text


def _refuse_kind(kind: str, head: str, caller: str) -> NoReturn:
    raise ToolError(f"{caller}: {head}: the answer is {kind[:100]}, which is no text")


def _text(content: bytes, parameters: str) -> str:
    """Return the text in the character set that the answer names; UTF-8 where that is none."""
    named = [
        part.partition("=")[2].strip(" \"'") for part in parameters.split(";") if "charset" in part.lower()
    ]
    try:
        return content.decode(named[0] if named else "utf-8", "replace")
    except (LookupError, ValueError):  # none we know, or one that cannot read it, such as "idna"
        return content.decode("utf-8", "replace")
