"""What MCP servers are to the engine beside their tools: what running an organisation starts and reaches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.capabilities.mcp.settings import mcp_config, servers_named, variables_named
from lemming.capabilities.mcp.tools import problems_of_servers
from lemming.kernel.access.bound import code, of_command
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.turn.seams import Capability


class Mcp(Capability):
    """MCP servers, whose tools a resume grants by names that begin with `mcp.`."""

    name = "mcp"

    def problems_of_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield what is wrong with the files about servers."""
        if only is None:
            yield from problems_of_servers(base)

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield which servers are started or reached for agents, and by their names for a person."""
        found = mcp_config(org)
        of_agents = servers_named({it for each in agents for it in each.permissions.tools}, found.servers)
        for name in dict.fromkeys([*of_agents, *(it for it in servers if it in found.servers)]):
            server, named = found.servers[name], variables_named(found.servers[name])
            what = f", and what the variables {', '.join(named)} hold," if named else ""
            if server.command:
                run = {key: getattr(server, key) for key in ("command", "cwd", "env", "variables")}
                place = f"{found.files[name]} {name}"
                yield code(
                    f"runs the program: {' '.join(server.command)}, the MCP server {name}{what.rstrip(',')}",
                    of_command(org, place, run, server.command, server.cwd),
                )
            else:
                yield Reach(f"sends calls{what} to {server.url.partition('?')[0]}, the MCP server {name}")
