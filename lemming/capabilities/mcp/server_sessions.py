"""Sessions with an organisation's MCP servers while the engine runs, and calls to the servers.

Calls to a silent, dead, slow or excessive server fail; the tick continues.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lemming.capabilities.mcp.mcp_lock_file import (
    LOCK_FILE,
    LockedServer,
    LockedTool,
    find_differences,
    load_lock,
    lock_tool,
    make_problem,
    save_lock,
)
from lemming.capabilities.mcp.mcp_session import McpSession, SessionClosed, ToolCallResponse
from lemming.capabilities.mcp.mcp_settings import (
    MCP_FILE,
    PREFIX,
    McpServerSettings,
    load_mcp_config,
    match_servers,
    require_sdk,
)
from lemming.ext import LemmingError, Problem
from lemming.kernel.agents import Agent
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.errors import TimedOut, ToolError
from lemming.kernel.base.json_schema.schema_violations import describe_violations, find_schema_flaw
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files.json_documents import GONE
from lemming.kernel.journal.journal_file import journal_ticks, load_tick_started
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.concurrency.async_calls import SharedClient, run_async

if TYPE_CHECKING:
    import asyncio

RETRY_DELAY_S = 30.0
"""A server that could not be started is not started again for so long: calls fail at once."""

MAX_NAME_CHARS = 64
"""Longest name of a tool that the backends of models take."""

PATIENCE_S = 5.0
"""A tick begins without a server that takes longer to list tools that are known: only its calls wait."""

SCHEMA_CHECK_S = 3.0
"""Seconds of CPU time for the schemas of a server's tools; further tools are left out."""

_MARGIN_S, _CLOSING_TIME_S = 2.0, 15.0


@dataclass(frozen=True)
class ServerListing:
    """Current tools of a server.

    `rejected`: unusable tools with reasons. `problem`: the reason for an empty listing. `is_starting`: no answer yet,
    but possibly later. `took_ms`: duration of the listing.
    """

    tools: LockedServer = field(default_factory=LockedServer)
    rejected: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    is_starting: bool = False
    took_ms: int = 0


class ServerDisconnected(ToolError):
    """The server disconnected in the middle of a call, with unknown outcome."""


class McpSessions:
    """Sessions of an organisation, by server."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._sessions: dict[str, tuple[McpServerSettings, SharedClient[McpSession]]] = {}
        self._failed: dict[str, tuple[Deadline, str]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._starting: dict[str, tuple[McpSession, asyncio.Task[ServerListing]]] = {}
        self._schema_errors: dict[str, str] = {}

    def list_tools(self, names: Iterable[str], *, locked: Collection[str] = ()) -> Mapping[str, ServerListing]:
        """Return the tools of these servers, listed concurrently, each within its `start_timeout_s`.

        Slow servers in `locked` are not awaited and continue to start.
        """
        requested = list(names)
        config = load_mcp_config(self._org)
        listings = {name: ServerListing(problem=self._recent_failure(name)) for name in requested}
        ready = {name: config.get_server(name) for name in requested if not listings[name].problem}
        if ready:
            try:
                require_sdk()
            except ToolError as error:
                return {name: ServerListing(problem=str(error)) for name in requested}
            sessions = {name: self._get_session(name, server) for name, server in ready.items()}
            longest_s = max(server.start_timeout_s for server in ready.values())
            listings |= run_async(lambda: self._list_all(sessions, ready, locked), longest_s + 2 * _MARGIN_S)
        for name in ready:
            listings[name] = self._drop_invalid_tools(listings[name])
            self._failed.pop(name, None)
            if listings[name].problem and not listings[name].is_starting:
                self._failed[name] = Deadline(RETRY_DELAY_S), listings[name].problem
                self._sessions.pop(name, None)
        return {name: listings[name] for name in requested}

    def call_tool(
        self, name: str, server: McpServerSettings, tool: str, arguments: dict[str, Any], **continuation: Any
    ) -> ToolCallResponse:
        """Call a tool of a server. Raises: ToolError, and TimedOut after the time limit."""
        if problem := self._recent_failure(name):
            raise ToolError(f"MCP server {name}: {problem}")
        require_sdk()
        session = self._get_session(name, server)
        limit_s = server.timeout_s + server.start_timeout_s
        try:
            response = run_async(
                lambda: _call_tool(session, server.timeout_s, tool, arguments, continuation), limit_s + _MARGIN_S
            )
            schema = response.output_schema
            if errors := [] if schema is None else describe_violations(schema, response.structured):
                raise ToolError(f"its result is not what its output schema says: {'; '.join(errors)}"[:1000])
            return response
        except TimedOut:
            hint = f"raise timeout_s of {name} in config/mcp.json"
            raise TimedOut(f"MCP server {name}: no answer within {server.timeout_s:g} s", hint=hint) from None
        except LemmingError as error:
            error_type = ServerDisconnected if isinstance(error, SessionClosed) else ToolError
            raise error_type(f"MCP server {name}: {error.message}", hint=error.hint) from None

    def close(self) -> None:
        """Close all sessions. Later calls open new sessions."""
        sessions = [client.get() for _, client in self._sessions.values()]
        self._sessions, self._starting = {}, {}
        if sessions or self._ending:
            with contextlib.suppress(TimedOut):  # a server that does not end is left to its launcher
                run_async(lambda: _close_all(sessions, self._ending), _CLOSING_TIME_S)

    def _get_session(self, name: str, server: McpServerSettings) -> McpSession:
        cached = self._sessions.get(name)
        if cached is None or cached[0] != server:  # the settings have changed: the old one ends by itself
            base = self._org.base
            cached = self._sessions[name] = server, SharedClient(lambda _: McpSession(name, server, base))
        return cached[1].get()

    def _recent_failure(self, name: str) -> str:
        retry_deadline, problem = self._failed.get(name, (None, ""))
        return "" if retry_deadline is None or retry_deadline.has_passed else problem

    async def _list_all(
        self, sessions: Mapping[str, McpSession], servers: Mapping[str, McpServerSettings], locked: Collection[str]
    ) -> dict[str, ServerListing]:
        import asyncio

        listings = (self._list_or_starting(name, sessions[name], servers[name], name in locked) for name in sessions)
        return dict(zip(sessions, await asyncio.gather(*listings), strict=True))

    async def _list_or_starting(
        self, name: str, session: McpSession, server: McpServerSettings, is_locked: bool
    ) -> ServerListing:
        """Return the listing of a server, or a starting placeholder for a slow server with locked tools."""
        import asyncio

        owner, task = self._starting.pop(name, (None, None))
        wait_limit_s = 0.0  # a tick before this one has waited for it
        # A scan that finished meanwhile was for an earlier tick: the current catalogue is requested anew.
        if task is None or owner is not session or (task.done() and not task.result().problem):
            task, wait_limit_s = asyncio.create_task(self._list(name, session, server)), PATIENCE_S
        await asyncio.wait({task}, timeout=wait_limit_s if is_locked else None)
        if task.done():
            return task.result()
        self._starting[name] = session, task
        problem = f"it has not listed its tools after {PATIENCE_S:g} s; those that were accepted are offered"
        return ServerListing(problem=problem, is_starting=True)

    async def _list(self, name: str, session: McpSession, server: McpServerSettings) -> ServerListing:
        import asyncio

        began, deadline = time.perf_counter(), Deadline(server.start_timeout_s + _MARGIN_S)
        try:
            async with asyncio.timeout(deadline.remaining()):
                await session.open()
                async with asyncio.timeout(min(server.timeout_s, deadline.remaining())):
                    raw_tools = await session.list_tools()
            listed = _to_listing(raw_tools, name, server)
        except TimeoutError:
            setting = "start_timeout_s" if deadline.has_passed else "timeout_s"
            limit = f"{getattr(server, setting):g} s ({setting} of its line in config/mcp.json)"
            listed = ServerListing(problem=f"it did not list its tools within {limit}")
            ending = asyncio.create_task(session.close())  # only `close` waits for it
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        except LemmingError as error:
            listed = ServerListing(problem=str(error))
        return replace(listed, took_ms=elapsed_ms(began))

    def _drop_invalid_tools(self, listed: ServerListing) -> ServerListing:
        began = time.thread_time()  # not the wall's: a busy machine leaves none out
        invalid: dict[str, str] = {}
        for name, tool in listed.tools.tools.items():
            if tool.hash not in self._schema_errors:
                if time.thread_time() - began > SCHEMA_CHECK_S:
                    invalid[name] = f"the schemas of its server take more than {SCHEMA_CHECK_S:g} s to look at"
                    continue
                self._schema_errors[tool.hash] = " ".join(filter(None, reversed(find_schema_flaw(tool.schema))))
            if schema_error := self._schema_errors[tool.hash]:
                invalid[name] = f"the schema of its arguments: {schema_error}"
        if not invalid:
            return listed
        valid = {name: tool for name, tool in listed.tools.tools.items() if name not in invalid}
        return replace(listed, tools=LockedServer(tools=valid), rejected={**listed.rejected, **invalid})


def _to_listing(raw_tools: Iterable[Mapping[str, Any]], server_name: str, server: McpServerSettings) -> ServerListing:
    locked_tools: dict[str, LockedTool | str] = {}
    for tool in raw_tools:
        name = f"{PREFIX}{server_name}.{tool['name']}".replace(".", "__")  # as backends get it
        if any(is_match(tool["name"], pattern) for pattern in server.tools):
            too_long = f"{name[:80]} is longer than {MAX_NAME_CHARS} characters" if len(name) > MAX_NAME_CHARS else ""
            locked_tools[tool["name"]] = too_long or lock_tool(tool)
    rejected = {name[:80]: reason for name, reason in locked_tools.items() if isinstance(reason, str)}
    tools = {name: tool for name, tool in locked_tools.items() if not isinstance(tool, str)}
    return ServerListing(LockedServer(tools=dict(sorted(tools.items()))), rejected)


async def _call_tool(
    session: McpSession, timeout_s: float, tool: str, arguments: dict[str, Any], continuation: Mapping[str, Any]
) -> ToolCallResponse:
    import asyncio

    await session.open()
    try:
        async with asyncio.timeout(timeout_s):
            return await session.call_tool(tool, arguments, **continuation)
    except TimeoutError:
        raise TimedOut("no answer in time") from None


async def _close_all(sessions: Iterable[McpSession], ending: Iterable[asyncio.Task[None]]) -> None:
    import asyncio

    await asyncio.gather(*(session.close() for session in sessions), *ending, return_exceptions=True)


# --- scan of MCP servers at the start of a tick: current tools compared with the lock ------------
# The scan runs before the first turn, once for all turns, and only if an agent with a turn may call a server's tools. The
# result is part of the tick's first record, so a second attempt does not scan again.

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
        started = load_tick_started(org, tick)
        offered = {name for name, server in started.mcp.items() if server.get("tools")} if started else set[str]()
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
            message, hint = f'tool "{tool}" of MCP server {name} is left out: {reason}', "ask its author to correct it"
            yield Problem(message, MCP_FILE, pointer=pointer, hint=hint, severity="warning", code="LMG-307")
        for tool, change in result[name].get("withheld", {}).items():
            yield make_problem(name, tool, change)
