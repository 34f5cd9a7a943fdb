"""The look at MCP servers as a tick begins: what they have now, held against what was accepted.

It is made before the first turn, once for all turns, and only where an agent that takes one may call a
server's tools. What it came to is part of the tick's first record, so a second attempt does not look again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lemming.capabilities.mcp.lock import LOCK_FILE, KnownServer, differences, keep, known_servers, problem_of
from lemming.capabilities.mcp.servers import Listed, McpServers
from lemming.capabilities.mcp.settings import MCP_FILE, mcp_config, servers_named
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.files.documents import GONE
from lemming.kernel.journal.file import journal_ticks, read_plan
from lemming.kernel.org.organisation import Organisation

Looked = dict[str, Any]
"""By server: `tools` (the hash of each that is offered), `withheld` (why others are not), `problem`."""


def look(
    org: Organisation, agents: Iterable[Agent], tell: Callable[[Problem], None], *, sync: bool
) -> Looked:
    """Return what the servers have that these agents may call; say what a person should look at.

    Tools of a server of which nothing was known are accepted by this, and written down. Where the file that
    says what was accepted is gone, nothing is accepted anew: its servers may say otherwise today.
    """
    config = mcp_config(org)
    patterns = {pattern for agent in agents for pattern in agent.permissions.tools}
    names = servers_named(sorted(patterns), config.servers)
    if not names:
        return {}
    known = known_servers(org).servers
    listed = org.own(McpServers).list(names, known=known)
    new = {name: found.tools for name, found in listed.items() if name not in known and not found.problem}
    lost = {} if known or not new else dict.fromkeys(_find_offered_servers(org, new), KnownServer())
    if lost:
        tell(Problem(f"the file is gone, and with it what was accepted of {', '.join(lost)}", LOCK_FILE,
                     hint="put it back, or accept them anew: `lemming mcp accept SERVER`",
                     severity="warning", code=GONE))  # fmt: skip
    if new.keys() - lost.keys():
        keep(org, {name: tools for name, tools in new.items() if name not in lost}, sync=sync)
    known = {**known, **lost}
    looked = {name: _held_against(found, known.get(name, found.tools)) for name, found in listed.items()}
    for problem in _problems(listed, looked):
        tell(problem)
    return looked


def _find_offered_servers(org: Organisation, names: Iterable[str]) -> list[str]:
    """Return the servers among these whose tools the newest journals record as offered."""
    left, found = set(names), list[str]()
    for tick in reversed(journal_ticks(org, with_sealed=False)):
        plan = read_plan(org, tick)
        offered = {name for name, server in plan.mcp.items() if server.get("tools")} if plan else set[str]()
        accepted = left & offered
        found += sorted(accepted)
        left -= accepted
        if not left:
            break
    return found


def _held_against(listed: Listed, known: KnownServer) -> dict[str, Any]:
    if listed.problem:
        return {"tools": _hashes(known.tools), "problem": listed.problem}
    withheld = differences(known, listed.tools)
    offered = {name: tool for name, tool in known.tools.items() if name not in withheld}
    return {"tools": _hashes(offered), **({"withheld": withheld} if withheld else {})}


def _hashes(tools: Mapping[str, Any]) -> dict[str, str]:
    return {name: tool.hash for name, tool in sorted(tools.items())}


def _problems(listed: Mapping[str, Listed], looked: Looked) -> Iterator[Problem]:
    for name, found in listed.items():
        where = f"/servers/{name}"
        if found.problem:
            message, hint = f"MCP server {name}: {found.problem}", f"try it: `lemming mcp test {name}`"
            yield Problem(message, MCP_FILE, pointer=where, hint=hint, severity="warning", code="LMG-307")
        for tool, why in found.left_out.items():
            message, hint = (
                f'tool "{tool}" of MCP server {name} is left out: {why}',
                "its author can mend it",
            )
            yield Problem(message, MCP_FILE, pointer=where, hint=hint, severity="warning", code="LMG-307")
        for tool, what in looked[name].get("withheld", {}).items():
            yield problem_of(name, tool, what)
