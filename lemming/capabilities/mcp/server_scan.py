"""Scan of MCP servers at the start of a tick: current tools compared with the lock.

The scan runs before the first turn, once for all turns, and only if an agent with a turn may call a server's
tools. The result is part of the tick's first record, so a second attempt does not scan again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lemming.capabilities.mcp.mcp_lock_file import (
    LOCK_FILE,
    LockedServer,
    find_differences,
    load_lock,
    make_problem,
    save_lock,
)
from lemming.capabilities.mcp.mcp_settings import MCP_FILE, load_mcp_config, match_servers
from lemming.capabilities.mcp.server_sessions import McpSessions, ServerListing
from lemming.ext import Problem
from lemming.kernel.agents import Agent
from lemming.kernel.files.json_documents import GONE
from lemming.kernel.journal.journal_file import journal_ticks, load_plan
from lemming.kernel.org.organisation import Organisation

ScanResult = dict[str, Any]
"""By server: `tools` (the hash of each that is offered), `withheld` (why others are not), `problem`."""


def scan_servers(
    org: Organisation, agents: Iterable[Agent], tell: Callable[[Problem], None], *, sync: bool
) -> ScanResult:
    """Return the tools of the servers used by these agents, and report problems.

    Tools of a new server are accepted and locked by the scan. If the lock file has disappeared, nothing is
    accepted automatically: the servers may have changed since.
    """
    config = load_mcp_config(org)
    patterns = {pattern for agent in agents for pattern in agent.permissions.tools}
    names = match_servers(sorted(patterns), config.servers)
    if not names:
        return {}
    locked = load_lock(org).servers
    listed = org.get_cache(McpSessions).list_tools(names, locked=locked)
    new = {name: listing.tools for name, listing in listed.items() if name not in locked and not listing.problem}
    lost_servers = {} if locked or not new else dict.fromkeys(_find_offered_servers(org, new), LockedServer())
    if lost_servers:
        tell(Problem(f"the file was deleted; accepted tools were lost for {', '.join(lost_servers)}", LOCK_FILE,
                     hint="restore it, or accept them again: `lemming mcp accept SERVER`",
                     severity="warning", code=GONE))  # fmt: skip
    if new.keys() - lost_servers.keys():
        save_lock(org, {name: tools for name, tools in new.items() if name not in lost_servers}, sync=sync)
    locked = {**locked, **lost_servers}
    result = {name: _compare_with_lock(listing, locked.get(name, listing.tools)) for name, listing in listed.items()}
    for problem in _scan_problems(listed, result):
        tell(problem)
    return result


def _find_offered_servers(org: Organisation, names: Iterable[str]) -> list[str]:
    """Return the servers among these with tools recorded as offered in the newest journals."""
    remaining, offered_servers = set(names), list[str]()
    for tick in reversed(journal_ticks(org, with_sealed=False)):
        plan = load_plan(org, tick)
        offered = {name for name, server in plan.mcp.items() if server.get("tools")} if plan else set[str]()
        accepted = remaining & offered
        offered_servers += sorted(accepted)
        remaining -= accepted
        if not remaining:
            break
    return offered_servers


def _compare_with_lock(listing: ServerListing, locked: LockedServer) -> dict[str, Any]:
    if listing.problem:
        return {"tools": _tool_hashes(locked.tools), "problem": listing.problem}
    withheld = find_differences(locked, listing.tools)
    offered = {name: tool for name, tool in locked.tools.items() if name not in withheld}
    return {"tools": _tool_hashes(offered), **({"withheld": withheld} if withheld else {})}


def _tool_hashes(tools: Mapping[str, Any]) -> dict[str, str]:
    return {name: tool.hash for name, tool in sorted(tools.items())}


def _scan_problems(listed: Mapping[str, ServerListing], result: ScanResult) -> Iterator[Problem]:
    for name, listing in listed.items():
        pointer = f"/servers/{name}"
        if listing.problem:
            message, hint = f"MCP server {name}: {listing.problem}", f"try it: `lemming mcp test {name}`"
            yield Problem(message, MCP_FILE, pointer=pointer, hint=hint, severity="warning", code="LMG-307")
        for tool, reason in listing.rejected.items():
            message, hint = (
                f'tool "{tool}" of MCP server {name} is left out: {reason}',
                "ask its author to correct it",
            )
            yield Problem(message, MCP_FILE, pointer=pointer, hint=hint, severity="warning", code="LMG-307")
        for tool, change in result[name].get("withheld", {}).items():
            yield make_problem(name, tool, change)
