"""The screen of MCP servers and their accepted tools."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from lemming.capabilities.mcp.mcp_lock_file import load_lock
from lemming.capabilities.mcp.mcp_settings import PREFIX, load_mcp_config
from lemming.kernel.org.organisation import Organisation
from lemming.queries.screens.screen import Column, Note, Parameter, Screen, ScreenResult


class _ServerRow(NamedTuple):
    server: str
    file: str
    reached_by: str
    tools: dict[str, str] | None


def list_servers(
    org: Organisation,
    server: Annotated[str | None, Parameter("SERVER", "Name of a server; default: all servers.")] = None,
) -> ScreenResult:
    """Return the servers of config/mcp.json and .mcp.json. No server is started."""
    config, locked_servers = load_mcp_config(org), load_lock(org).servers
    rows = []
    for name in config.servers if server is None else [server]:
        settings, locked = config.get_server(name), locked_servers.get(name)
        tools = (
            {f"{PREFIX}{name}.{tool}": facts.description for tool, facts in locked.tools.items()} if locked else None
        )
        rows.append(_ServerRow(name, config.files[name], settings.url or " ".join(settings.command), tools))
    return ScreenResult(rows, [Note(str(problem), is_warning=True) for problem in config.problems])


SERVERS = Screen(
    "mcp",
    kind="mcp_server",
    title="MCP servers",
    command="mcp list",
    query=list_servers,
    row=_ServerRow,
    empty='no servers; add some to config/mcp.json, such as {"servers": {"time": {"command": ["mcp-server-time"]}}}',
    columns=(
        Column("server", "SERVER", "Name of the server."),
        Column("reached_by", "TRANSPORT", "Command or address of the server.", width=80),
        Column(
            "tools", "TOOLS", "Accepted tools with their descriptions, or null before the first use.",
            text=lambda row: "unknown" if row.tools is None else str(len(row.tools)),
        ),
        Column("file", "FILE", "File that lists the server."),
    ),
)  # fmt: skip
