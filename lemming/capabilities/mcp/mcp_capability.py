"""Capability of MCP servers: validation, and permissions for the servers in use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.capabilities.mcp.mcp_settings import load_mcp_config, match_servers, referenced_variables
from lemming.ext import Capability
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.permission_bindings import code_permission, digest_command


class McpCapability(Capability):
    """MCP servers, with tools granted in a resume under names starting with `mcp.`."""

    name = "mcp"


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions for servers used by agents, and for servers named by a person."""
    mcp_settings = load_mcp_config(org)
    agent_servers = match_servers({item for agent in agents for item in agent.permissions.tools}, mcp_settings.servers)
    for name in dict.fromkeys([*agent_servers, *(item for item in servers if item in mcp_settings.servers)]):
        server, variables = mcp_settings.servers[name], referenced_variables(mcp_settings.servers[name])
        variables_note = f", and what the variables {', '.join(variables)} hold," if variables else ""
        if server.command:
            bound_settings = {key: getattr(server, key) for key in ("command", "cwd", "env", "variables")}
            location = f"{mcp_settings.files[name]} {name}"
            yield code_permission(
                f"runs the program: {' '.join(server.command)}, the MCP server {name}{variables_note.rstrip(',')}",
                digest_command(org, location, bound_settings, server.command, server.cwd),
            )
        else:
            yield RequiredPermission(
                f"sends calls{variables_note} to {server.url.partition('?')[0]}, the MCP server {name}"
            )
