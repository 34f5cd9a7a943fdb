"""Tools of MCP servers as an organisation's tools: what was accepted of what a server says.

Everything is taken from files, so that who only looks starts no server; a call begins the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lemming.capabilities.mcp.lock import KnownServer, KnownTool, McpLock, known_servers, plain_text
from lemming.capabilities.mcp.questions import Unanswerable, answered, request_for, why_not_asked
from lemming.capabilities.mcp.settings import (
    MCP_FILE,
    PREFIX,
    McpConfig,
    McpServer,
    mcp_config,
    servers_named,
)
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import ConfigError, InvalidArguments, Problem, TimedOut, ToolError
from lemming.kernel.base.extras import install_line
from lemming.kernel.base.json_schema.violations import misfits
from lemming.kernel.base.jsontext import nearest, to_line
from lemming.kernel.base.kinds import ToolClass
from lemming.kernel.base.patterns import is_named
from lemming.kernel.files.fields import Json
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tools import ANYWHERE, NOWHERE, Places, Tool, ToolResult, interrupted
from lemming.kernel.tools.arguments import arguments_hint
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.tools.toolset import OwnTools, ServerSource


class McpTool(Tool):
    """A tool of a server. What it may do is taken to be the worst, unless the settings trust its hints."""

    server_name: str
    server: McpServer
    tool_name: str
    schema: dict[str, Any]
    places: tuple[Places, Places]
    keeps_deadline = False

    @property
    def origin(self) -> str:
        """Where it comes from, for people."""
        return f"MCP server {self.server_name}"

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, as the server gives it."""
        return self.schema

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments; raise `InvalidArguments` that says what of the schema they do not satisfy."""
        if wrong := misfits(self.schema, arguments):
            hint = arguments_hint(self.schema, arguments)
            raise InvalidArguments(f"{self.name}: {'; '.join(wrong)}", hint=hint)
        return arguments

    def why_refused(self, agent: Agent, settings: Org) -> str:
        """Return why an agent may not call it; empty when a pattern that begins with `mcp.` allows it."""
        granted = agent.permissions.tools
        if any(it.startswith(PREFIX) and is_named(self.name, it) for it in granted):
            return ""
        return f"refused by permissions.tools (granted: {', '.join(granted) or 'none'})"

    def reads(self, agent: Agent, settings: Org) -> Places:
        """Return what its calls may look at."""
        return self.places[0]

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return what its calls may change."""
        return self.places[1]

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Call the server. Raises `ToolError`."""
        from lemming.capabilities.mcp.servers import McpServers, ServerEnded

        answers, state = answered(context.org, context.answered, self.name, arguments) or (None, None)
        try:
            found = context.org.own(McpServers).call(
                self.server_name, self.server, self.tool_name, arguments, answers=answers, state=state
            )
        except TimedOut as error:
            if self.repeatable:
                return ToolResult(False, error.message, outcome="timed_out")
            return interrupted(error.message)
        except ServerEnded as error:
            if self.repeatable:
                raise
            return interrupted(error.message)
        if found.questions is not None:
            return self._asked_back(context, arguments, found.questions, found.state)
        return ToolResult(not found.is_error, as_text(found.content, found.structured))

    def _asked_back(
        self, context: ToolContext, arguments: dict[str, Any], questions: Mapping[str, Any], state: str | None
    ) -> ToolResult:
        """Return that the call waits for a person, with the request to them; refuse where nobody can be."""
        target = self.server.ask
        try:
            request = request_for(self.name, arguments, questions, state, target=target)
            if why := why_not_asked(context.org, context.agent.name, target):
                raise Unanswerable(why)
        except Unanswerable as error:
            return ToolResult(False, f"the server asks something back: {error}", outcome="refused")
        return ToolResult(False, f"{target} is asked first", outcome="pending", entries=(request,))

    def execute(self, agent_name: str, base_path: Path, **arguments: Any) -> ToolResult:
        """Refuse: only an engine, or `lemming mcp test`, has sessions with servers."""
        raise ToolError(f"{self.name} can be called in a turn only", hint="or with `lemming mcp test`")


def _tool_from(server_name: str, server: McpServer, tool_name: str, known: KnownTool) -> McpTool:
    hints = known.hints if server.trust_hints else {}
    reads_only = class_of(server, known) == "read"
    # In quotes and on one line, after the server's name: it stands in a prompt, and a stranger wrote it.
    words = to_line(known.description) if known.description else "a tool that it says nothing of"
    touched: Places = (
        NOWHERE
        if server.independent
        else {ANYWHERE: f"MCP server {server_name}, which may look at and change any file"}
    )
    repeatable = reads_only or hints.get("idempotent_hint") is True
    told = {
        "name": f"{PREFIX}{server_name}.{tool_name}",
        "description": f"{server_name}: {words}",
        "server_name": server_name,
        "server": server,
        "tool_name": tool_name,
        "schema": known.schema,
        "tool_class": class_of(server, known),
        "repeatable": repeatable,
        "parallel": server.parallel and repeatable,
        "is_independent": server.independent,
        "timeout_s": server.timeout_s + server.start_timeout_s + 5.0,
        "places": (touched, NOWHERE if reads_only else touched),
    }
    made: type[McpTool] = type("McpTool", (McpTool,), told)
    return made()


def class_of(server: McpServer, known: KnownTool) -> ToolClass:
    """Return the class of a server's tool: the worst, unless the settings trust its hints."""
    if server.trust_hints and known.hints.get("read_only_hint") is True:
        return "read"
    return "execute" if server.command else "send"


class McpTools(ServerSource):
    """Tools of servers, as a source of an organisation's own tools."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._grounds: tuple[object, ...] = ()
        self._withheld: dict[str, Mapping[str, str]] = {}

    @property
    def known(self) -> McpConfig:
        """The servers that there are."""
        return mcp_config(self._org)

    def servers_of(self, tools: Iterable[str]) -> Sequence[str]:
        """Return the servers that tools of these names or patterns are of."""
        return servers_named(tools, self.known.servers)

    def why_no_tool(self, pattern: str, *, today: bool = False) -> tuple[str, str] | None:
        """Return why no server has a tool of that name or pattern, and what to do; None where one may.

        Which tools a server has, only the server says: one that is configured may have it tomorrow.
        """
        why = why_no_tool(self._org, pattern)
        if why is None or today:
            return why
        config = self.known
        is_server = pattern.count(".") < 2 and not pattern.endswith("*")
        is_there = pattern == f"{PREFIX}*" or (servers_named([pattern], config.servers) and not is_server)
        return None if config.problems or is_there else why  # what another program's file says may be of it

    def look(self, agents: Sequence[Agent], tell: Callable[[Problem], None], *, sync: bool) -> Json:
        """Return what the servers have that these agents may call, and say what a person should look at."""
        from lemming.capabilities.mcp.look import look

        return look(self._org, agents, tell, sync=sync)

    def go_by(self, looked: Json) -> None:
        """Leave out the tools that the look of a tick says are not offered."""
        withheld = {name: server["withheld"] for name, server in looked.items() if "withheld" in server}
        if withheld != self._withheld:
            self._withheld, self._grounds = withheld, ()

    def refresh(self, settings: Org) -> list[Problem]:
        """Take what was accepted of servers; return what a person should know. Raises `ConfigError`."""
        config = mcp_config(self._org)
        config.require_sound()
        known = known_servers(self._org)
        if len(self._grounds) != 2 or self._grounds[0] is not config or self._grounds[1] is not known:
            self._grounds = config, known
            withheld = self._withheld
            offered = (
                it for it in _tools(config, known) if it.tool_name not in withheld.get(it.server_name, ())
            )
            self.tools = OwnTools({tool.name: tool for tool in offered})
        return [*config.problems]


def _tools(config: McpConfig, known: McpLock) -> Iterator[McpTool]:
    for name, server in config.servers.items():
        for tool_name, tool in known.servers.get(name, KnownServer()).tools.items():
            if any(is_named(tool_name, pattern) for pattern in server.tools):
                yield _tool_from(name, server, tool_name, tool)


# --- what is wrong ---------------------------------------------------------------------------------


def problems_of_servers(base: OrgPath) -> Iterator[Problem]:
    """Yield what is wrong with the files about servers."""
    config = mcp_config(base)
    yield from config.problems
    if config.servers and find_spec("mcp") is None:
        hint = install_line("mcp")
        yield Problem("the MCP SDK is not installed", MCP_FILE, hint=hint, severity="warning", code="LMG-307")
    try:
        known_servers(base)
    except ConfigError as error:
        yield from error.problems
    yield from _unpassable_questions(Organisation.at(base), config)


def _unpassable_questions(org: Organisation, config: McpConfig) -> Iterator[Problem]:
    """Yield a warning for each server whose questions some agent could not pass on.

    Who is asked by default need not be there: most servers ask nothing.
    """
    agents = survey_agents(org).agents
    for name, server in config.servers.items():
        if server.ask == McpServer.ask and server.ask not in agents:
            continue
        key = "servers" if config.files[name] == MCP_FILE else "mcpServers"
        for agent in agents.values():
            if not servers_named(agent.permissions.tools, [name]):
                continue
            if why := why_not_asked(org, agent.name, server.ask):
                said = f"what MCP server {name} asks {agent.name} back goes nowhere: {why}"
                place = f"/{key}/{name}{'/ask' if key == 'servers' else ''}"
                yield Problem(said, config.files[name], pointer=place, severity="warning", code="LMG-307")


def why_no_tool(base: OrgPath, pattern: str) -> tuple[str, str] | None:
    """Return why a name that begins with `mcp.` reaches no tool, and what to do; None when it does.

    It may reach tools of a server that was never listed: of these nothing is known.
    """
    config = mcp_config(base)
    named = servers_named([pattern], config.servers)
    if not named:
        word = pattern.removeprefix(PREFIX).partition(".")[0]
        there = f"servers in config/mcp.json: {', '.join(config.servers) or 'none'}"
        return f'"{pattern}": there is no MCP server "{word}"', nearest(word, list(config.servers)) or there
    if pattern.count(".") < 2 and not pattern.endswith("*"):
        return f'"{pattern}" is the server itself', f'write "{PREFIX}{named[0]}.*" for all of its tools'
    try:
        known = known_servers(base)
    except ConfigError:
        return None
    if any(name not in known.servers for name in named):
        return None
    names = [tool.name for tool in _tools(config, known)]
    if any(is_named(name, pattern) for name in names):
        return None
    own = [name for name in names if name.startswith(f"{PREFIX}{named[0]}.")]
    return f'"{pattern}" matches no tool', nearest(pattern, own) or f"tools: {', '.join(own)[:300] or 'none'}"


# --- what a call gave -----------------------------------------------------------------------------


def as_text(blocks: Iterable[Mapping[str, Any]], structured: Any = None) -> str:
    """Return content blocks as one text; what is no text is named. Format: the protocol's `CallToolResult`.

    >>> as_text([{"type": "text", "text": "3"}, {"type": "image", "mime_type": "image/png", "data": "aGk="}])
    '3\\n[image image/png, 2 bytes: not shown]'
    >>> as_text([], {"sum": 3})
    '{"sum": 3}'
    """
    parts = [_block(block) for block in blocks]
    if not any(parts) and structured is not None:
        parts = [to_line(structured)]
    text: str = plain_text("\n".join(part for part in parts if part))
    return text


def _block(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind} {block.get('mime_type', '')}, {_size(block.get('data'))} bytes: not shown]"
        case "resource_link":
            return f"[resource {block.get('uri', '')}: {block.get('name', '')}]"
        case "resource":
            inner = block.get("resource") or {}
            if isinstance(inner.get("text"), str):
                return f"[resource {inner.get('uri', '')}]\n{inner['text']}"
            return f"[resource {inner.get('uri', '')}, {_size(inner.get('blob'))} bytes: not shown]"
    return f"[{str(block.get('type'))[:40]}: not shown]"


def _size(base64: Any) -> int:
    text = base64 if isinstance(base64, str) else ""
    return len(text) * 3 // 4 - text.count("=", -2)
