"""`lemming mcp`: manage MCP servers, and serve this organisation over MCP."""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemming.capabilities.mcp.mcp_lock_file import LOCK_FILE, LockedServer, find_differences, load_lock, save_lock
from lemming.capabilities.mcp.mcp_settings import PREFIX, McpConfig, load_mcp_config, require_sdk
from lemming.capabilities.mcp.mcp_tools import to_text
from lemming.capabilities.mcp.servers_screen import SERVERS
from lemming.commands.command_context import (
    CommandContext,
    Limit,
    Trust,
    argument,
    make_command_group,
    option,
    parse_json_object,
)
from lemming.commands.terminal import (
    format_count,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_text,
    print_warning,
    style_text,
)
from lemming.commands.trust import require_workspace_trust
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.organisation import Organisation

if TYPE_CHECKING:
    from lemming.capabilities.mcp.server_sessions import ServerListing

app = make_command_group("Manage MCP servers, or serve this organisation over MCP.")

ServerName = Annotated[str | None, argument("SERVER", "Name of a server; default: all servers.")]


@app.subcommand("list")
def list_servers(context: CommandContext, name: ServerName = None, limit: Limit = None) -> None:
    """List MCP servers and their accepted tools.

    Servers come from config/mcp.json and .mcp.json; no server is started. An agent may call tools that match
    a pattern in its resume, such as "mcp.files.*".

    \b
    Examples:
      lemming mcp list
      lemming mcp list files
    """
    base = context.org
    if context.as_json or name is None:
        context.print_screen(SERVERS, SERVERS.load(base, {"server": name}), limit)
        return
    _select_servers(_load_mcp_config(base), name)
    tools = load_lock(base).servers.get(name, LockedServer()).tools
    if not tools:
        print_notice(f"no tools of {name} are accepted yet; the first use or `lemming mcp accept {name}` accepts them")
    for tool, server_row in context.limit_rows([*tools.items()], limit):
        print_data(f"{style_text(f'{PREFIX}{name}.{tool}', 'bold')}  {one_line(server_row.description, 300)}")


@app.subcommand("test")
def try_servers(
    context: CommandContext,
    name: ServerName = None,
    tool: Annotated[str | None, option("--call TOOL", "Call this tool of SERVER as an agent would.")] = None,
    args: Annotated[str, option("--args JSON", "Arguments of the call as a JSON object.")] = "{}",
    yes: Annotated[bool, option("--yes -y", "With --call: allow tools with outside effects.")] = False,
    trust: Trust = False,
) -> None:
    """Connect to servers and show their tools and latency.

    Nothing is written. Exit status 1: a server is unusable, or its tools differ from the accepted tools. With
    --call, a tool
    offered to agents ("tools" of the server's settings) is called; a tool of another class than read needs
    --yes.

    \b
    Examples:
      lemming mcp test
      lemming mcp test files --call read_file --args '{"path": "a.txt"}' --yes
    """
    base = context.org
    config = _load_mcp_config(base)
    server_names = _select_servers(config, name)
    if tool is not None and name is None:
        raise UsageError("--call requires the name of a server", hint="lemming mcp test SERVER --call TOOL")
    arguments = parse_json_object(args, "--args", '{"path": "a.txt"}')
    require_workspace_trust(base, is_trusted=trust, servers=server_names)
    require_sdk()
    from lemming.capabilities.mcp.server_sessions import McpSessions

    all_usable = True
    with closing(base):
        listings = base.get_cache(McpSessions).list_tools(server_names)  # in parallel: a hanging server delays no other
        for server in server_names:
            server_tools = _test_server(base, server, listings[server])
            all_usable &= server_tools is not None
            if tool is not None and server_tools is not None:
                resolved_tool = _resolve_tool(config, server, tool, server_tools, allows_side_effects=yes)
                all_usable = _call_tool(base, server, resolved_tool, arguments)
    raise typer.Exit(0 if all_usable else 1)


@app.subcommand("accept")
def accept(
    context: CommandContext,
    name: ServerName = None,
    yes: Annotated[bool, option("--yes -y", "Skip the confirmation.")] = False,
    trust: Trust = False,
) -> None:
    """Accept the current tools and descriptions of servers.

    Differences from the accepted tools are shown first, as they would appear in a prompt. The accepted tools
    are stored in config/mcp.lock.json. The first use of a server accepts its tools.

    \b
    Examples:
      lemming mcp accept
      lemming mcp accept files --yes
    """
    from lemming.capabilities.mcp.server_sessions import McpSessions

    base = context.org
    server_names = _select_servers(_load_mcp_config(base), name)
    require_workspace_trust(base, is_trusted=trust, servers=server_names)
    require_sdk()
    with closing(base):
        listings = base.get_cache(McpSessions).list_tools(server_names)
    failures = {server: listed.problem for server, listed in listings.items() if listed.problem}
    for server, problem in failures.items():
        print_warning(one_line(f"{server}: {problem}", 600), style="red")
    locked_servers = load_lock(base).servers
    current_tools = {server: server_row.tools for server, server_row in listings.items() if not server_row.problem}
    changed = {server: tools for server, tools in current_tools.items() if locked_servers.get(server) != tools}
    for server, server_row in changed.items():
        _print_differences(server, locked_servers.get(server, LockedServer()), server_row)
    if changed and (yes or not sys.stdin.isatty() or typer.confirm("Accept?", err=True)):
        save_lock(base, changed, sync=True)
        print_notice(f"kept in {LOCK_FILE}")
    elif not changed and not failures:
        print_notice("no changes")
    raise typer.Exit(1 if failures else 0)


@app.subcommand("serve")
def serve(
    context: CommandContext,
    http: Annotated[
        int | None, option("--http PORT", "Serve over HTTP on 127.0.0.1:PORT; 0 picks a free port.", min=0, max=65535)
    ] = None,
    write: Annotated[bool, option("--write", "Let clients ask, send and answer as a person.")] = False,
    person: Annotated[str, option("--as PERSON", "Person the client acts as; required when there are several.")] = "",
) -> None:
    """Serve this organisation over MCP.

    Clients can read status, plan, outboxes, ticks, requests, costs and traces. The server uses standard input
    and output for a client that starts the process, or HTTP with a token: the variable LEMMING_MCP_TOKEN,
    else a new token per start, which is printed. Reads never wait for the engine, which may run at the same
    time. With --write, `ask` runs ticks if no engine runs.

    \b
    Examples:
      lemming mcp serve
      claude mcp add news -- lemming -C ~/news mcp serve
      lemming mcp serve --http 8421 --write
    """
    base = context.org
    require_sdk()
    from lemming.capabilities.mcp.mcp_server import TOKEN_VARIABLE, make_server, serve_http

    if write:
        require_workspace_trust(base, can_ask=http is not None)
    server = make_server(base.base, writes=write, person=person)
    if http is None:
        server.run("stdio")  # until the client disconnects
        return
    configured = os.environ.get(TOKEN_VARIABLE, "")
    token = configured or secrets.token_urlsafe(24)

    def print_address(port: int) -> None:
        print_json("mcp_listening", {"url": f"http://127.0.0.1:{port}/mcp", "token": None if configured else token})
        print_notice(f"http://127.0.0.1:{port}/mcp")
        print_notice(f"the token is that of {TOKEN_VARIABLE}" if configured else f"Authorization: Bearer {token}")

    serve_http(server, http, token, print_address)


def _load_mcp_config(base: Organisation) -> McpConfig:
    config = load_mcp_config(base)
    for problem in config.problems:
        print_notice(one_line(str(problem), 600), style="red" if problem.severity == "error" else "yellow")
    return config


def _select_servers(config: McpConfig, name: str | None) -> list[str]:
    if name is not None:
        config.get_server(name)
    return list(config.servers) if name is None else [name]


def _test_server(base: Organisation, name: str, listed: ServerListing) -> LockedServer | None:
    """Print the state of a server; return the tools if equal to the accepted tools, else None."""
    locked_server = load_lock(base).servers.get(name)
    tool_differences = find_differences(locked_server, listed.tools) if locked_server and not listed.problem else {}
    tools = {f"{PREFIX}{name}.{tool}": server_row.description for tool, server_row in listed.tools.tools.items()}
    facts = {"tools": tools, "problem": listed.problem, "left_out": dict(listed.rejected)}
    print_json("mcp_test", {"server": name, **facts, "differences": tool_differences, "took_ms": listed.took_ms})
    if listed.problem:
        print_warning(one_line(f"{name}: {listed.problem}", 600), style="red")
        return None
    text = f"{format_count(len(listed.tools.tools), 'tool')} in {listed.took_ms} ms"
    print_data(f"{style_text(name, 'bold')}: {text}: {one_line(', '.join(listed.tools.tools), 300)}")
    for tool, reason in listed.rejected.items():
        print_warning(one_line(f"  {tool} is left out: {reason}", 300))
    for tool, text in tool_differences.items():
        print_warning(one_line(f"  {tool} {text}; `lemming mcp accept {name}`", 300))
    return None if tool_differences else listed.tools


def _resolve_tool(
    config: McpConfig, name: str, typed_name: str, server_tools: LockedServer, *, allows_side_effects: bool
) -> str:
    """Return the tool of a server if agents may call the tool. Raises `UsageError` otherwise."""
    from lemming.capabilities.mcp.mcp_tools import get_tool_class

    server, tool = config.servers[name], typed_name.removeprefix(f"{PREFIX}{name}.")
    if tool not in server_tools.tools:
        hint = did_you_mean(tool, [*server_tools.tools]) or f"tools: {', '.join(server_tools.tools) or 'none'}"
        patterns = ", ".join(server.tools)
        raise UsageError(f'{name} offers no tool "{one_line(tool, 80)}" ("tools": {patterns})', hint=hint)
    tool_class = get_tool_class(server, server_tools.tools[tool])
    if tool_class != "read" and not allows_side_effects:
        hint = "add --yes to call it; a tool counts as read-only if it says so and its server has trust_hints"
        raise UsageError(f"{tool} was not called: it has class {tool_class} and may have effects outside", hint=hint)
    return tool


def _call_tool(base: Organisation, name: str, tool: str, arguments: dict[str, Any]) -> bool:
    from lemming.capabilities.mcp.server_sessions import McpSessions

    server = load_mcp_config(base).get_server(name)
    result = base.get_cache(McpSessions).call_tool(name, server, tool, arguments)
    text = to_text(result.content, result.structured)
    print_json("mcp_call", {"server": name, "tool": tool, "success": not result.is_error, "output": text})
    print_text(text)
    if result.elicitations is not None:
        print_notice(f"the server asks back: {one_line(str(dict(result.elicitations)), 400)}", style="yellow")
    return not result.is_error


def _print_differences(name: str, accepted: LockedServer, current: LockedServer) -> None:
    for tool, difference in find_differences(accepted, current).items():
        print_json("mcp_difference", {"server": name, "tool": tool, "what": difference})
        print_data(f"{style_text(f'{PREFIX}{name}.{tool}', 'bold')} {difference}")
        for sign, described_tool in (("-", accepted.tools.get(tool)), ("+", current.tools.get(tool))):
            if described_tool is not None:
                print_data(f"  {sign} {one_line(described_tool.description, 400)}")
