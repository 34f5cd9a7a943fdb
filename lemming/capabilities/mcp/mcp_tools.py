"""Tools of MCP servers as tools of an organisation, from the lock.

All facts come from files, so listing tools starts no server. A call opens the session.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lemming.capabilities.mcp.mcp_lock_file import LockedServer, LockedTool, McpLock, load_lock, plain_text
from lemming.capabilities.mcp.mcp_settings import (
    MCP_FILE,
    PREFIX,
    McpConfig,
    McpServerSettings,
    load_mcp_config,
    match_servers,
)
from lemming.ext import CheckSubject, ConfigError, NewEntry, Problem, make_warning
from lemming.kernel.agents import Agent, get_latest_survey, survey_agents
from lemming.kernel.base.entry_kinds import ToolClass
from lemming.kernel.base.errors import InvalidArguments, TimedOut, ToolError
from lemming.kernel.base.json_schema.schema_violations import describe_violations
from lemming.kernel.base.jsontext import did_you_mean, dump_compact, to_line
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files.field_types import Json
from lemming.kernel.messages import parse_identities
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tools import ANYWHERE, NOWHERE, Places, Tool, ToolResult, interrupted_result
from lemming.kernel.tools.arguments import make_arguments_hint
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.tools.toolset import OrgTools, ServerSource
from lemming.libraries.optional_packages import install_command
from lemming.libraries.outbox_files import read_entry
from lemming.obligations.answer_fields import parse_answer


class McpTool(Tool):
    """Tool of a server. The worst effects are assumed unless the settings trust the server's hints."""

    server_name: str
    server: McpServerSettings
    tool_name: str
    schema: dict[str, Any]
    places: tuple[Places, Places]
    keeps_deadline = False

    @property
    def origin(self) -> str:
        """Origin of the tool, for people."""
        return f"MCP server {self.server_name}"

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments, as given by the server."""
        return self.schema

    def parse_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments. Raises: InvalidArguments with the violated rules of the schema."""
        if errors := describe_violations(self.schema, arguments):
            hint = make_arguments_hint(self.schema, arguments)
            raise InvalidArguments(f"{self.name}: {'; '.join(errors)}", hint=hint)
        return arguments

    def refusal_reason(self, agent: Agent, settings: OrgSettings) -> str:
        """Return the reason an agent may not call the tool, or "". Only a pattern starting with `mcp.` grants it."""
        granted = agent.permissions.tools
        if any(pattern.startswith(PREFIX) and is_match(self.name, pattern) for pattern in granted):
            return ""
        return f"refused by permissions.tools (granted: {', '.join(granted) or 'none'})"

    def read_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the paths that calls may read."""
        return self.places[0]

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the paths that calls may change."""
        return self.places[1]

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Call the server. Raises: ToolError if the call fails."""
        from lemming.capabilities.mcp.server_sessions import McpSessions, ServerDisconnected

        answers, state = find_elicitation_answers(context.org, context.answered, self.name, arguments) or (None, None)
        try:
            response = context.org.get_cache(McpSessions).call_tool(
                self.server_name, self.server, self.tool_name, arguments, answers=answers, state=state
            )
        except TimedOut as error:
            if self.repeatable:
                return ToolResult(False, error.message, outcome="timed_out")
            return interrupted_result(error.message)
        except ServerDisconnected as error:
            if self.repeatable:
                raise
            return interrupted_result(error.message)
        if response.elicitations is not None:
            return self._handle_elicitation(context, arguments, response.elicitations, response.state)
        return ToolResult(not response.is_error, to_text(response.content, response.structured))

    def _handle_elicitation(
        self, context: ToolContext, arguments: dict[str, Any], questions: Mapping[str, Any], state: str | None
    ) -> ToolResult:
        """Return a pending result with a request to a person, or a refusal if the person cannot be asked."""
        target = self.server.ask
        try:
            request = build_elicitation_request(self.name, arguments, questions, state, target=target)
            if blocker := elicitation_blocker(context.org, context.agent.name, target):
                raise Unanswerable(blocker)
        except Unanswerable as error:
            return ToolResult(False, f"the server asks something back: {error}", outcome="refused")
        return ToolResult(False, f"{target} is asked first", outcome="pending", entries=(request,))

    def execute(self, agent_name: str, base_path: Path, **arguments: Any) -> ToolResult:
        """Refuse: only an engine, or `lemming mcp test`, has sessions with servers."""
        raise ToolError(f"{self.name} can be called in a turn only", hint="or with `lemming mcp test`")


def _make_tool(server_name: str, server: McpServerSettings, tool_name: str, locked_tool: LockedTool) -> McpTool:
    hints = locked_tool.hints if server.trust_hints else {}
    reads_only = get_tool_class(server, locked_tool) == "read"
    # In quotes and on one line, after the server's name: it stands in a prompt, and a stranger wrote it.
    description = to_line(locked_tool.description) if locked_tool.description else "a tool that it says nothing of"
    paths: Places = (
        NOWHERE
        if server.independent
        else {ANYWHERE: f"MCP server {server_name}, which may look at and change any file"}
    )
    repeatable = reads_only or hints.get("idempotent_hint") is True
    attributes = {
        "name": f"{PREFIX}{server_name}.{tool_name}",
        "description": f"{server_name}: {description}",
        "server_name": server_name,
        "server": server,
        "tool_name": tool_name,
        "schema": locked_tool.schema,
        "tool_class": get_tool_class(server, locked_tool),
        "repeatable": repeatable,
        "parallel": server.parallel and repeatable,
        "is_independent": server.independent,
        "timeout_s": server.timeout_s + server.start_timeout_s + 5.0,
        "places": (paths, NOWHERE if reads_only else paths),
    }
    tool_type: type[McpTool] = type("McpTool", (McpTool,), attributes)
    return tool_type()


def get_tool_class(server: McpServerSettings, locked_tool: LockedTool) -> ToolClass:
    """Return the class of a server's tool: the worst, unless the settings trust the server's hints."""
    if server.trust_hints and locked_tool.hints.get("read_only_hint") is True:
        return "read"
    return "execute" if server.command else "send"


class McpToolSource(ServerSource):
    """Source of tools from servers, as part of an organisation's own tools."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._sources: tuple[object, ...] = ()
        self._withheld: dict[str, Mapping[str, str]] = {}

    @property
    def catalogue(self) -> McpConfig:
        """The configured servers."""
        return load_mcp_config(self._org)

    def missing_tool_reason(self, pattern: str, *, today: bool = False) -> tuple[str, str] | None:
        """Return the reason and hint for an `mcp.` name without a tool, or None, also for a server never listed."""
        reason = missing_tool_reason(self._org, pattern)
        if reason is None or today:
            return reason
        config = self.catalogue
        is_server = pattern.count(".") < 2 and not pattern.endswith("*")
        may_exist = pattern == f"{PREFIX}*" or (match_servers([pattern], config.servers) and not is_server)
        return None if config.problems or may_exist else reason  # a key of another program's file

    def scan_servers(self, agents: Sequence[Agent], tell: Callable[[Problem], None], *, sync: bool) -> Json:
        """Return the tools of the servers used by these agents, and report problems."""
        from lemming.capabilities.mcp.server_sessions import scan_servers

        return scan_servers(self._org, agents, tell, sync=sync)

    def apply_scan(self, scan: Json) -> None:
        """Withhold the tools not offered by a tick's scan."""
        withheld = {name: server["withheld"] for name, server in scan.items() if "withheld" in server}
        if withheld != self._withheld:
            self._withheld, self._sources = withheld, ()

    def refresh(self, settings: OrgSettings) -> list[Problem]:
        """Reload the locked tools, and return problems for a person. Raises: ConfigError for invalid settings."""
        config = load_mcp_config(self._org)
        config.require_valid()
        lock = load_lock(self._org)
        if len(self._sources) != 2 or self._sources[0] is not config or self._sources[1] is not lock:
            self._sources = config, lock
            withheld = self._withheld
            offered = (
                candidate
                for candidate in _iter_tools(config, lock)
                if candidate.tool_name not in withheld.get(candidate.server_name, ())
            )
            self.tools = OrgTools({tool.name: tool for tool in offered})
        return [*config.problems]


def _iter_tools(config: McpConfig, lock: McpLock) -> Iterator[McpTool]:
    for name, server in config.servers.items():
        for tool_name, tool in lock.servers.get(name, LockedServer()).tools.items():
            if any(is_match(tool_name, pattern) for pattern in server.tools):
                yield _make_tool(name, server, tool_name, tool)


# --- validation -----------------------------------------------------------------------------------


def find_server_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems of the files about servers."""
    if subject.only is not None:
        return
    base, config = subject.org, load_mcp_config(subject.org)
    yield from config.problems
    if config.servers and find_spec("mcp") is None:
        hint = install_command("mcp")
        yield make_warning("the MCP SDK is not installed", hint=hint, file=MCP_FILE, code="LMG-307")
    try:
        load_lock(base)
    except ConfigError as error:
        yield from error.problems
    yield from _find_blocked_elicitations(base, config)


def _find_blocked_elicitations(org: Organisation, config: McpConfig) -> Iterator[Problem]:
    """Yield a warning for each server whose questions some agent cannot forward. Its default need not exist."""
    agents = survey_agents(org).agents
    for name, server in config.servers.items():
        if server.ask == McpServerSettings.ask and server.ask not in agents:
            continue
        key = "servers" if config.files[name] == MCP_FILE else "mcpServers"
        for agent in agents.values():
            if not match_servers(agent.permissions.tools, [name]):
                continue
            if blocker := elicitation_blocker(org, agent.name, server.ask):
                message = f"questions of MCP server {name} to {agent.name} are not answered: {blocker}"
                pointer = f"/{key}/{name}{'/ask' if key == 'servers' else ''}"
                yield make_warning(message, pointer, file=config.files[name], code="LMG-307")


def missing_tool_reason(base: OrgPath, pattern: str) -> tuple[str, str] | None:
    """Return the reason and hint for an `mcp.` name without a tool, or None, also for a server never listed."""
    config = load_mcp_config(base)
    server_names = match_servers([pattern], config.servers)
    if not server_names:
        server_name = pattern.removeprefix(PREFIX).partition(".")[0]
        available = f"servers in config/mcp.json: {', '.join(config.servers) or 'none'}"
        hint = did_you_mean(server_name, list(config.servers)) or available
        return f'"{pattern}": there is no MCP server "{server_name}"', hint
    if pattern.count(".") < 2 and not pattern.endswith("*"):
        return (f'"{pattern}" is the server itself', f'write "{PREFIX}{server_names[0]}.*" for all of its tools')
    try:
        lock = load_lock(base)
    except ConfigError:
        return None
    if any(name not in lock.servers for name in server_names):
        return None
    names = [tool.name for tool in _iter_tools(config, lock)]
    if any(is_match(name, pattern) for name in names):
        return None
    server_tools = [name for name in names if name.startswith(f"{PREFIX}{server_names[0]}.")]
    hint = did_you_mean(pattern, server_tools) or f"tools: {', '.join(server_tools)[:300] or 'none'}"
    return f'"{pattern}" matches no tool', hint


# --- results --------------------------------------------------------------------------------------


def to_text(blocks: Iterable[Mapping[str, Any]], structured: Any = None) -> str:
    """Return content blocks as one text. Other blocks become a note. Format: the protocol's `CallToolResult`.

    >>> to_text([dict(type="text", text="3"), dict(type="image", mime_type="image/png", data="aGk=")]).splitlines()
    ['3', '[image image/png, 2 bytes: not shown]']
    >>> to_text([], {"sum": 3})
    '{"sum": 3}'
    """
    parts = [_block_text(block) for block in blocks]
    if not any(parts) and structured is not None:
        parts = [to_line(structured)]
    text: str = plain_text("\n".join(part for part in parts if part))
    return text


def _block_text(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind} {block.get('mime_type', '')}, {_decoded_size(block.get('data'))} bytes: not shown]"
        case "resource_link":
            return f"[resource {block.get('uri', '')}: {block.get('name', '')}]"
        case "resource":
            inner = block.get("resource") or {}
            if isinstance(inner.get("text"), str):
                return f"[resource {inner.get('uri', '')}]\n{inner['text']}"
            return f"[resource {inner.get('uri', '')}, {_decoded_size(inner.get('blob'))} bytes: not shown]"
    return f"[{str(block.get('type'))[:40]}: not shown]"


def _decoded_size(base64: Any) -> int:
    text = base64 if isinstance(base64, str) else ""
    return len(text) * 3 // 4 - text.count("=", -2)


# --- elicitation: a server's question in the middle of a call becomes a request to a person ------
# The request is an entry of the calling agent. Its `payload.call` identifies the call; after the answer, the same tool is
# called again with the answer. Format: `InputRequiredResult` of the protocol.

MAX_BYTES = 64 << 10
FORM = "elicitation/create"


class Unanswerable(ValueError):
    """The server's question has an unsupported form, or its recipient cannot be asked."""


def build_elicitation_request(
    tool: str, arguments: Mapping[str, Any], questions: Mapping[str, Any], state: str | None, *, target: str
) -> NewEntry:
    """Return the request with a server's questions. Raises: Unanswerable for an unsupported question."""
    questions_by_key = {key: _parse_question(question) for key, question in questions.items()}
    if len(dump_compact([questions, state])) > MAX_BYTES:
        raise Unanswerable(f"its question is longer than {MAX_BYTES} bytes")
    message_text = " ".join(message for message, _ in questions_by_key.values())
    schemas = {key: schema for key, (_, schema) in questions_by_key.items()}
    all_answers = {"type": "object", "properties": schemas, "required": [*schemas]}
    payload = {
        "text": f"{tool} asks: {message_text}",
        "target": target,
        "schema": next(iter(schemas.values())) if len(schemas) == 1 else all_answers,
        "call": {"tool": tool, "args": dict(arguments), "keys": [*questions_by_key], "state": state},
    }
    return NewEntry("request", payload, [])


def _parse_question(question: Any) -> tuple[str, dict[str, Any]]:
    """Return the text of a question, and the JSON Schema of its answer."""
    if not isinstance(question, Mapping) or question.get("method") != FORM:
        method = question.get("method", question) if isinstance(question, Mapping) else question
        raise Unanswerable(f"it asks for {str(method)[:80]}, which is not offered")
    params = question.get("params") or {}
    message = " ".join(str(plain_text(params.get("message") or "")).split())
    if params.get("url"):
        message = f"{message} ({plain_text(str(params['url']))})"
    schema = plain_text(params.get("requestedSchema") or {})
    return message, {"type": "object", "properties": {}, **schema} if isinstance(schema, dict) else {}


def elicitation_blocker(org: Organisation, asker: str, target: str) -> str:
    """Return the reason an agent cannot ask another agent or read the answer, or the empty string."""
    agents = get_latest_survey(org).agents
    if target not in agents or target == asker:
        return f'there is no agent "{target}" to ask (`ask` in config/mcp.json)'
    for reader, author in ((target, asker), (asker, target)):
        if not agents[reader].may_read(author):
            return f'{reader} may not read {author}: add "{author}" to its permissions.read_outboxes'
    return ""


def find_elicitation_answers(
    org: Organisation, earlier_answers: Sequence[tuple[str, str]], tool: str, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], str | None] | None:
    """Return the answers for this call, by the server's keys, with the call's state, or None.

    `earlier_answers`: pairs of request and answer, by identity. The newest pair counts.
    """
    for pair in reversed(earlier_answers):
        with contextlib.suppress(ConfigError, FileNotFoundError, StopIteration):  # an entry may have been removed
            request, answer = (read_entry(org, next(iter(parse_identities([identity])))) for identity in pair)
            call = request.payload.get("call")
            if isinstance(call, dict) and (call.get("tool"), call.get("args")) == (tool, dict(arguments)):
                value, keys = parse_answer(answer.payload, request.payload["schema"]), call["keys"]
                return ({keys[0]: value} if len(keys) == 1 else value), call["state"]
    return None
